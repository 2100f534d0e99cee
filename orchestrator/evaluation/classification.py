"""Node classification as clients report it: confusion tables of their own nodes, and the means that these give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

__all__ = ["CLASSIFICATION_METRICS", "ClientsEvaluation", "confusion", "summarise"]

CLASSIFICATION_METRICS = ("accuracy", "macro_f1")


def confusion(labels: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """How many nodes of class r were taken for class c: int64, shape (C, C).

    Args:
        labels, predicted: integers in [0, C), shape (n,).
    """
    places = labels.astype(np.int64) * classes + predicted
    return np.bincount(places, minlength=classes**2).reshape(classes, classes)


@dataclass(frozen=True)
class ClientsEvaluation:
    """Means over the clients that have a node in the mask, every client counting alike, as FED-PUB reports them.

    Attributes:
        accuracy: share of nodes whose predicted class is the label.
        macro_f1: mean of ``2 TP / (2 TP + FP + FN)`` over the classes among a client's labels or predictions.
        counts: ``clients`` and ``nodes`` that were evaluated.
        undefined: why a metric is None.
    """

    accuracy: float | None
    macro_f1: float | None
    counts: Mapping[str, int]
    undefined: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain containers, ready for JSON."""
        return asdict(self)


def summarise(tables: Sequence[np.ndarray]) -> ClientsEvaluation:
    """From one table a client, shape (C, C); clients without nodes are left out, and counted by their absence."""
    kept = [table for table in tables if table.sum()]
    counts = {"clients": len(kept), "nodes": int(sum(table.sum() for table in kept))}
    if not kept:
        return ClientsEvaluation(None, None, counts, dict.fromkeys(CLASSIFICATION_METRICS, "no client has such nodes"))
    accuracies = [table.trace() / table.sum() for table in kept]
    return ClientsEvaluation(float(np.mean(accuracies)), float(np.mean([_macro_f1(table) for table in kept])), counts)


def _macro_f1(table: np.ndarray) -> float:
    appearances = table.sum(axis=0) + table.sum(axis=1)
    present = appearances > 0
    return float(np.mean(2 * np.diag(table)[present] / appearances[present]))
