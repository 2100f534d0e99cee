"""`safegnn doctor`: is everything there, for MP-SPDZ or for a run between organisations?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from orchestrator.cli.options import File, Json, Overrides, Presets, load
from orchestrator.cli.printing import print_json, say
from orchestrator.finding import Finding

__all__ = ["doctor"]


def doctor(
    preset: Presets = None,
    config: File = None,
    set_: Overrides = None,
    deployment: Annotated[
        Path | None,
        typer.Option(
            "--deployment",
            metavar="FILE",
            help="A participant's own aggregator.yaml, site.yaml or coordinator.yaml: does all of that fit, is "
            "everybody there, and would the policy allow the run that the other options describe?",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Is everything there that training on MP-SPDZ needs? A row for each thing, and the cure beside what is missing.

    It fails where something cannot work. MP-SPDZ is an option: where nobody asks for it, that it is missing is a
    warning. With --deployment it looks at a run between organisations instead, from this host.
    """
    if deployment is not None:
        findings = _deployed(deployment, preset, config, set_)
    else:
        from orchestrator.mpspdz.doctor import examine

        engine = load(preset, config, set_).engine
        findings = examine(engine.mpspdz_home, required=engine.name == "mpspdz")
    sound = all(row.state != "fault" for row in findings)
    if as_json:
        print_json({"ok": sound, "findings": [asdict(row) for row in findings]})
    else:
        table = Table("", "", "found", "what to do")
        colours = {"ok": "green", "warning": "yellow", "fault": "red", "unknown": "dim"}
        for row in findings:
            table.add_row(row.what, Text(row.state, style=colours[row.state]), row.detail, row.cure)
        say(table)
    if not sound:
        raise typer.Exit(1)


def _deployed(file: Path, preset: list[str] | None, config: Path | None, given: list[str] | None) -> Sequence[Finding]:
    from orchestrator.agreement.preflight import examine

    if not (preset or config or given):
        return list(examine(file))
    from orchestrator.agreement.from_settings import plan_of

    settings = load(preset, config, given)
    return list(examine(file, plan_of(settings), settings.federation.rounds))
