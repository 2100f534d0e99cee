"""FedGCN's settings, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from orchestrator.methods.settings import GlobalModelSettings
from orchestrator.secure_sum import SecureSum

__all__ = ["FedGCNSettings"]


class FedGCNSettings(GlobalModelSettings):
    """What clients add up of their nodes' features before the first round; with 0 hops FedGCN is FedAvg."""

    hops: Literal[1, 2] = Field(
        1,
        description="layers that see neighbours at other clients; 1: the first; 2: both, for which every client hears "
        "all nodes' degrees too",
    )
    bound: float = Field(100.0, gt=0, description="of the Euclidean norm of what a client adds to the sums of features")
    degree_bound: float = Field(
        1e4, gt=0, description="of the Euclidean norm of a client's nodes' degrees; with 2 hops"
    )
    sum_noise: float = Field(0.0, ge=0, description="noise multiplier of each of these sums")

    def statistics(self) -> Sequence[SecureSum]:
        features = SecureSum("features", self.bound, lambda s: s.nodes * s.features, self.sum_noise)
        degrees = SecureSum("degrees", self.degree_bound, lambda s: s.nodes, self.sum_noise)
        return [features] if self.hops == 1 else [degrees, features]
