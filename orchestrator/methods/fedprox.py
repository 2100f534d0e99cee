"""FedProx's client (Li et al., MLSys 2020): the local loss, and a pull towards the global model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from torch import Tensor

from orchestrator.methods.adam_training import AdamTraining, Batch
from orchestrator.methods.fair_settings import FedProxSettings

__all__ = ["FedProx"]


class FedProx(AdamTraining):
    """Minimises ``loss(w) + mu / 2 ||w - w_global||^2``. The rule is FedAvg's plain mean."""

    settings: FedProxSettings

    @classmethod
    def objective(cls, batch: Batch[Self], trained: Tensor, noises: Sequence[np.random.Generator]) -> Tensor:
        distance = (trained - batch.released).square().sum()  # of all clients of the batch together, as the loss is
        return super().objective(batch, trained, noises) + batch.clients[0].settings.mu / 2 * distance
