"""Utility and fairness of a global model on the global graph (SaFeGNN, section 6.1).

Whoever calls this holds the whole graph; evaluation is outside the threat model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from orchestrator.config import ModelConfig
from orchestrator.errors import DataError
from orchestrator.graphs.graph import Graph
from orchestrator.models import create_network

__all__ = ["METRICS", "Evaluation", "Evaluator", "evaluate", "metric_names", "moving_average"]

METRICS = ("accuracy", "auc", "delta_sp", "delta_eo")


@dataclass(frozen=True)
class Evaluation:
    """The metrics over the nodes of one mask; a metric that is not defined there is None, never 0 or NaN.

    Attributes:
        accuracy: share of nodes whose hard prediction, logit > 0, is the label.
        auc: area under the ROC curve of the logits.
        delta_sp: statistical parity gap, ``|P(yhat=1 | s=1) - P(yhat=1 | s=0)|``.
        delta_eo: equal opportunity gap, the same among nodes with y = 1.
        counts: ``nodes``, ``positives``, and both per group: ``nodes_s0``, ``positives_s0``, ``nodes_s1``, ...
        undefined: the reason for each metric that is None.
    """

    accuracy: float | None
    auc: float | None
    delta_sp: float | None
    delta_eo: float | None
    counts: Mapping[str, int]
    undefined: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain containers, ready for JSON."""
        return asdict(self)


def evaluate(logits: np.ndarray, labels: np.ndarray, sensitive: np.ndarray) -> Evaluation:
    """Metrics over all given nodes, which are those of one mask.

    =========================================  ============================
    edge case                                  undefined
    =========================================  ============================
    no nodes, or a logit is NaN or infinite    all
    labels of one class only                   auc
    a group without nodes                      delta_sp, delta_eo
    a group without positives                  delta_eo
    =========================================  ============================

    Args:
        logits, labels, sensitive: shape (n,); labels and sensitive of 0 and 1.
    """
    positive, groups = labels == 1, {g: sensitive == g for g in (0, 1)}
    counts = {"nodes": len(labels), "positives": int(positive.sum())}
    for g, members in groups.items():
        counts[f"nodes_s{g}"] = int(members.sum())
        counts[f"positives_s{g}"] = int((members & positive).sum())

    values: dict[str, float] = {}
    undefined: dict[str, str] = {}
    predicted = logits > 0
    if not len(labels):
        undefined = dict.fromkeys(METRICS, "no nodes")
    elif not np.isfinite(logits).all():
        undefined = dict.fromkeys(METRICS, "a logit is not finite")
    else:
        values["accuracy"] = float((predicted == positive).mean())
        if counts["positives"] in (0, counts["nodes"]):
            undefined["auc"] = f"all labels are {int(counts['positives'] > 0)}"
        else:
            values["auc"] = float(roc_auc_score(positive, logits))
        for metric, among, what in (("delta_sp", True, "nodes"), ("delta_eo", positive, "positives")):
            empty = [g for g in (0, 1) if not counts[f"{what}_s{g}"]]
            if empty:
                undefined[metric] = f"no {what} with s = {' or s = '.join(map(str, empty))}"
            else:
                rates = [predicted[members & among].mean() for members in groups.values()]
                values[metric] = float(abs(rates[1] - rates[0]))
    return Evaluation(**{metric: values.get(metric) for metric in METRICS}, counts=counts, undefined=undefined)


class Evaluator:
    """Evaluates parameter vectors on one graph, whose tensors are built once.

    Where clients scale features by themselves, the evaluator does too, as whoever predicts: over all of its nodes.

    Raises:
        DataError: on construction, for a graph without two classes and a sensitive attribute.
    """

    def __init__(self, graph: Graph, config: ModelConfig) -> None:
        if graph.classes != 2 or graph.sensitive is None:
            raise DataError(
                f"{graph.name}: fairness on the whole graph needs two classes and a sensitive attribute; "
                "set evaluation.where to clients"
            )
        self._graph, self._sensitive = graph.scaled_to_predict(), graph.sensitive
        self._network = create_network(graph.num_features, graph.classes, config)
        self._tensors = self._network.tensors(self._graph)

    def logits(self, parameters: np.ndarray) -> np.ndarray:
        """Of class 1 against class 0; float32, shape (n,), without dropout. Args: parameters: float64, shape (d,)."""
        with torch.no_grad():
            logits = self._network.logits(torch.tensor(parameters, dtype=torch.float32)[None], self._tensors)
        return (logits if logits.ndim == 1 else logits[:, 1] - logits[:, 0]).numpy()

    def evaluate(self, parameters: np.ndarray, masks: Sequence[str] = ("val", "test")) -> dict[str, Evaluation]:
        """One `Evaluation` per mask of the graph: ``train``, ``val``, ``test``."""
        logits = self.logits(parameters)
        result = {}
        for name in masks:
            mask = getattr(self._graph, name)
            result[name] = evaluate(logits[mask], self._graph.labels[mask], self._sensitive[mask])
        return result


def metric_names(evaluation: Mapping[str, Any]) -> list[str]:
    """The metrics among the entries of an evaluation as `metrics.jsonl` has it, in their order."""
    return [name for name in evaluation if name not in ("counts", "undefined")]


def moving_average(values: Sequence[float | None], window: int = 20) -> list[float | None]:
    """Trailing mean over the last ``window`` entries (SaFeGNN's MA-20); undefined entries are left out.

    The first entries average over what there is. A window without any defined value gives None.
    """
    if window < 1:
        raise ValueError(f"expected window >= 1, got {window}")
    averages: list[float | None] = []
    for end in range(1, len(values) + 1):
        defined = [value for value in values[max(0, end - window) : end] if value is not None]
        averages.append(sum(defined) / len(defined) if defined else None)
    return averages
