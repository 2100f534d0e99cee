"""FedAvg's client: start from the global model, minimise the cross-entropy. The rule is the plain mean: no scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from torch import Tensor

from orchestrator.methods.local import AdamTraining, Batch

__all__ = ["FedAvg"]


class FedAvg(AdamTraining):
    """Adam's moments persist per client, as in the FED-PUB reference code's FedAvg, unless clients are stateless."""

    @classmethod
    def _scores(cls, batch: Batch[Self], local: Tensor) -> list[Mapping[str, float]]:
        return [{} for _ in batch.clients]
