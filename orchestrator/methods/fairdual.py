"""FairDual: clients pull the federation's fairness gaps to zero, by multipliers that are trained on shares.

A client alone sees few nodes, often of one group: a penalty on its own gaps (F2GNN's) pulls in as many directions as
there are clients, while the promise is about all of them. Here the released vector holds ten numbers beside the
model's: running shares of nodes, of positives and of hard positive predictions by group, and a multiplier for each of
the two gaps. A client updates them as it updates weights, by a difference, so that they are aggregated, clipped and
noised with the model by whatever engine and rule there is, and no server or accountant knows of them. What clients
minimise is a proxy-Lagrangian (Cotter, Jiang, Sridharan, "Two-player games for efficient non-convex constrained
optimization", ALT 2019): the multipliers rise with the gaps of hard predictions, the weights descend on soft ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from orchestrator.config import Config
from orchestrator.errors import ConfigError
from orchestrator.graphs.graph import Graph
from orchestrator.methods.adam_training import AdamTraining, Batch, sum_up
from orchestrator.methods.base import LocalUpdate
from orchestrator.methods.settings import FairDualSettings

__all__ = ["FairDual", "Ledger"]

_LEAST_SHARE = 0.01
"""A group, or its positives, that is a smaller share of the nodes has no gap: dividing by it would only be noise."""


@dataclass(frozen=True)
class Ledger:
    """What the released vector holds besides the model.

    Attributes:
        shares: running means over clients, float64, shape (4, 2): of a client's measured nodes the shares that are in
            group 0 and 1, that are positives of it, that are predicted positive in it, and that are both.
        multipliers: of the gaps of demographic parity and equal opportunity, float64, shape (2,); signed.
    """

    shares: np.ndarray
    multipliers: np.ndarray

    SIZE = 10

    @classmethod
    def of(cls, numbers: np.ndarray) -> Ledger:
        """The inverse of `numbers`. Args: numbers: float64, shape (10,)."""
        return cls(numbers[:8].reshape(4, 2), numbers[8:])

    @property
    def numbers(self) -> np.ndarray:
        return np.concatenate([self.shares.ravel(), self.multipliers])

    @property
    def known(self) -> np.ndarray:
        """Which of the two gaps the shares tell, bool, shape (2,): both groups, or their positives, are there."""
        nodes, positives = self.shares[:2]
        least = _LEAST_SHARE * max(nodes.sum(), 0.0)
        return np.array([nodes.sum() > 0 and part.min() > least for part in (nodes, positives)])

    @property
    def gaps(self) -> np.ndarray:
        """Rates of group 1 less those of group 0, in [-1, 1], shape (2,); 0 where they are not known."""
        return np.array(
            [
                float(np.diff(np.clip(hits / sizes, 0, 1))[0]) if known else 0.0
                for hits, sizes, known in zip(self.shares[2:], self.shares[:2], self.known, strict=True)
            ]
        )

    def coefficients(self, sensitive: np.ndarray, positive: np.ndarray) -> np.ndarray:
        """By how much a client's mean prediction at each of its nodes moves the federation's gaps; shape (2, n).

        The mean over clients of ``(c @ p) / n`` is the gap of predictions p. Rows of gaps that are not known are 0.
        Args: sensitive, positive: of 0 and 1, shape (n,).
        """
        c, total = np.zeros((2, len(sensitive))), self.shares[0].sum()
        for row, (sizes, counted) in enumerate(zip(self.shares[:2], (np.ones_like(positive), positive), strict=True)):
            if self.known[row]:
                share = sizes / total
                c[row] = counted * np.where(sensitive == 1, 1 / share[1], -1 / share[0])
        return c

    def next(self, shares: np.ndarray, rate: float, step: float, largest: float) -> Ledger:
        """What one client would make of it: running shares a step nearer to its own, multipliers up by the gaps."""
        multipliers = np.clip(self.multipliers + step * self.gaps, -largest, largest)
        return Ledger(self.shares + rate * (shares - self.shares), multipliers)


class FairDual(AdamTraining):
    """FedAvg's training with the federation's gaps, times the multipliers, added to the loss. The rule is the mean."""

    settings: FairDualSettings

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        if graph.classes != 2 or graph.sensitive is None:
            raise ConfigError("method.name = fairdual is for two classes and data with a sensitive attribute")
        super().__init__(graph, config, client)
        self._sensitive, self._positive = graph.sensitive, (graph.labels == 1).astype(np.int8)
        self._measured = graph.train | graph.val if self.settings.measured == "train_val" else graph.train
        self._pull = torch.zeros(len(self.nodes))

    @classmethod
    def beside(cls, config: Config) -> np.ndarray:
        return np.zeros(Ledger.SIZE)

    @classmethod
    def train_together(cls, clients: Sequence[Self], parameters: np.ndarray) -> list[LocalUpdate]:
        model, ledger = parameters[: -Ledger.SIZE], Ledger.of(parameters[-Ledger.SIZE :])
        moves = [client._move(model, ledger) for client in clients]
        updates = super().train_together(clients, model)
        deltas = [np.concatenate([update.delta, move]) for update, move in zip(updates, moves, strict=True)]
        return [LocalUpdate(delta, float(np.linalg.norm(delta)), {}) for delta in deltas]

    def _move(self, model: np.ndarray, ledger: Ledger) -> np.ndarray:
        """This client's update of the ledger, and what the ledger does to its loss."""
        nodes, method = self.nodes.numpy(), self.settings
        if len(nodes):
            strength = ledger.multipliers + method.proportional * ledger.gaps
            c = ledger.coefficients(self._sensitive[nodes], self._positive[nodes])
            self._pull = torch.from_numpy(strength @ c / len(nodes)).float()
        shares = self._shares(model) if self._measured.any() else ledger.shares
        after = ledger.next(shares, method.rate, method.step, method.multiplier_max)
        return ledger.numbers - after.numbers

    def _shares(self, model: np.ndarray) -> np.ndarray:
        """The client's own `Ledger.shares` under a model; each is in [0, 1]."""
        predicted = self.predict(model, own=False)[self._measured] == 1
        positive = self._positive[self._measured] == 1
        counted = [np.ones_like(positive), positive, predicted, predicted & positive]
        groups = [self._sensitive[self._measured] == g for g in (0, 1)]
        return np.array([[float((what & group).mean()) for group in groups] for what in counted])

    @classmethod
    def loss(cls, batch: Batch[Self], logits: Tensor) -> Tensor:
        soft = batch.each(torch.sigmoid(logits))
        pulls = [(p * client._pull).sum() for p, client in zip(soft, batch.clients, strict=True)]
        return super().loss(batch, logits) + sum_up(pulls)
