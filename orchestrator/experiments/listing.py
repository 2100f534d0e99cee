"""The runs in a folder, a line each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.errors import RunError, SafeGNNError

__all__ = ["listed"]

_FIGURES = ("auc", "accuracy", "delta_sp", "delta_eo")
"""Of the validation nodes after the last round that is recorded."""


def listed(folder: Path) -> list[dict[str, Any]]:
    """What each run in a folder is, newest last; what cannot be read says why.

    Raises:
        RunError: there is no such folder.
    """
    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such folder")
    found = sorted(folder.glob("**/config.yaml"), key=lambda file: file.stat().st_mtime)
    return [_line(file.parent, str(file.parent.relative_to(folder))) for file in found]


def _line(path: Path, name: str) -> dict[str, Any]:
    line: dict[str, Any] = dict.fromkeys(("run", "data", "method", "engine", "rounds", "epsilon", *_FIGURES))
    line["run"] = name
    try:
        run, config = RunFolder.open(path)
        records = run.records()
    except SafeGNNError as error:
        return line | {"data": f"cannot be read: {error}"}
    line |= {"data": config.data.name, "method": config.method.name, "engine": config.engine.name}
    line["rounds"] = f"{len(records)}/{config.federation.rounds}"
    if records:
        line["epsilon"] = records[-1].get("epsilon")
        values = records[-1].get("val") or {}
        line |= {name: values.get(name) for name in _FIGURES}
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in line.items()}
