"""What methods share that know of two groups: rates by group, weights of nodes, and numbers beside the model.

A client alone sees few nodes, often of one group. So the released vector may hold running means over the clients after
the model's numbers, the *ledger*; a client moves it as it moves a weight, by a difference, and whatever aggregates,
clips and noises the model does so with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from orchestrator.config import Config
from orchestrator.errors import ConfigError
from orchestrator.graphs.graph import Graph
from orchestrator.methods.adam_training import AdamTraining, Batch, sum_up
from orchestrator.methods.base import LocalUpdate

__all__ = ["FairTraining", "GroupShares"]

_LEAST_SHARE = 0.01
"""A group, or its positives, that is a smaller share of the nodes has no gap: dividing by it would only be noise."""


@dataclass(frozen=True)
class GroupShares:
    """Of a client's nodes, or as means over clients that count alike.

    Attributes:
        shares: float64, shape (4, 2): the shares of nodes that are in group 0 and 1, that are positives of it, that are
            predicted positive in it, and that are both.
    """

    shares: np.ndarray

    @classmethod
    def count(cls, predicted: np.ndarray, positive: np.ndarray, sensitive: np.ndarray) -> GroupShares:
        """Of at least one node. Args: predicted, positive, sensitive: of 0 and 1, shape (n,)."""
        hit, true = predicted == 1, positive == 1
        counted = [np.ones_like(true), true, hit, hit & true]
        return GroupShares(np.array([[float((what & (sensitive == g)).mean()) for g in (0, 1)] for what in counted]))

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


class FairTraining(AdamTraining):
    """Training by Adam for two classes and two groups, with a ledger of `LEDGER` numbers beside the model's.

    Attributes:
        sensitive, positive: of all nodes, int8, shape (n,).
        weights: of the training nodes in the loss, float32; None: all count alike.
    """

    LEDGER: ClassVar[int] = 0

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        if graph.classes != 2 or graph.sensitive is None:
            raise ConfigError(
                f"method.name = {config.method.name} is for two classes and data with a sensitive attribute"
            )
        super().__init__(graph, config, client)
        self.sensitive, self.positive = graph.sensitive, (graph.labels == 1).astype(np.int8)
        self.weights: Tensor | None = None

    @classmethod
    def beside(cls, config: Config) -> np.ndarray:
        return np.zeros(cls.LEDGER)

    @classmethod
    def train_together(cls, clients: Sequence[Self], parameters: np.ndarray) -> list[LocalUpdate]:
        cut = len(parameters) - cls.LEDGER
        model, ledger = parameters[:cut], parameters[cut:]
        moves = [client.move(model, ledger) for client in clients]
        updates = super().train_together(clients, model)
        deltas = [np.concatenate([update.delta, move]) for update, move in zip(updates, moves, strict=True)]
        return [
            LocalUpdate(delta, float(np.linalg.norm(delta)), update.scores)
            for delta, update in zip(deltas, updates, strict=True)
        ]

    def move(self, model: np.ndarray, ledger: np.ndarray) -> np.ndarray:
        """Called before training with what was released: the ledger less what this client would make of it."""
        return np.zeros(self.LEDGER)

    @classmethod
    def loss(cls, batch: Batch[Self], logits: Tensor) -> Tensor:
        """The cross-entropy; where there are weights, the mean of each node's times its weight."""
        if batch.clients[0].weights is None:
            return super().loss(batch, logits)
        pairs = zip(batch.each(logits), batch.clients, strict=True)
        return sum_up(
            [F.binary_cross_entropy_with_logits(z, client.labels, weight=client.weights) for z, client in pairs]
        )

    def weigh(self, cells: np.ndarray) -> None:
        """Let training nodes count as these weights by group and label say, shape (2, 2)."""
        groups, labels = (of[self.nodes.numpy()].astype(np.int64) for of in (self.sensitive, self.positive))
        self.weights = torch.from_numpy(cells[groups, labels]).float()

    @property
    def cells(self) -> np.ndarray:
        """Training nodes by group and label, float64, shape (2, 2)."""
        groups, labels = (of[self.nodes.numpy()].astype(np.int64) for of in (self.sensitive, self.positive))
        return np.bincount(2 * groups + labels, minlength=4).reshape(2, 2).astype(float)

    def shares(self, model: np.ndarray, measured: np.ndarray) -> GroupShares:
        """Of this client's nodes in the mask, of which there is at least one, by the hard predictions of a model."""
        predicted = self.predict(model, own=False)[measured]
        return GroupShares.count(predicted, self.positive[measured], self.sensitive[measured])
