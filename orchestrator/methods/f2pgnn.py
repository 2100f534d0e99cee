"""F2PGNN's client (Agrawal et al., AAAI 2024): the group that does better learns less, and noise of the client's own.

    L_g = 1 - beta R_g |P - Q|^(alpha - 1),     R_0 = alpha sgn(P - Q),   R_1 = -R_0

scales what a node of group g adds to the gradient; P and Q are the mean performance of group 0 and group 1 over the
federation, which the ledger beside the model holds. Performance of a node is one less its squared error. Where
``method.local_noise`` is set, a client's whole upload is clipped and noised before it is shared: local differential
privacy, which holds though both servers collude.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Self

import numpy as np
from scipy.special import expit, ndtri

from orchestrator.methods.base import LocalUpdate
from orchestrator.methods.fair_settings import F2PGNNSettings
from orchestrator.methods.fair_training import FairTraining

__all__ = ["F2PGNN"]

_LEAST_SHARE = 0.01


class F2PGNN(FairTraining):
    """The ledger: running means over clients of a node's part in group 0, in group 1, and of its performance there."""

    settings: F2PGNNSettings
    LEDGER = 4

    @classmethod
    def train_together(cls, clients: Sequence[Self], parameters: np.ndarray) -> list[LocalUpdate]:
        updates = super().train_together(clients, parameters)
        method = clients[0].settings
        if method.local_noise == 0 or method.local_clip is None:
            return updates
        stddev = method.local_noise * 2 * method.local_clip  # replacing its data moves an upload by at most 2 C
        return [_noised(update, method.local_clip, stddev) for update in updates]

    def move(self, model: np.ndarray, ledger: np.ndarray) -> np.ndarray:
        """This client's part of the ledger, and the weights of its nodes."""
        nodes, method = self.nodes.numpy(), self.settings
        if not len(nodes):
            return np.zeros(self.LEDGER)
        groups = self.sensitive[nodes] == 1
        factors = self._factors(ledger)
        self.weigh(np.repeat(factors[:, None], 2, axis=1))
        probability = expit(np.diff(self.logits(model, own=False)[nodes].astype(np.float64), axis=1).ravel())
        performance = 1 - (probability - self.positive[nodes]) ** 2
        own = [[(of * group).mean() for group in (~groups, groups)] for of in (np.ones(len(nodes)), performance)]
        return -method.rate * (np.ravel(own) - ledger)

    def _factors(self, ledger: np.ndarray) -> np.ndarray:
        """L of group 0 and of group 1; ones while a group is not known. None is below 0."""
        sizes, sums = ledger[:2], ledger[2:]
        if sizes.min() <= _LEAST_SHARE * max(sizes.sum(), 1e-9):
            return np.ones(2)
        method, (p, q) = self.settings, np.clip(sums / sizes, 0, 1)
        pull = method.scale * method.power * np.sign(p - q) * abs(p - q) ** (method.power - 1)
        return np.maximum(0.0, np.array([1 - pull, 1 + pull]))


def _noised(update: LocalUpdate, bound: float, stddev: float) -> LocalUpdate:
    """The update within the bound, plus Gaussian noise from the operating system's generator."""
    clipped = update.delta * min(1.0, bound / update.norm) if update.norm > 0 else update.delta
    bits = np.frombuffer(os.urandom(8 * len(clipped)), np.uint64) >> np.uint64(11)
    delta = clipped + stddev * ndtri((bits + 0.5) * 2.0**-53)
    return LocalUpdate(delta, float(np.linalg.norm(delta)), update.scores)
