"""FairFed's client (Ezzeldin et al., AAAI 2023): a running weight that falls while the client is unlike the federation.

    Delta_k = |F - F_k|, or |Acc - Acc_k| where F_k is undefined,     w_k <- w_k - beta (Delta_k - mean Delta)

F is the federation's signed gap under the released model, F_k the client's own. Both the federation's gap, its
accuracy and the mean of Delta are in the ledger beside the model. The servers weigh by w_k / sum w on shares: the score
is log w_k, and the rule is a softmax.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from torch import Tensor

from orchestrator.config import Config
from orchestrator.graphs.graph import Graph
from orchestrator.methods.adam_training import Batch
from orchestrator.methods.fair_settings import FAIRFED_RANGE, FairFedSettings
from orchestrator.methods.fair_training import FairTraining, GroupShares
from orchestrator.methods.reweighing import reweighing

__all__ = ["FairFed", "Ledger"]

_METRICS = {"sp": 0, "eo": 1}
_LEAST_TOLD = 0.01


@dataclass(frozen=True)
class Ledger(GroupShares):
    """Running means over clients.

    Attributes:
        shares: as in `GroupShares`.
        accuracy: sum of the clients' accuracies.
        difference: sum of the Delta_k of those that have one.
        told: how many have one.

    All are over the same number of clients, which is `shares[0].sum()`.
    """

    accuracy: float
    difference: float
    told: float

    SIZE = 11

    @classmethod
    def of(cls, numbers: np.ndarray) -> Ledger:
        """The inverse of `numbers`. Args: numbers: float64, shape (11,)."""
        return cls(numbers[:8].reshape(4, 2), *numbers[8:].tolist())

    @property
    def numbers(self) -> np.ndarray:
        return np.concatenate([self.shares.ravel(), [self.accuracy, self.difference, self.told]])

    @property
    def mean_difference(self) -> float | None:
        """The mean of Delta, in [0, 2]; None before any client had one."""
        return float(np.clip(self.difference / self.told, 0, 2)) if self.told > _LEAST_TOLD else None

    def distance(self, own: GroupShares, metric: int) -> float | None:
        """Delta_k of a client with these shares; None where the federation's side of it is not known yet."""
        if own.known[metric]:
            return abs(float(self.gaps[metric] - own.gaps[metric])) if self.known[metric] else None
        clients = self.shares[0].sum()
        return abs(float(np.clip(self.accuracy / clients, 0, 1)) - accuracy(own)) if clients > _LEAST_TOLD else None


def accuracy(own: GroupShares) -> float:
    """Of hard predictions: one less the false positives and the false negatives."""
    _, positive, hit, both = own.shares.sum(axis=1)
    return float(1 - (hit - both) - (positive - both))


class FairFed(FairTraining):
    """FedAvg's training, or on reweighed nodes; its score is the logarithm of the running weight, from 0 on.

    A client without training nodes keeps its weight and moves nothing.
    """

    settings: FairFedSettings
    LEDGER = Ledger.SIZE

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        super().__init__(graph, config, client)
        self._weight = 1.0
        if self.settings.debias == "reweighing":
            self.weigh(reweighing(self.cells))

    def move(self, model: np.ndarray, ledger: np.ndarray) -> np.ndarray:
        """The client's new weight, and its part of the ledger.

        The part is divided by the weight, by which the servers will multiply it: every client counts alike in a mean.
        """
        if not self.settings.stateful:
            self._weight = 1.0
        if not len(self.nodes):
            return np.zeros(Ledger.SIZE)
        method, known = self.settings, Ledger.of(ledger)
        own = self.shares(model, self.graph.train)
        distance, mean = known.distance(own, _METRICS[method.metric]), known.mean_difference
        if distance is not None and mean is not None:
            self._weight = float(np.clip(self._weight - method.beta * (distance - mean), *FAIRFED_RANGE))
        told = (0.0, 0.0) if distance is None else (distance, 1.0)
        return -method.rate * (Ledger(own.shares, accuracy(own), *told).numbers - ledger) / self._weight

    @property
    def _score(self) -> float:
        return min(math.log(self._weight / FAIRFED_RANGE[0]), self.settings.score_max)  # rounding, at the upper end

    @classmethod
    def scores(cls, batch: Batch[Self], trained: Tensor) -> Sequence[Mapping[str, float | np.ndarray]]:
        return [{"score": client._score} for client in batch.clients]

    def scores_untrained(self, local: np.ndarray) -> Mapping[str, float | np.ndarray]:
        return {"score": self._score}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | ({"weight": self._weight} if self.settings.stateful else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._weight = float(state.get("weight", 1.0))
