"""Writes `settings.md` beside this file, the reference of every setting: `python docs/settings.py`.

Everything in it comes from the classes of the configuration, so that the page says what a run accepts. A test compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orchestrator.config.reference import described

PAGE = Path(__file__).with_suffix(".md")

_HEAD = """# Settings

Every setting, generated from the classes in `orchestrator.config` by `python docs/settings.py`; do not edit it here.

A setting is given as `--set name=value` or in a YAML file for `--config`; `safegnn train --help` says what else there
is. Later layers win: defaults, presets in their order, the file, all `--set` together. Unknown settings are refused,
and so are those that do not fit together, with a message that names them. Units stand in the names; numbers without one
are dimensionless. "of ego", "of sage" and the like: without effect unless that is chosen.
"""

_METHODS = """\
Settings of another method are refused, with the name of the method that knows them. Where a layer names another method
than the layers below it, what those say for the former method ends there, except what the new one knows too: with
`--preset nba --set method.name=fedavg` FedAvg takes over the preset's `local_epochs`, and the preset's `tau`, which is
F2GNN's alone, is dropped. A `tau` in the layer that names FedAvg, or in a later one, is refused; so is, in any layer,
what neither method knows.
"""


def reference() -> str:
    """The page."""
    return "\n".join([_HEAD, *_lines()])


def _lines() -> Iterator[str]:
    for section in described():
        if section.title:
            yield f"## {section.title}\n"
            yield f"{section.about}\n"
        if section.methods:
            yield _METHODS
        yield "| setting | value | default | meaning |\n|---|---|---|---|"
        for setting in section.settings:
            cells = (f"`{setting.name}`", setting.value, setting.default, setting.meaning)
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
        yield ""


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
