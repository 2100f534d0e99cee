"""Plain answers for the head of a report: learned at all, one class only, fairer than the baseline, private."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from orchestrator.evaluation.group_table import GAPS
from orchestrator.experiments.paired import Paired
from orchestrator.page.record import Record

__all__ = ["NAMES", "Verdict", "chance", "compared", "learned", "majority", "one_class", "privacy"]

NAMES = {
    "accuracy": "accuracy",
    "auc": "AUC",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro-F1",
    "delta_sp": "ΔSP",
    "delta_eo": "ΔEO",
}

_NORMAL = 1.96


class Verdict(NamedTuple):
    """An answer. Attributes: kind: for sign and colour; short: a badge; why: the figures behind it."""

    kind: Literal["good", "bad", "plain"]
    short: str
    why: str


def majority(evaluation: Mapping[str, Any]) -> float | None:
    """The accuracy of giving every node the more frequent of two classes; None where counts do not say."""
    counts = evaluation.get("counts") or {}
    nodes, positives = counts.get("nodes"), counts.get("positives")
    return max(positives, nodes - positives) / nodes if nodes and positives is not None else None


def chance(evaluation: Mapping[str, Any]) -> tuple[str, float, float] | None:
    """A metric, what guessing gives of it, and 1.96 standard deviations of that on as many nodes.

    AUC: the variance of Mann and Whitney's statistic where scores say nothing, (n0 + n1 + 1)/(12 n0 n1). Where AUC is a
    mean over clients, or there is none, balanced accuracy: at most (1/n0 + 1/n1)/16. Clients that share nodes count for
    as many as `nodes_effective` says. None of other than two classes, whose counts are not recorded, and of one class.
    """
    counts = evaluation.get("counts") or {}
    nodes, ones = counts.get("nodes") or 0, counts.get("positives")
    if ones is None or not 0 < ones < nodes:
        return None
    zeros, share = nodes - ones, (counts.get("nodes_effective") or nodes) / nodes
    if share <= 0:
        return None
    if evaluation.get("auc") is not None and "clients" not in counts:
        return "auc", 0.5, _NORMAL * math.sqrt((nodes + 1) / (12 * ones * zeros) / share)
    if evaluation.get("balanced_accuracy") is not None:
        return "balanced_accuracy", 0.5, _NORMAL * math.sqrt((1 / ones + 1 / zeros) / 16 / share)
    return None


def learned(record: Record) -> Verdict:
    """Whether the last model does better on the test nodes than guessing."""
    evaluation = record.last()
    if not evaluation:
        why = "its metrics are withheld or none were taken" if record.rounds else "no round was completed"
        return Verdict("plain", "learning: not shown", why)
    found = chance(evaluation)
    if found is None:
        return Verdict("plain", "learning: no test against chance", "the counts that it takes are not recorded")
    name, level, room = found
    value = evaluation[name]
    why = f"test {NAMES[name]} {value:.3f} in the last round; guessing gives {level:.2f} ± {room:.3f} on so many nodes"
    if value - level > room:
        return Verdict("good", "above chance", why)
    return Verdict("bad", "not told from chance", why)


def one_class(record: Record) -> Verdict | None:
    """A warning where a model gives every test node the same class: its gaps are 0, and mean nothing."""
    evaluation = record.last()
    gaps = evaluation.get("gaps") or {}
    rates = [facts.get(f"rate_s{g}") for facts in gaps.values() for g in (0, 1) if "classes_compared" not in facts]
    known = [rate for rate in rates if rate is not None]
    constant = bool(known) and (all(rate == 0 for rate in known) or all(rate == 1 for rate in known))
    balanced = evaluation.get("balanced_accuracy")
    flat = balanced is not None and abs(balanced - 1 / record.classes) < 1e-9
    flat = flat and not any(evaluation.get(gap) for gap in GAPS)
    if (constant and record.classes == 2) or (flat and not known):
        return Verdict(
            "bad", "one class for every node", "balanced accuracy is that of a constant; its gaps mean nothing"
        )
    return None


def compared(name: str, baseline: str, gap: str, paired: Paired, seeds: int) -> Verdict:
    """Whether an arm's gap is smaller, or its utility larger, than the baseline's. Args: gap: a gap, or a metric."""
    label, what = NAMES[gap], f"{seeds} seed{'s' if seeds != 1 else ''}, test nodes, mean of the last rounds"
    if paired.mean is None:
        return Verdict("plain", f"{name}: {label} cannot be compared", "it is not defined in every run")
    why = f"{name} less {baseline}: {paired} ({what})"
    if paired.low is None or paired.high is None:
        return Verdict("plain", f"{name}: {label} {paired.mean:+.3f}, one seed: no interval", why)
    better, worse = ("fairer", "less fair") if gap in GAPS else ("better", "worse")
    if paired.high < 0 or paired.low > 0:
        good = (paired.high < 0) == (gap in GAPS)
        return Verdict(
            "good" if good else "bad", f"{name}: {better if good else worse} than {baseline} by {label}", why
        )
    return Verdict("plain", f"{name}: {label} not told from {baseline}'s", why)


def privacy(records: Sequence[Record]) -> Verdict:
    """What is promised of a client's whole data, in one badge."""
    said = [record.privacy for record in records if record.privacy is not None]
    if not said:
        reasons = sorted({record.no_epsilon for record in records if record.no_epsilon})
        why = f"no epsilon is stated: {reasons[0]}" if reasons else "released models have no noise"
        return Verdict("bad", "no differential privacy", why)
    worst = max(said, key=lambda own: own["epsilon"])
    simulated = "simulated; " if worst["simulated"] else ""
    why = f"{simulated}{worst['adjacency']}, accountant {worst['accountant']}, to an outsider; of a client's whole data"
    short = f"ε = {worst['epsilon']:.3g} at δ = {worst['delta']:g}"
    if len(said) < len(records):
        return Verdict("plain", f"{short}, of {len(said)} of {len(records)} runs", why)
    return Verdict("plain", short, why)
