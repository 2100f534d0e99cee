"""Results: metrics beside what chance gives, curves, the plane of utility and gaps, and paired differences."""

from __future__ import annotations

import math
from typing import Any

from orchestrator.evaluation.group_table import GAPS
from orchestrator.evaluation.metrics import moving_average
from orchestrator.experiments.paired import Paired
from orchestrator.experiments.tables import Spread, metric
from orchestrator.page.arms import Arms
from orchestrator.page.record import Record
from orchestrator.page.svg import Charts, Interval, Line, Track
from orchestrator.page.verdicts import NAMES, chance, majority

__all__ = ["results_part"]

WINDOW = 20


def results_part(arms: Arms, charts: Charts) -> dict[str, Any]:
    """Metrics, curves, the plane and paired differences; empty where nothing may be shown."""
    shown = [record for record in arms.records if record.last()]
    if not shown:
        return {}
    part: dict[str, Any] = {"curves": _curves(arms, charts), "plane": _plane(arms, charts), "groups": _groups(arms)}
    if not arms.several:
        return part | {"table": _last_round(shown[0]), "window": min(WINDOW, shown[0].completed)}
    return part | _comparison(arms, charts)


def _last_round(record: Record) -> list[dict[str, Any]]:
    """A row a metric of a single run."""
    test, validation, rows = record.last("test"), record.last("val"), []
    levels = {"accuracy": majority(test), "auc": 0.5, "balanced_accuracy": 1 / record.classes}
    found = chance(test)
    for name in [name for name in NAMES if name in test]:
        facts = (test.get("gaps") or {}).get(name) or {}
        interval = "" if facts.get("low") is None else f"{facts['low']:.3f} to {facts['high']:.3f}"
        level = levels.get(name)
        beside = "" if level is None else f"{'majority class' if name == 'accuracy' else 'chance'} {level:.3f}"
        if found is not None and found[0] == name:
            beside += f" ± {found[2]:.3f}"
        rows.append(
            {
                "name": NAMES[name],
                "test": metric(test[name]),
                "interval": interval,
                "beside": beside,
                "validation": metric(validation.get(name)),
                "mean": metric(moving_average(record.series("test", name))[-1]),
                "why": (test.get("undefined") or {}).get(name, ""),
            }
        )
    return rows


def _comparison(arms: Arms, charts: Charts) -> dict[str, Any]:
    """A row an arm, and what it has more than the baseline."""
    names, rows = arms.metrics(), []
    for arm in arms.runs:
        cells = {NAMES[name]: str(Spread.of([*arms.values(arm, name).values()])) for name in names}
        rows.append({"arm": arm, "seeds": len(arms.runs[arm]), "cells": cells, "baseline": arm == arms.baseline})
    differences, figures = [], []
    if not arms.unpaired:
        for arm in [arm for arm in arms.runs if arm != arms.baseline]:
            differences += [_difference(arm, name, *arms.paired(arm, name)) for name in names]
        for name in names:
            rows_of = [
                Interval(arm, pair.mean, pair.low, pair.high, str(pair))
                for arm in arms.runs
                if arm != arms.baseline and (pair := arms.paired(arm, name)[0]).mean is not None
            ]
            if rows_of and name in ("auc", "accuracy", *GAPS):
                better = "lower is fairer" if name in GAPS else "higher is better"
                title = f"Difference in {NAMES[name]} to {arms.baseline}, 95 % interval over seeds"
                figures.append(charts.intervals(title, rows_of, f"{NAMES[name]} less {arms.baseline}'s; {better}"))
    return {
        "arms": rows,
        "differences": differences,
        "forest": figures,
        "names": [NAMES[name] for name in names],
        "window": min(WINDOW, max(record.completed for record in arms.records)),
        "baseline": arms.baseline,
        "unpaired": arms.unpaired,
        "floors": _floors(arms),
    }


def _difference(arm: str, name: str, pair: Paired, seeds: int) -> dict[str, Any]:
    """A row of the table of differences."""
    row = {"arm": arm, "name": NAMES[name], "seeds": seeds, "mean": "undefined", "interval": "–", "so": "–"}
    if pair.mean is None:
        return row
    row["mean"] = f"{pair.mean:+.4f}"
    if pair.low is None or pair.high is None:
        return {**row, "so": "one pair: nobody can tell"}
    told = pair.low > 0 or pair.high < 0
    better = (pair.mean < 0) == (name in GAPS)
    so = ("fairer" if name in GAPS else "better") if better else ("less fair" if name in GAPS else "worse")
    return {**row, "interval": f"{pair.low:+.4f} to {pair.high:+.4f}", "so": so if told else "not told from noise"}


def _floors(arms: Arms) -> list[str]:
    """What chance makes of a gap on so few nodes, of the baseline's last round."""
    from orchestrator.experiments.fairness import Arm

    records = [record.rounds for record in arms.runs[arms.baseline].values() if record.shown and record.last()]
    if not records:
        return []
    arm, said = Arm.of(arms.baseline, records), []
    for gap in GAPS:
        if gap in arm.nodes and (floor := arm.chance(gap)) is not None and (nodes := arm.nodes[gap]) is not None:
            said.append(
                f"{NAMES[gap]} compares {nodes[0]} and {nodes[1]} nodes: two equal rates of one half differ there by "
                f"{floor:.3f} in the mean, by chance alone"
            )
    return said


def _curves(arms: Arms, charts: Charts) -> list[Any]:
    """A chart a metric, test nodes: the moving mean; beneath it the raw values of one run, or the band of several."""
    drawn = []
    for name in arms.metrics():
        lines = [line for arm in arms.runs if (line := _line(arms, arm, name)) is not None]
        if not lines:
            continue
        first, marks = next(record for record in arms.records if record.last()).last(), []
        if name == "accuracy" and (level := majority(first)) is not None:
            marks.append((level, "majority class"))
        elif name in ("auc", "balanced_accuracy"):
            marks.append((0.5 if name == "auc" else 1 / arms.records[0].classes, "chance"))
        title = f"{NAMES[name]} on the test nodes over the rounds"
        drawn.append(charts.lines(title, lines, "round", NAMES[name], marks, from_zero=name in GAPS))
    return drawn


def _line(arms: Arms, arm: str, name: str) -> Line | None:
    runs = [record for record in arms.runs[arm].values() if record.shown]
    series = [record.series("test", name) for record in runs]
    series = [values for values in series if any(value is not None for value in values)]
    if not series:
        return None
    length = min(map(len, series))
    rounds = [row["round"] for row in runs[0].rounds][:length]
    if len(series) > 1:
        smooth = [moving_average(values[:length]) for values in series]
        spreads = [Spread.of(column) for column in zip(*smooth, strict=True)]
        middle = [spread.mean for spread in spreads]
        least = 0.0 if name in GAPS else -math.inf  # a gap is a size
        low = [None if s.mean is None or s.sd is None else max(least, s.mean - s.sd) for s in spreads]
        high = [None if s.mean is None or s.sd is None else s.mean + s.sd for s in spreads]
        return Line(arm, rounds, middle, low, high)
    smooth_one = moving_average(series[0])
    kept = smooth_one if any(value is not None for value in smooth_one) else series[0]
    if arms.several or name not in GAPS:
        return Line(arm, rounds, kept, raw=() if arms.several else series[0])
    facts = [((row.get("test") or {}).get("gaps") or {}).get(name) or {} for row in runs[0].rounds]
    return Line(arm, rounds, kept, [f.get("low") for f in facts], [f.get("high") for f in facts], raw=series[0])


def _plane(arms: Arms, charts: Charts) -> list[Any]:
    """Utility against each gap: where an arm ends, and the way of a single run."""
    utility = "auc" if "auc" in arms.metrics() else "accuracy"
    drawn = []
    for gap in [gap for gap in GAPS if gap in arms.metrics()]:
        tracks = []
        for arm, own in arms.runs.items():
            x, y = ([*arms.values(arm, name).values()] for name in (gap, utility))
            ends = [(a, b) for a, b in zip(x, y, strict=True) if a is not None and b is not None]
            if not ends or len(ends) < len(x):
                continue
            (mx, sx), (my, sy) = Spread.of([a for a, _ in ends]), Spread.of([b for _, b in ends])
            assert mx is not None and my is not None
            way: list[tuple[float, float]] = []
            if len(own) == 1:
                pair = [moving_average(next(iter(own.values())).series("test", name)) for name in (gap, utility)]
                way = [(a, b) for a, b in zip(*pair, strict=True) if a is not None and b is not None]
            spread = None if sx is None or sy is None else (sx, sy)
            dots = ends if len(ends) > 1 else []
            tracks.append(Track(arm if len(arms.runs) > 1 else "last rounds", (mx, my), way, spread, dots))
        title = f"{NAMES[utility]} against {NAMES[gap]}, test nodes; up and left is better"
        marks = [(0.5, "chance")] if utility == "auc" else []
        drawn.append(charts.plane(title, tracks, f"{NAMES[gap]} (lower is fairer)", NAMES[utility], marks))
    return drawn


def _groups(arms: Arms) -> list[dict[str, Any]]:
    """Rates by group with counts, of the last round of each arm's first run."""
    rows = []
    for arm in arms.runs:
        record = arms.first(arm)
        test = record.last()
        names = (record.data or {}).get("groups") or []
        for gap, facts in (test.get("gaps") or {}).items():
            if facts.get("n_s0") is None:
                continue
            what = "taken for positive" if gap == "delta_sp" else "positives found"
            if "class" in facts:
                what = f"taken for class {facts['class']}" if gap == "delta_sp" else f"of class {facts['class']}, found"
            rows.append(
                {
                    "arm": arm if arms.several else "",
                    "gap": NAMES.get(gap, gap),
                    "what": what,
                    "rates": [_share(facts.get(f"rate_s{g}")) for g in (0, 1)],
                    "nodes": [facts[f"n_s{g}"] for g in (0, 1)],
                    "size": metric(test.get(gap)),
                    "interval": "" if facts.get("low") is None else f"{facts['low']:.3f} to {facts['high']:.3f}",
                }
            )
            rows[-1]["groups"] = [f"{names[g]} (s = {g})" if len(names) == 2 else f"s = {g}" for g in (0, 1)]
    return rows


def _share(value: float | None) -> str:
    return "not recorded" if value is None else f"{100 * value:.1f} %"
