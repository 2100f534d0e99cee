"""FedFairGNN's client (Dang and Nguyen, 2026): gradients of task and fairness apart, and a score of both.

Of each step's gradient g of cross-entropy plus ``method.parity`` times the client's soft gap of demographic parity,
what points along the fairness gradient f is taken out, and f itself, clipped, is put in its place:

    g - (g . f / f . f) f + f min(1, C / ||f||)

The paper's server finds weights w that maximise sum w Perf under sum w DPD <= tau. Its Lagrangian, with an entropy of
temperature T, has the closed form softmax((Perf_k - mu DPD_k) / T), which is a rule on shares; mu is in the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from orchestrator.config import Config
from orchestrator.evaluation.ranking import auc
from orchestrator.graphs.graph import Graph
from orchestrator.methods.adam_training import Batch, sum_up
from orchestrator.methods.base import LocalUpdate
from orchestrator.methods.fair_settings import FedFairGNNSettings
from orchestrator.methods.fair_training import FairTraining
from orchestrator.methods.fairness import gap_coefficients

__all__ = ["FedFairGNN"]

_LEAST = 1e-12


class FedFairGNN(FairTraining):
    """Perf, an AUC, and DPD, a soft gap, are of the local model on the client's validation nodes.

    Where validation nodes do not tell the AUC it counts as 1/2, where they lack a group the gap counts as the budget.
    """

    settings: FedFairGNNSettings
    LEDGER = 1

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        super().__init__(graph, config, client)
        self._coefficients = self._parity(graph.train).float()
        self._measured = np.flatnonzero(graph.val)
        self._measuring = self._parity(graph.val).numpy()
        self._multiplier = 0.0

    def _parity(self, nodes: np.ndarray) -> Tensor:
        labels, groups = (torch.from_numpy(of[nodes].astype(np.int64)) for of in (self.positive, self.sensitive))
        return gap_coefficients(labels, groups)[0]

    @classmethod
    def train_together(cls, clients: Sequence[Self], parameters: np.ndarray) -> list[LocalUpdate]:
        """As the others do; but the multiplier's move follows from the gap that training leaves, as the score does."""
        for client in clients:
            client._multiplier = float(np.clip(parameters[-1], 0, client.settings.multiplier_max))
        updates = []
        for client, update in zip(clients, super().train_together(clients, parameters), strict=True):
            local = parameters[:-1] - update.delta[:-1]
            performance, gap = client._figures(local)
            method = client.settings
            risen = np.clip(client._multiplier + method.dual_step * (gap - method.budget), 0, method.multiplier_max)
            delta = np.append(update.delta[:-1], parameters[-1] - risen)
            worth = performance - client._multiplier * gap + method.multiplier_max  # in [0, 1 + mu_max]
            updates.append(LocalUpdate(delta, float(np.linalg.norm(delta)), {"score": worth / method.temperature}))
        return updates

    def _figures(self, local: np.ndarray) -> tuple[float, float]:
        """AUC, and gap of mean probabilities, of a model on the validation nodes."""
        logits = self.logits(local, own=False)[self._measured]
        if not np.isfinite(logits).all():
            return 0.5, self.settings.budget
        area = auc(logits, self.graph.labels[self._measured]) if len(logits) else None
        if not self._measuring.any():
            return 0.5 if area is None else area, self.settings.budget
        gap = abs(float(self._measuring @ expit(np.diff(logits.astype(np.float64), axis=1).ravel())))
        return 0.5 if area is None else area, min(1.0, gap)

    @classmethod
    def gradients(cls, batch: Batch[Self], trained: Tensor, noises: Sequence[np.random.Generator]) -> Tensor:
        method, logits = batch.clients[0].settings, batch.logits(trained, noises)
        soft = zip(batch.each(torch.sigmoid(logits)), batch.clients, strict=True)
        unfair = method.parity * sum_up([(client._coefficients @ p).abs() for p, client in soft])
        (task,) = torch.autograd.grad(cls.loss(batch, logits), trained, retain_graph=True)
        (fair,) = torch.autograd.grad(unfair, trained)
        return recombined(task + fair, fair, method.fair_clip)


def recombined(total: Tensor, fair: Tensor, bound: float) -> Tensor:
    """Row by row of gradients, shape (b, e): the part of the total orthogonal to `fair`, plus `fair`, clipped."""
    lengths = torch.linalg.vector_norm(fair, dim=1, keepdim=True)
    along = (total * fair).sum(dim=1, keepdim=True) / lengths.square().clamp(min=_LEAST)
    return total - along * fair + fair * (bound / lengths.clamp(min=_LEAST)).clamp(max=1.0)
