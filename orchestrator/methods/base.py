"""What a federated method is on the client's side; the engine and the round loop know no more than this."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.config import Config
from orchestrator.graphs.graph import Graph

__all__ = ["LocalMethod", "LocalUpdate"]


@dataclass(frozen=True)
class LocalUpdate:
    """What one local training hands to the engine. Plaintext: it never leaves the client's process as it is.

    Attributes:
        delta: float64, shape (d,); w_global - w_local (SaFeGNN, Algorithm 1, line 37).
        norm: its Euclidean norm.
        scores: the secret scalars that the method's aggregation rule takes, by name.
    """

    delta: np.ndarray
    norm: float
    scores: Mapping[str, float]


class LocalMethod(ABC):
    """One client: its graph, its model, its optimiser. Created once, asked to train whenever it is in the cohort."""

    @abstractmethod
    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        """Args: graph: the client's own subgraph; client: its number, from which its seeds derive."""

    @abstractmethod
    def train(self, parameters: np.ndarray) -> LocalUpdate:
        """Train from the released global model (float64, shape (d,))."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """All that the next `train` depends on besides its argument: arrays, numbers and containers of them."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, in this or another process."""
