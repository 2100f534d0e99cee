"""FedAvg within a ball around the global model: no update is longer than the radius, so no clip bound cuts it."""

from __future__ import annotations

from typing import Self

import torch
from pydantic import Field
from torch import Tensor

from orchestrator.methods.adam_training import AdamTraining, Batch
from orchestrator.methods.settings import GlobalModelSettings

__all__ = ["Nearby", "NearbySettings"]


class NearbySettings(GlobalModelSettings):
    """Those of FedAvg, and the radius."""

    radius: float = Field(1.0, gt=0, description="how far a local model may be from the global one")


class Nearby(AdamTraining):
    """Every step of Adam that leaves the ball is projected back onto it. The rule is FedAvg's plain mean."""

    settings: NearbySettings

    @classmethod
    def after_step(cls, batch: Batch[Self], trained: Tensor) -> None:
        radius, moved = batch.clients[0].settings.radius, trained - batch.released  # a row a client
        lengths = torch.linalg.vector_norm(moved, dim=1, keepdim=True)
        trained.copy_(torch.where(lengths > radius, batch.released + moved * radius / lengths, trained))
