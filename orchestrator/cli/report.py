"""`safegnn report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.printing import say
from orchestrator.page import REPORT

__all__ = ["report"]


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of comparisons; several are compared.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", help=f"HTML file to write; default: {REPORT} in the folder, if it is one."),
    ] = None,
    exact_metrics: Annotated[
        bool,
        typer.Option(
            "--exact-metrics",
            help="Also show metrics that stand exact beside noise, which no epsilon covers; of simulations only.",
        ),
    ] = False,
) -> None:
    """Write what runs say into one HTML file: results, privacy, who saw what, costs, clients, settings, warnings."""
    from orchestrator.page.build import write_report

    chosen = output or (runs[0] if len(runs) == 1 else Path()) / REPORT
    write_report(runs, chosen, exact_metrics=exact_metrics)
    say(f"report: {chosen}")
