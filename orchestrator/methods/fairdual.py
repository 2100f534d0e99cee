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

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from orchestrator.config import Config
from orchestrator.graphs.graph import Graph
from orchestrator.methods.adam_training import Batch, sum_up
from orchestrator.methods.fair_training import FairTraining, GroupShares
from orchestrator.methods.settings import FairDualSettings

__all__ = ["FairDual", "Ledger"]


@dataclass(frozen=True)
class Ledger(GroupShares):
    """What the released vector holds besides the model.

    Attributes:
        shares: running means over clients, as in `GroupShares`, of a client's measured nodes.
        multipliers: of the gaps of demographic parity and equal opportunity, float64, shape (2,); signed.
    """

    multipliers: np.ndarray

    SIZE = 10

    @classmethod
    def of(cls, numbers: np.ndarray) -> Ledger:
        """The inverse of `numbers`. Args: numbers: float64, shape (10,)."""
        return cls(numbers[:8].reshape(4, 2), numbers[8:])

    @property
    def numbers(self) -> np.ndarray:
        return np.concatenate([self.shares.ravel(), self.multipliers])

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


class FairDual(FairTraining):
    """FedAvg's training with the federation's gaps, times the multipliers, added to the loss. The rule is the mean."""

    settings: FairDualSettings
    LEDGER = Ledger.SIZE

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        super().__init__(graph, config, client)
        self._measured = graph.train | graph.val if self.settings.measured == "train_val" else graph.train
        self._pull = torch.zeros(len(self.nodes))

    def move(self, model: np.ndarray, ledger: np.ndarray) -> np.ndarray:
        """This client's update of the ledger, and what the ledger does to its loss."""
        nodes, method, before = self.nodes.numpy(), self.settings, Ledger.of(ledger)
        if len(nodes):
            strength = before.multipliers + method.proportional * before.gaps
            c = before.coefficients(self.sensitive[nodes], self.positive[nodes])
            self._pull = torch.from_numpy(strength @ c / len(nodes)).float()
        shares = self.shares(model, self._measured).shares if self._measured.any() else before.shares
        return ledger - before.next(shares, method.rate, method.step, method.multiplier_max).numbers

    @classmethod
    def loss(cls, batch: Batch[Self], logits: Tensor) -> Tensor:
        soft = batch.each(torch.sigmoid(logits))
        pulls = [(p * client._pull).sum() for p, client in zip(soft, batch.clients, strict=True)]
        return super().loss(batch, logits) + sum_up(pulls)
