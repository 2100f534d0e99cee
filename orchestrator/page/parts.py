"""The parts of a report: plain values and charts, which the template lays out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from orchestrator.agreement.from_settings import plan_of
from orchestrator.evaluation.group_table import GAPS
from orchestrator.evaluation.metrics import moving_average
from orchestrator.experiments.paired import Paired
from orchestrator.experiments.paper import PAPER
from orchestrator.experiments.tables import Spread, metric
from orchestrator.page.arms import Arms
from orchestrator.page.limits import assumptions, not_covered
from orchestrator.page.openings import openings, parties
from orchestrator.page.record import Record
from orchestrator.page.svg import Bar, Charts, Interval, Line, Track
from orchestrator.page.verdicts import NAMES, chance, majority
from orchestrator.privacy.plan import VIEWS
from orchestrator.privacy.statement import in_words

__all__ = ["clients_part", "costs_part", "privacy_part", "results_part", "seen_part"]

WINDOW = 20
_OBSERVERS = {
    "outsider": ("an outsider", "sees what is released"),
    "client": ("another client", "knows besides in which rounds it took part itself"),
    "server": ("a server", "knows every cohort, and its own noise"),
}
_SECONDS = {
    "training_seconds": "local training",
    "online_seconds": "aggregation, online",
    "sums_online_seconds": "sums besides, online",
    "preprocessing_seconds": "preprocessing",
    "preprocessing_wait_seconds": "waiting for preprocessing",
    "startup_seconds": "start-up",
}
_BYTES = {
    "upload_bytes_per_client": ("a client to the servers", "upload of an update, both halves"),
    "download_bytes_per_client": ("the servers to a client", "the new model"),
    "online_bytes_server0": ("server 0 to server 1", "online"),
    "online_bytes_server1": ("server 1 to server 0", "online"),
    "preprocessing_bytes_server0": ("server 0 to server 1", "preprocessing"),
    "preprocessing_bytes_server1": ("server 1 to server 0", "preprocessing"),
    "sums_upload_bytes_per_client": ("a client to the servers", "its part of sums besides"),
    "sums_online_bytes_server0": ("server 0 to server 1", "sums besides"),
    "sums_online_bytes_server1": ("server 1 to server 0", "sums besides"),
}


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


def privacy_part(arms: Arms, charts: Charts) -> list[dict[str, Any]]:
    """A block for all arms that promise the same."""
    blocks: dict[str, dict[str, Any]] = {}
    for arm in arms.runs:
        record = arms.first(arm)
        promise = {"words": in_words(record.privacy) if record.privacy else [], "gaps": not_covered(record)}
        key = repr((promise, record.config.engine.name))
        if key in blocks:
            blocks[key]["arms"].append(arm)
            continue
        blocks[key] = {"arms": [arm], **promise, "assumptions": assumptions(record), **_promise(record, charts)}
    return list(blocks.values())


def _promise(record: Record, charts: Charts) -> dict[str, Any]:
    said, config = record.privacy, record.config
    if said is None:
        return {"private": False, "why": record.no_epsilon, "noise": record.private, "withheld": record.withheld}
    plan = plan_of(config).at(said["clip_norm"]).privacy
    assert plan is not None  # else nothing would be said
    budget = config.privacy.epsilon_budget
    facts = {
        "unit": "one client with its whole local data",
        "neighbours (adjacency)": said["adjacency"],
        "δ": f"{said['delta']:g}",
        "accountant": f"{said['accountant']} ({said['conversion']})",
        "sampler": f"{config.federation.sampling}, {config.federation.cohort} of {config.clients.count} clients a round"
        + ("" if said["amplified"] else "; not counted on, as clients keep state"),
        "noise": f"discrete Gaussian, σ = {said['noise_multiplier']:g} of the sensitivity, {said['noise']}; each "
        f"server's standard deviation {said['server_stddev']:.4g}"
        + (f"; in {said['bands']} bands" if said["bands"] > 1 else ""),
        "clip bound C": f"{said['clip_norm']:.4g}"
        + (" in the last round" if config.privacy.clip == "quantile" else ""),
        "sensitivity": f"{said['sensitivity']:.4g} ({config.privacy.sensitivity})",
        "rounds released": str(record.completed),
        "most participations of a client": str(said["participations"]),
        "budget": "none" if budget is None else f"ε at most {budget:g} to an outsider",
    }
    for noisy in said["sums"]:
        facts[f"sum '{noisy['name']}'"] = f"released {noisy['released']} times, σ = {noisy['noise_multiplier']:g}"
    views = [
        {"who": _OBSERVERS[view][0], "knows": _OBSERVERS[view][1], "epsilon": f"{said['views'][view]:.4g}"}
        for view in VIEWS
    ]
    views[-1]["knows"] += f"; for the client drawn most often, {said['participations']} times"
    outsider = [row.get("epsilon") for row in record.rounds]
    rounds = [row["round"] for row in record.rounds]
    lines = [Line("an outsider", rounds, outsider)]
    steps = sorted({max(1, k * record.completed // 4) for k in range(1, 5)})
    for view in VIEWS[1:]:
        lines.append(
            Line(
                f"{_OBSERVERS[view][0]}{', at most' if view == 'server' else ''}",
                steps,
                [plan.epsilon(k, view) for k in steps],
            )
        )
    marks = [] if budget is None else [(budget, "budget")]
    title = f"ε over the rounds at δ = {said['delta']:g}, by who looks"
    chart = charts.lines(title, lines, "round", "ε", marks, from_zero=True)
    note = (
        "The server's curve is its worst case, a client that takes part in every round; the table has the client that "
        "was drawn most often."
        if config.federation.sampling != "cyclic"
        else ""
    )
    return {
        "private": True,
        "simulated": said["simulated"],
        "facts": facts,
        "views": views,
        "chart": chart,
        "note": note,
        "stopped": said["stopped"],
        "withheld": record.withheld,
    }


def seen_part(arms: Arms) -> list[dict[str, Any]]:
    """What each party saw, one block for all arms alike; and uploads that had no part."""
    blocks: dict[str, dict[str, Any]] = {}
    for arm in arms.runs:
        record = arms.first(arm)
        opened = openings(record.config)
        block = {"parties": parties(record.config), "openings": opened}
        key = repr((block["parties"], [own.reason for own in opened]))
        kept = blocks.setdefault(key, {"arms": [], "engine": record.config.engine.name, **block})
        kept["arms"].append(arm)
    return list(blocks.values())


def refusals(arms: Arms) -> list[dict[str, Any]]:
    """By run, how many uploads had no part, why, and whose they were where that may be said."""
    rows = []
    for arm, own in arms.runs.items():
        for seed, record in own.items():
            run = {"arm": arm, "seed": seed}
            if record.private and record.left_out:
                why = "not said of a run with noise: it tells who took part; metrics.jsonl has it"
                rows.append({**run, "reason": why, "count": sum(record.left_out.values()), "who": "–"})
                continue
            for reason, count in sorted(record.left_out.items()):
                whose = sorted(client for client, reasons in record.who.items() if reason in reasons)
                shown = ", ".join(map(str, whose[:12])) + (", …" if len(whose) > 12 else "")
                who = f"client{'s' if len(whose) > 1 else ''} {shown}"
                rows.append({**run, "reason": reason, "count": count, "who": who})
    return rows


def costs_part(arms: Arms, charts: Charts) -> list[dict[str, Any]]:
    """Medians of a round, by arm."""
    found = []
    for arm in arms.runs:
        record = arms.first(arm)
        if not record.costs:
            continue
        medians = {name: median(row[name] for row in record.costs) for name in record.costs[0] if name != "round"}
        total = {name: sum(row[name] for row in record.costs) for name in medians}
        if record.private:
            medians, total = _coarse(medians, record.config.federation.sampling), {}
        bars = [Bar(label, medians[n], _seconds(medians[n])) for n, label in _SECONDS.items() if medians.get(n)]
        clear = record.clear_bytes
        edges = []
        for name, (edge, what) in _BYTES.items():
            if medians.get(name):
                floor = clear if name in ("upload_bytes_per_client", "download_bytes_per_client") else None
                edges.append(
                    {
                        "edge": edge,
                        "what": what,
                        "median": _bytes(medians[name]),
                        "total": _bytes(total[name]) if total else "–",
                        "floor": "" if floor is None else _bytes(floor),
                        "ratio": "" if not floor else f"{medians[name] / floor:.2f} ×",
                    }
                )
        rounds, of = [row["round"] for row in record.costs], f"{arm}: " if arms.several else ""
        lines = [Line(label, rounds, [row[n] for row in record.costs]) for n, label in _SECONDS.items() if total.get(n)]
        whole = sum(total.get(name, 0.0) for name in ("training_seconds", "online_seconds", "sums_online_seconds"))
        found.append(
            {
                "arm": arm,
                "bars": charts.bars(f"{of}Seconds of a round by part, median", bars, "seconds of a round")
                if bars
                else "",
                "lines": charts.lines(f"{of}Seconds of each round", lines, "round", "seconds", from_zero=True)
                if lines
                else "",
                "edges": edges,
                "exchanges": f"{medians.get('online_rounds', 0):g}",
                "whole": "" if record.private else _seconds(whole),
                "rounds": len(rounds),
                "paper": f"{PAPER['online_seconds']:g} s and {PAPER['online_megabytes']:g} MB",
                "embedded": record.config.engine.name in ("embedded", "mpspdz"),
                "preparation": record.preparation,
            }
        )
    return found


def _coarse(medians: Mapping[str, float], sampling: str) -> dict[str, float]:
    """Of a run with noise: times to one digit, and no sizes that tell who took part."""
    kept = {name: float(f"{value:.0e}") for name, value in medians.items() if name.endswith("_seconds")}
    public = ("upload_bytes_per_client", "download_bytes_per_client", "online_rounds")
    return kept | {
        name: v for name, v in medians.items() if name in public or (name not in kept and sampling != "poisson")
    }


def clients_part(arms: Arms, charts: Charts) -> dict[str, Any]:
    """Data and clients of the first run that may say something of them."""
    record = next((own for own in arms.records if not own.private), arms.records[0])
    part: dict[str, Any] = {"data": record.data, "count": record.config.clients.count, "record": record}
    drawn = record.participation()
    if drawn is not None:
        never = [str(client) for client, times in enumerate(drawn) if times == 0]
        part["never"] = ", ".join(never[:20]) + (", …" if len(never) > 20 else "")
        part["drawn"] = (min(drawn), median(drawn), max(drawn))
        values, names, label = drawn, [str(client) for client in range(len(drawn))], "client"
        what = "times drawn"
        if len(drawn) > 200:
            values = [drawn.count(times) for times in range(max(drawn) + 1)]
            names, label, what = [str(times) for times in range(max(drawn) + 1)], "rounds in which drawn", "clients"
        part["participation"] = charts.columns("Who took part, and how often", values, label, what, names)
    rows = record.clients or []
    if rows:
        part["table"] = _spreads(rows)
        if all("nodes_s1" in row for row in rows):
            shares = [(float(row["nodes"]), row["nodes_s1"] / row["nodes"]) for row in rows if row.get("nodes")]
            title = "Clients: how large, and what share of group s = 1; a dot a client"
            part["dots"] = charts.plane(title, [Track("", None, dots=shares)], "nodes", "share of s = 1")
            balance = [(float(row["nodes"]), float(row["balance"])) for row in rows if row.get("balance") is not None]
            title = "Clients: how large, and how balanced (B of SaFeGNN: 1 if half of the edges cross groups)"
            part["balance"] = charts.plane(title, [Track("", None, dots=balance)], "nodes", "balance B")
            part["one_group"] = sum(1 for row in rows if not row["nodes_s0"] or not row["nodes_s1"])
    return part


def _spreads(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    names = {
        "nodes": "nodes",
        "edges": "edges",
        "train_nodes": "training nodes",
        "nodes_s0": "nodes of group s = 0",
        "nodes_s1": "nodes of group s = 1",
        "positives_s0": "labelled positives, s = 0",
        "positives_s1": "labelled positives, s = 1",
        "balance": "balance B",
    }
    found = []
    for name, label in names.items():
        values = [row[name] for row in rows if row.get(name) is not None]
        if values:
            cells = [
                f"{value:,.2f}" if name == "balance" else f"{value:,.0f}"
                for value in (min(values), median(values), max(values))
            ]
            found.append({"name": label, "min": cells[0], "median": cells[1], "max": cells[2]})
    return found


def _seconds(value: float) -> str:
    if value >= 120:
        return f"{value / 60:.1f} min"
    return f"{value:.2f} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def _bytes(value: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"
