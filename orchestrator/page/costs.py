"""What rounds cost by part and by edge, and what clients hold and how often they took part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from orchestrator.experiments.paper import PAPER
from orchestrator.page.arms import Arms
from orchestrator.page.svg import Bar, Charts, Line, Track

__all__ = ["clients_part", "costs_part"]

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
