"""The settings of FedProx and of the fair methods that SaFeGNN's table 1 compares itself with; see `settings`."""

from __future__ import annotations

from pydantic import Field

from orchestrator.methods.settings import GlobalModelSettings

__all__ = ["FedProxSettings"]


class FedProxSettings(GlobalModelSettings):
    """Those of FedAvg, and the pull towards the global model."""

    mu: float = Field(0.01, ge=0, description="weight of half the squared distance to the global model, in the loss")
