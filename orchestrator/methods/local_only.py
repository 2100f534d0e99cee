"""Training alone: every client keeps its own model, and nothing leaves it. The baseline of personalised methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from orchestrator.config import Config
from orchestrator.graphs.graph import Graph
from orchestrator.methods.adam_training import AdamTraining, Batch

__all__ = ["Alone"]


class Alone(AdamTraining):
    """Continues from its own model; the global one is where everybody starts."""

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        super().__init__(graph, config, client)
        self._own: np.ndarray | None = None

    @classmethod
    def start(cls, batch: Batch[Self], parameters: np.ndarray, noises: Sequence[np.random.Generator]) -> np.ndarray:
        return np.stack([client.start_untrained(parameters) for client in batch.clients])

    def start_untrained(self, parameters: np.ndarray) -> np.ndarray:
        return (parameters if self._own is None else self._own).copy()

    def finish(self, trained: np.ndarray) -> None:
        self._own = trained.copy()

    def predictor(self, parameters: np.ndarray, own: bool) -> Tensor:
        return self._predicting(self._own if own and self._own is not None else parameters)

    def _predicting(self, model: np.ndarray) -> Tensor:
        """The network that predicts, float32, shape (d,)."""
        return torch.tensor(model, dtype=torch.float32)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | ({} if self._own is None else {"own": self._own.copy()})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._own = np.array(state["own"], np.float64) if "own" in state else None
