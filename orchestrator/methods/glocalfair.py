"""GLocalFair's client (Meerza et al., 2024): training under constraints on its own gaps, and a score of how it went.

Minimise the cross-entropy while the client's gaps of true-positive and of false-positive rates are at most a tolerance:
a proxy-Lagrangian (Cotter, Jiang, Sridharan, ALT 2019), whose multipliers rise with the gaps of hard predictions while
the weights descend on soft ones. What the paper's server finds by clustering the models that it sees in the clear is
here a softmax of secret scores; docs/methods/glocalfair.md says what that leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from orchestrator.config import Config
from orchestrator.graphs.graph import Graph
from orchestrator.methods.adam_training import Batch, sum_up
from orchestrator.methods.fair_settings import GLocalFairSettings
from orchestrator.methods.fair_training import FairTraining
from orchestrator.methods.fairness import gap_coefficients

__all__ = ["GLocalFair"]

_UNKNOWN_GAP = 0.5
"""What a gap counts as in the score where the client lacks a group: neither fair nor unfair."""


class GLocalFair(FairTraining):
    """The score is ``method.sharpness`` times one less the mean of the two gaps that the local model leaves."""

    settings: GLocalFairSettings

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        super().__init__(graph, config, client)
        labels, groups = (torch.from_numpy(v[graph.train].astype(np.int64)) for v in (self.positive, self.sensitive))
        of_positives, of_negatives = gap_coefficients(labels, groups)[1], gap_coefficients(1 - labels, groups)[1]
        self._coefficients = torch.stack([of_positives, of_negatives]).float()
        self._multipliers = torch.zeros(2)

    @classmethod
    def start(cls, batch: Batch[Self], parameters: np.ndarray, noises: Sequence[np.random.Generator]) -> np.ndarray:
        for client in batch.clients:
            if not client.settings.stateful:
                client._multipliers = torch.zeros(2)
        return super().start(batch, parameters, noises)

    @classmethod
    def loss(cls, batch: Batch[Self], logits: Tensor) -> Tensor:
        """Cross-entropy plus each gap times its multiplier, which then rises by what the gap exceeds the tolerance."""
        method, pulls = batch.clients[0].settings, []
        for z, client in zip(batch.each(logits), batch.clients, strict=True):
            pulls.append(client._multipliers @ (client._coefficients @ torch.sigmoid(z)).abs())
            excess = client._gaps(z.detach()) - method.tolerance
            client._multipliers = (client._multipliers + method.step * excess).clamp(0.0, method.multiplier_max)
        return super().loss(batch, logits) + sum_up(pulls)

    def _gaps(self, logits: Tensor) -> Tensor:
        """Of true- and of false-positive rates of hard predictions at the training nodes; 0 where a group lacks."""
        return (self._coefficients @ (logits > 0).float()).abs()

    @classmethod
    def scores(cls, batch: Batch[Self], trained: Tensor) -> Sequence[Mapping[str, float | np.ndarray]]:
        pairs = zip(batch.each(batch.logits(trained)), batch.clients, strict=True)
        return [{"score": client._score(client._gaps(z))} for z, client in pairs]

    def scores_untrained(self, local: np.ndarray) -> Mapping[str, float | np.ndarray]:
        return {"score": self._score(torch.zeros(2))}

    def _score(self, gaps: Tensor) -> float:
        known = (self._coefficients != 0).any(dim=1)
        unfair = float(torch.where(known, gaps, torch.full((2,), _UNKNOWN_GAP)).mean())
        return self.settings.sharpness * float(np.clip(1 - unfair, 0, 1))

    def state_dict(self) -> dict[str, Any]:
        kept = {"multipliers": self._multipliers.numpy().copy()} if self.settings.stateful else {}
        return super().state_dict() | kept

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._multipliers = torch.tensor(state.get("multipliers", [0.0, 0.0]), dtype=torch.float32)
