"""The table that the paper reports and more: every contender's costs beside the paper's, for one round and for many."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from orchestrator.experiments.costs import Record
from orchestrator.experiments.paper import PAPER
from orchestrator.experiments.tables import markdown, write_table
from orchestrator.reports.plots import plot_costs_of_engines

__all__ = ["PAPER", "rows", "verdict", "write_report"]


def rows(records: Sequence[Record], rounds: int) -> list[dict[str, str | None]]:
    """The table by column name: medians of one round, what `rounds` take, and the paper's round last.

    Args:
        records: at least one.
    """
    table: list[dict[str, str | None]] = []
    for record in records:
        seconds = record.online_seconds, record.preprocessing_seconds, record.startup_seconds_per_round
        megabytes = record.online_bytes_per_server / 1e6, record.preprocessing_bytes_per_server / 1e6
        table.append(
            {
                "engine": record.engine,
                "protocol": record.protocol or "own",
                "program": record.program,
                "preprocessing": record.preprocessing,
                "online s": f"{seconds[0]:.4f}",
                "sent online MB": f"{megabytes[0]:.4f}",
                "rounds": str(record.rounds),
                "preprocessing s": f"{seconds[1]:.4f}",
                "sent in preprocessing MB": f"{megabytes[1]:.3f}",
                "start-up s": f"{seconds[2]:.3f}",
                f"{rounds} rounds online s": f"{rounds * seconds[0]:.1f}",
                f"{rounds} rounds with all s": f"{rounds * sum(seconds):.0f}",
                f"{rounds} rounds sent MB": f"{rounds * sum(megabytes):,.0f}",
                "max error": f"{record.max_error:.1e}",
            }
        )
    online, sent = PAPER["online_seconds"], PAPER["online_megabytes"]
    paper = {"engine": "the paper's", "online s": f"{online}", "sent online MB": f"{sent}"}
    paper |= {f"{rounds} rounds online s": f"{rounds * online:.1f}"}
    return [*table, {key: paper.get(key) for key in table[0]}]


def verdict(records: Sequence[Record]) -> list[str]:
    """How the embedded engine stands against the best of MP-SPDZ in the same run; nothing where one is missing."""
    ours = [record for record in records if record.engine == "embedded"]
    theirs = [record for record in records if record.engine == "mpspdz"]
    if not ours or not theirs:
        return []
    ours_fast, theirs_fast = (min(group, key=lambda record: record.online_seconds) for group in (ours, theirs))
    ours_few, theirs_few = (min(group, key=lambda record: record.rounds) for group in (ours, theirs))
    seconds = ours_fast.online_seconds / theirs_fast.online_seconds
    return [
        f"online time: {1e3 * ours_fast.online_seconds:.1f} ms on embedded ({ours_fast.program}, "
        f"{ours_fast.preprocessing}), {1e3 * theirs_fast.online_seconds:.1f} ms on MP-SPDZ's fastest "
        f"({theirs_fast.program}, {theirs_fast.protocol}): ratio {seconds:.2f}",
        f"rounds: {ours_few.rounds} on embedded, {theirs_few.rounds} on MP-SPDZ's fewest ({theirs_few.program}, "
        f"{theirs_few.protocol}): ratio {ours_few.rounds / theirs_few.rounds:.2f}; MP-SPDZ counts sending and "
        f"receiving apart, so as exchanges the ratio is {2 * ours_few.rounds / theirs_few.rounds:.2f}",
    ]


def write_report(folder: Path, records: Sequence[Record], rounds: int, title: str) -> str:
    """Write `bench.md`, `bench.csv` and `bench.png`; returns the Markdown."""
    table = rows(records, rounds)
    one = records[0]
    text = "\n".join(
        [
            f"# {title}",
            "",
            f"{one.cohort} clients a round, {one.parameters:,} parameters. {_machine()}. Medians of at most "
            f"{max(record.repeats for record in records)} rounds; bytes are sent by each server.",
            "",
            markdown(table),
            "",
            *[f"- {line}" for line in verdict(records)],
        ]
    )
    write_table(folder, "bench", text, table)
    bars = {
        f"{row['engine']}, {row['program']}, {row['protocol'] if row['protocol'] != 'own' else row['preprocessing']}": (
            record.online_seconds,
            record.online_bytes_per_server / 1e6,
            record.online_seconds + record.preprocessing_seconds + record.startup_seconds_per_round,
        )
        for row, record in zip(table, records, strict=False)  # the paper's row has no record
    }
    plot_costs_of_engines(bars, (PAPER["online_seconds"], PAPER["online_megabytes"], None), folder / "bench.png", title)
    return text


def _machine() -> str:
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {datetime.now():%Y-%m-%d}"
    )
