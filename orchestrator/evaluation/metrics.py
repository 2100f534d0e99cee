"""Utility and fairness of a global model on the whole graph (SaFeGNN, section 6.1).

Whoever calls this holds the whole graph; evaluation is outside the threat model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from orchestrator.config import ModelConfig
from orchestrator.evaluation.figures import Evaluation, of_nodes
from orchestrator.evaluation.group_table import GroupTable
from orchestrator.evaluation.ranking import auc
from orchestrator.graphs.graph import Graph
from orchestrator.models import create_network

__all__ = ["METRICS", "Evaluator", "evaluate", "moving_average"]

METRICS = ("accuracy", "auc", "delta_sp", "delta_eo")
"""The paper's, of the whole graph, where there is a sensitive attribute; pictures show these."""


def evaluate(logits: np.ndarray, labels: np.ndarray, sensitive: np.ndarray | None) -> Evaluation:
    """Metrics over all given nodes, which are those of one mask.

    Args:
        logits: shape (n, C).
        labels, sensitive: shape (n,); sensitive of 0 and 1, or None.
    """
    finite = bool(np.isfinite(logits).all())
    table = GroupTable.of(sensitive, labels, logits.argmax(axis=1), logits.shape[1])
    return of_nodes(table, auc(logits, labels) if finite else None, finite)


class Evaluator:
    """Evaluates parameter vectors on one graph, whose tensors are built once.

    Where clients scale features by themselves, the evaluator does too, as whoever predicts: over all of its nodes.
    """

    def __init__(self, graph: Graph, config: ModelConfig) -> None:
        self._graph = graph.scaled_to_predict()
        self._network = create_network(graph.num_features, graph.classes, config)
        self._tensors = self._network.tensors(self._graph)

    def logits(self, parameters: np.ndarray) -> np.ndarray:
        """Of every class; float32, shape (n, C), without dropout. Args: parameters: float64, the model's d first."""
        model = torch.tensor(parameters[: self._network.size], dtype=torch.float32)
        with torch.no_grad():
            logits = self._network.logits(model[None], self._tensors)
        return self._network.by_class(logits)

    def evaluate(self, parameters: np.ndarray, masks: Sequence[str] = ("val", "test")) -> dict[str, Evaluation]:
        """One `Evaluation` per mask of the graph: ``train``, ``val``, ``test``."""
        logits, labels, sensitive = self.logits(parameters), self._graph.labels, self._graph.sensitive
        found = {}
        for name in masks:
            mask = getattr(self._graph, name)
            found[name] = evaluate(logits[mask], labels[mask], None if sensitive is None else sensitive[mask])
        return found


def moving_average(values: Sequence[float | None], window: int = 20) -> list[float | None]:
    """Trailing mean over the last ``window`` entries (SaFeGNN's MA-20); undefined entries are left out.

    The first entries average over what there is. A single value is no mean of rounds: a window of several entries
    with fewer than two defined ones gives None.
    """
    if window < 1:
        raise ValueError(f"expected window >= 1, got {window}")
    averages: list[float | None] = []
    for end in range(1, len(values) + 1):
        defined = [value for value in values[max(0, end - window) : end] if value is not None]
        averages.append(sum(defined) / len(defined) if len(defined) >= min(2, window) else None)
    return averages
