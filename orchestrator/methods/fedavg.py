"""FedAvg's client: start from the global model, minimise the cross-entropy. The rule is the plain mean: no scores."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from orchestrator.methods.local import AdamTraining

__all__ = ["FedAvg"]


class FedAvg(AdamTraining):
    """Adam's moments persist per client, as in the FED-PUB reference code's FedAvg."""

    def _start(self, parameters: np.ndarray, noise: np.random.Generator) -> np.ndarray:
        return parameters

    def _loss(self, logits: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, self._labels)

    def _scores(self) -> Mapping[str, float]:
        return {}
