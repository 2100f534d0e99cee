"""FedProx's client (Li et al., MLSys 2020): the local loss, and a pull towards the global model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from orchestrator.methods.adam_training import AdamTraining, Batch
from orchestrator.methods.settings import GlobalModelSettings

__all__ = ["FedProx", "FedProxSettings"]


class FedProxSettings(GlobalModelSettings):
    """Those of FedAvg, and the pull."""

    mu: float = Field(0.01, ge=0, description="weight of half the squared distance to the global model")


class FedProx(AdamTraining):
    """Minimises ``loss(w) + mu / 2 ||w - w_global||^2``. The rule is FedAvg's plain mean."""

    settings: FedProxSettings

    @classmethod
    def start(cls, batch: Batch[Self], parameters: np.ndarray, noises: Sequence[np.random.Generator]) -> np.ndarray:
        batch.anchor = torch.tensor(parameters, dtype=torch.float32)
        return super().start(batch, parameters, noises)

    @classmethod
    def objective(cls, batch: Batch[Self], trained: Tensor, noises: Sequence[np.random.Generator]) -> Tensor:
        distance = (trained - batch.anchor).square().sum()  # of all clients of the batch together, as the loss is
        return super().objective(batch, trained, noises) + batch.clients[0].settings.mu / 2 * distance
