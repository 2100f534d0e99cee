"""What a federated method is on the client's side; the engine and the round loop know no more than this."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

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
    """One client: its graph and its training state. Created once, asked to train whenever it is in the cohort."""

    @abstractmethod
    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        """Args: graph: the client's own subgraph; client: its number, from which its seeds derive."""

    @abstractmethod
    def train(self, parameters: np.ndarray) -> LocalUpdate:
        """Train from the released global model (float64, shape (d,))."""

    @classmethod
    def train_together(cls, clients: Sequence[Self], parameters: np.ndarray) -> list[LocalUpdate]:
        """What `train` of each of these distinct clients gives, up to rounding; a method may do it in one pass."""
        return [client.train(parameters) for client in clients]

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """All that the next `train` depends on besides its argument: numbers, and arrays.

        A name stands for the same type and shape in all clients of a run; a client may lack one.
        """

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, in this or another process."""
