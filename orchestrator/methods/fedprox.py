"""FedProx's client (Li et al., MLSys 2020): the local loss, and a pull towards the global model. The rule is the mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor

from orchestrator.methods.adam_training import AdamTraining, Batch
from orchestrator.methods.fair_settings import FedProxSettings

__all__ = ["FedProx"]


class FedProx(AdamTraining):
    """Minimises ``loss(w) + mu / 2 ||w - w_global||^2``."""

    settings: FedProxSettings

    @classmethod
    def start(cls, batch: Batch[Self], parameters: np.ndarray, noises: Sequence[np.random.Generator]) -> np.ndarray:
        batch.anchor = torch.tensor(parameters, dtype=torch.float32)
        return super().start(batch, parameters, noises)

    @classmethod
    def objective(cls, batch: Batch[Self], trained: Tensor, noises: Sequence[np.random.Generator]) -> Tensor:
        distance = (trained - batch.anchor).square().sum()  # of all clients of the batch together, as the loss is
        return super().objective(batch, trained, noises) + batch.clients[0].settings.mu / 2 * distance
