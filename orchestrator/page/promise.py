"""What is promised of clients' data, what each party saw, and which uploads had no part."""

from __future__ import annotations

from typing import Any

from orchestrator.agreement.from_settings import plan_of
from orchestrator.page.arms import Arms
from orchestrator.page.limits import assumptions, not_covered
from orchestrator.page.openings import openings, parties
from orchestrator.page.record import Record
from orchestrator.page.svg import Charts, Line
from orchestrator.privacy.plan import VIEWS
from orchestrator.privacy.statement import in_words

__all__ = ["privacy_part", "refusals", "seen_part"]

_OBSERVERS = {
    "outsider": ("an outsider", "sees what is released"),
    "client": ("another client", "knows besides in which rounds it took part itself"),
    "server": ("a server", "knows every cohort, and its own noise"),
}


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
        seen, opened = parties(record.config), openings(record.config)
        block = {"arms": [], "engine": record.config.engine.name, "parties": seen, "openings": opened}
        kept = blocks.setdefault(repr((seen, [own.reason for own in opened])), block)
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
