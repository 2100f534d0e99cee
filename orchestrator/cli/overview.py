"""`safegnn presets`, `settings` and `runs`: what there is to choose from, and what has been run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.printing import print_json, print_rows, say
from orchestrator.errors import ConfigError

__all__ = ["presets", "runs", "settings"]


def presets(as_json: Json = False) -> None:
    """The presets that ship with the package, and what each is for."""
    from orchestrator.config import preset_summaries

    found = preset_summaries()
    if as_json:
        print_json(found)
        return
    print_rows([{"preset": name, "what it is": about} for name, about in found.items()])
    say("safegnn train --preset NAME; several lie one on the other, e.g. --preset german --preset fair")


def settings(
    section: Annotated[str, typer.Argument(help="A section, or the name of a method; none: all sections.")] = "",
    as_json: Json = False,
) -> None:
    """Every setting of a section: what may be given, the default, what it means."""
    from orchestrator.config.reference import described
    from orchestrator.registry import METHODS

    sections = list(described())
    names = [each.title or "the tree" for each in sections]
    if section in METHODS:
        chosen = [each for each in sections if section in each.title.removeprefix("method: ").split(", ")]
    else:
        chosen = [each for each in sections if each.title == section or each.title.startswith(f"{section}.")]
    if section and not chosen:
        raise ConfigError(f"there is no section {section[:80]!r}; expected one of {', '.join(n for n in names if n)}")
    rows = [
        {"setting": each.name, "value": each.value, "default": each.default, "meaning": each.meaning}
        for found in (chosen if section else sections)
        for each in found.settings
    ]
    if as_json:
        print_json(rows)
    else:
        print_rows([{name: cell.replace("`", "") for name, cell in row.items()} for row in rows])


def runs(
    folder: Annotated[Path, typer.Argument(help="Where run folders are.")] = Path("runs"), as_json: Json = False
) -> None:
    """The runs in a folder: what each was, how far it came, and its last figures on validation nodes."""
    from orchestrator.experiments.listing import listed

    found = listed(folder)
    if as_json:
        print_json(found)
    elif found:
        print_rows([{name: None if cell is None else str(cell) for name, cell in row.items()} for row in found])
    else:
        say(f"{folder}: holds no runs; safegnn train --preset demo makes one")
