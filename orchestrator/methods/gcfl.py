"""GCFL's client (Xie et al., NeurIPS 2021): clients whose updates point the same way share a model.

The paper's server sees all updates and splits a cluster in two along their cosines. Here the split is soft and nobody
sees it: a client's score is a *sketch* of its update u_i, the difference that its last training made,

    e_i = R u_i / ||R u_i||,    R a public random matrix, m times d,

and the personal rule of FED-PUB gives client i the mean of the trained models under weights proportional to
exp(tau e_i . e_j), with e_i . e_i = 1. R is a count sketch (Charikar, Chen, Farach-Colton, ICALP 2002): every entry
goes into one of m places with a random sign, so that R u . R v is an unbiased estimate of u . v, whose standard
deviation is at most sqrt(2 / m) ||u|| ||v||.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Self

import numpy as np
from torch import Tensor

from orchestrator.config import Config
from orchestrator.graphs.graph import Graph
from orchestrator.methods.adam_training import Batch
from orchestrator.methods.gcfl_settings import GCFLSettings
from orchestrator.methods.local_only import Alone
from orchestrator.seeding import seeded_generator

__all__ = ["GCFL", "sketch"]


@lru_cache(maxsize=2)
def _places_and_signs(size: int, length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Of every entry of a vector, int64 and float64, shape (size,); a function of the arguments alone."""
    rng = seeded_generator(seed, "sketch of updates", size, length)
    return rng.integers(0, length, size), rng.choice([-1.0, 1.0], size)


def sketch(update: np.ndarray, length: int, seed: int) -> np.ndarray:
    """R u scaled to length 1, float64, shape (length,); 0 where R u is. Args: update: float64, shape (d,)."""
    places, signs = _places_and_signs(len(update), length, seed)
    found = np.bincount(places, signs * update, minlength=length)
    norm = np.linalg.norm(found)
    return found / norm if norm > 0 else found


class GCFL(Alone):
    """Scores: ``embedding``, float64, shape (m,), of Euclidean norm 1; 0 of a client that has no training nodes.

    Until the first model arrives, the personal one is the global one that everybody starts from.
    """

    settings: GCFLSettings

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        super().__init__(graph, config, client)
        self._begun = np.zeros(0)

    @classmethod
    def start(cls, batch: Batch[Self], parameters: np.ndarray, noises: Sequence[np.random.Generator]) -> np.ndarray:
        starts = super().start(batch, parameters, noises)
        for client, row in zip(batch.clients, starts, strict=True):
            client._begun = row
        return starts

    @classmethod
    def scores(cls, batch: Batch[Self], trained: Tensor) -> list[Mapping[str, np.ndarray]]:
        ends = trained.double().numpy()
        return [
            {"embedding": client._sketch(client._begun - end)} for client, end in zip(batch.clients, ends, strict=True)
        ]

    def scores_untrained(self, local: np.ndarray) -> Mapping[str, np.ndarray]:
        return {"embedding": np.zeros(self.settings.sketch)}

    def _sketch(self, update: np.ndarray) -> np.ndarray:
        return sketch(update, self.settings.sketch, self.config.seed)

    def receive(self, parameters: np.ndarray) -> None:
        self._own = parameters.copy()
