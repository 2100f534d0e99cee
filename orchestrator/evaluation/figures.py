"""What is said of a model's predictions: utility, the gaps between two groups, and of how many nodes they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from orchestrator.evaluation.group_table import GAPS, Gap, GroupTable

__all__ = ["Evaluation", "metric_names", "nothing", "of_clients", "of_nodes", "of_sum"]

_NO_METRICS = ("gaps", "counts", "undefined")


@dataclass(frozen=True)
class Evaluation:
    """The metrics over the nodes of one mask; a metric that is not defined there is None, never 0 or NaN.

    Attributes:
        metrics: by name. `accuracy`: share of nodes whose predicted class is the label. `auc`, `balanced_accuracy`,
            `macro_f1`: see `orchestrator.evaluation.ranking` and `GroupTable`. `delta_sp`: statistical parity gap,
            ``|P(yhat=1 | s=1) - P(yhat=1 | s=0)|``. `delta_eo`: equal opportunity gap, the same among nodes with
            y = 1. Of several classes both are the largest over the classes c, of ``yhat = c`` (Denis et al., JMLR 25,
            2024), and of that among nodes with y = c (Putzel and Lee, 2022, term by term).
        gaps: by gap, how sure it is: `low`, `high`, ends of its 95 % interval; `n_s0`, `n_s1`, nodes of each group
            that it compares, of `delta_eo` those with y = 1, and `rate_s0`, `rate_s1`, the shares of them that are
            taken for the positive class; of several classes `class`, which differs most and has
            these nodes, and `classes_compared`, which both groups have. Of clients also `clients` that have the gap,
            `clients_lacking` a group, `worst_n_s0` and `worst_n_s1`, the nodes behind the worst.
        counts: `nodes`, and per group: `nodes_s0`, `nodes_s1`; of two classes the same of `positives`. Of
            clients `clients` that have nodes, and `nodes_effective`, for how many nodes the intervals are.
        undefined: the reason for each metric that is None.
    """

    metrics: Mapping[str, float | None]
    gaps: Mapping[str, Mapping[str, float | None]]
    counts: Mapping[str, int]
    undefined: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain containers, ready for JSON; the metrics first."""
        gaps = {name: dict(facts) for name, facts in self.gaps.items()}
        return {**self.metrics, "gaps": gaps, "counts": dict(self.counts), "undefined": dict(self.undefined)}


def metric_names(evaluation: Mapping[str, Any]) -> list[str]:
    """The metrics among the entries of an evaluation as `metrics.jsonl` has it, in their order."""
    return [name for name in evaluation if name not in _NO_METRICS]


def of_nodes(table: GroupTable, auc: float | None, finite: bool = True) -> Evaluation:
    """Of one model on the nodes of one table.

    =========================================  ============================
    edge case                                  undefined
    =========================================  ============================
    no nodes, or a logit is NaN or infinite    all
    labels of one class only                   auc
    a group without nodes                      delta_sp, delta_eo
    a group without positives                  delta_eo
    =========================================  ============================

    Args:
        auc: None where the nodes are of one class.
        finite: whether all logits are.
    """
    gaps = _gaps(table)
    values: dict[str, float | None] = {"accuracy": float(table.accuracy), "auc": auc}
    values["balanced_accuracy"] = float(table.balanced_accuracy) if table.nodes else None
    values |= {name: gap.size for name, gap in gaps.items()}
    if finite and table.nodes:
        undefined = {name: _lacking(table, name) for name, gap in gaps.items() if gap.size is None}
        if auc is None:
            undefined = {"auc": f"all labels are {int(table.confusion.sum(axis=1).argmax())}", **undefined}
    else:
        undefined = dict.fromkeys(values, "a logit is not finite" if table.nodes else "no nodes")
        gone: dict[str, Any] = {"size": None, "low": None, "high": None, "rates": (None, None)}
        gaps = {name: replace(gap, **gone) for name, gap in gaps.items()}
    metrics = {name: None if name in undefined else value for name, value in values.items()}
    return Evaluation(metrics, {name: _facts(table, gap) for name, gap in gaps.items()}, _counts(table), undefined)


def of_clients(tables: Sequence[np.ndarray], aucs: Sequence[float], independent: float = 1.0) -> Evaluation:
    """Of every client's model on its own nodes.

    Accuracy, macro-F1 and AUC are means over the clients that have nodes, for AUC of more than one class, and every
    client counts alike, as FED-PUB reports them. The gaps are those of all clients' nodes together; `delta_sp_mean`
    and `delta_sp_worst` are over the clients that have both groups, and undefined where these are fewer than two.

    Args:
        tables: of each client, int64, shape (G, C, C).
        aucs: of each client; NaN: none.
        independent: the share of all clients' nodes that the gaps' intervals count, where clients share nodes.
    """
    each = GroupTable(np.stack(tables))
    union, kept = each.total(), each.nodes > 0
    metrics: dict[str, float | None] = {"accuracy": None, "macro_f1": None, "auc": None, "balanced_accuracy": None}
    undefined = dict.fromkeys(metrics, "no client has such nodes")
    if kept.any():
        metrics |= {"accuracy": float(each.accuracy[kept].mean()), "macro_f1": float(each.macro_f1[kept].mean())}
        metrics["balanced_accuracy"] = float(union.balanced_accuracy)
        undefined = {"auc": "no client has nodes of two classes"}
    if not np.isnan(aucs).all():
        metrics["auc"] = float(np.nanmean(aucs))
        undefined.pop("auc")
    facts = {}
    for name, gap in _gaps(union, independent).items():
        sizes = each.sizes(name)
        sizes, worst = sizes[~np.isnan(sizes)], each.largest(name)
        metrics |= {name: gap.size, f"{name}_mean": None, f"{name}_worst": None}
        if len(sizes) > 1:
            metrics |= {f"{name}_mean": float(sizes.mean()), f"{name}_worst": float(sizes.max())}
        else:
            few = f"fewer than two clients have {_among(union, name)} of both groups"
            undefined |= {f"{name}_mean": few, f"{name}_worst": few}
        if gap.size is None:
            undefined[name] = _lacking(union, name)
        behind = (None, None) if worst is None else GroupTable(each.counts[worst]).gap(name).nodes
        facts[name] = {
            **_facts(union, gap),
            "clients": len(sizes),
            "clients_lacking": len(tables) - len(sizes),
            "worst_n_s0": behind[0],
            "worst_n_s1": behind[1],
        }
    counts = {"clients": int(kept.sum()), **_counts(union)}
    counts["nodes_effective"] = round(independent * counts["nodes"])
    return Evaluation(metrics, facts, counts, undefined)


def of_sum(
    table: GroupTable, auc: float | None, no_auc: str, independent: float = 1.0, noise_stddev: float = 0.0
) -> Evaluation:
    """Of all clients' nodes together, where nobody knows a single client's: accuracy, macro-F1 and AUC are of these.

    Args:
        table: the sum of the clients' tables; with noise, at least 0.
        no_auc: why there is none, where there is none.
        independent: as for `of_clients`.
        noise_stddev: of the noise on every count.
    """
    found = _gaps(table, independent, noise_stddev)
    metrics: dict[str, float | None] = dict.fromkeys(("accuracy", "macro_f1", "auc", "balanced_accuracy"))
    undefined = dict.fromkeys(metrics, "no client has such nodes")
    if table.nodes > 0:
        metrics |= {"accuracy": float(table.accuracy), "macro_f1": float(table.macro_f1), "auc": auc}
        metrics["balanced_accuracy"] = float(table.balanced_accuracy)
        undefined = {"auc": no_auc} if auc is None else {}
    for name, gap in found.items():
        metrics |= {name: gap.size, f"{name}_mean": None, f"{name}_worst": None}
        undefined |= dict.fromkeys((f"{name}_mean", f"{name}_worst"), "tables are summed: no client's own is known")
        if gap.size is None:
            undefined[name] = _lacking(table, name)
    counts = _counts(table)
    counts["nodes_effective"] = round(independent * counts["nodes"])
    return Evaluation(metrics, {name: _facts(table, gap) for name, gap in found.items()}, counts, undefined)


def nothing(like: Evaluation, reason: str) -> Evaluation:
    """The same metrics, all undefined for one reason. Args: like: of no nodes."""
    return replace(like, metrics=dict.fromkeys(like.metrics), undefined=dict.fromkeys(like.metrics, reason))


def _gaps(table: GroupTable, independent: float = 1.0, noise_stddev: float = 0.0) -> dict[str, Gap]:
    return {name: table.gap(name, independent, noise_stddev) for name in GAPS if table.groups == 2}


def _facts(table: GroupTable, gap: Gap) -> dict[str, float | None]:
    facts: dict[str, float | None] = {"low": gap.low, "high": gap.high, "n_s0": gap.nodes[0], "n_s1": gap.nodes[1]}
    facts |= {"rate_s0": gap.rates[0], "rate_s1": gap.rates[1]}
    if table.classes > 2:
        facts |= {"class": gap.of_class, "classes_compared": gap.compared}
    return facts


def _among(table: GroupTable, name: str) -> str:
    """What a gap compares."""
    return "positives" if name == "delta_eo" and table.classes == 2 else "nodes"


def _lacking(table: GroupTable, name: str) -> str:
    """Why a table has no such gap."""
    what = _among(table, name)
    among = table.counts[:, 1] if what == "positives" else table.counts
    empty = [str(group) for group, nodes in enumerate(among) if not nodes.any()]
    return f"no {what} with s = {' or s = '.join(empty)}" if empty else "no class has nodes of both groups"


def _counts(table: GroupTable) -> dict[str, int]:
    """Nodes, and of two classes those with y = 1, in all and by group."""
    what = {"nodes": table.counts}
    if table.classes == 2:
        what["positives"] = table.counts[:, 1]
    counts = {name: int(among.sum()) for name, among in what.items()}
    if table.groups == 2:
        counts |= {f"{name}_s{g}": int(among[g].sum()) for g in (0, 1) for name, among in what.items()}
    return counts
