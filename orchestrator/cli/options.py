"""Options that several commands share, and what they make of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mpc_programs.programs import PROGRAMS
from orchestrator.cli.printing import note
from orchestrator.config import Config, load_config, preset_names
from orchestrator.errors import ConfigError, DataError
from orchestrator.mpspdz.installation import PROTOCOLS

__all__ = [
    "MODEL_SIZE",
    "DataDir",
    "EngineName",
    "File",
    "Json",
    "Overrides",
    "Parameters",
    "Presets",
    "Program",
    "Programs",
    "Protocol",
    "choices",
    "load",
    "model_size",
    "names",
    "overrides",
]

MODEL_SIZE = 22_000
"""Of the paper's largest model."""

Presets = Annotated[
    list[str] | None,
    typer.Option("--preset", help=f"Shipped settings, may be repeated, later ones win: {', '.join(preset_names())}."),
]
File = Annotated[Path | None, typer.Option("--config", help="YAML file with any part of the settings.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="One setting, e.g. federation.rounds=50; repeats.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder with the raw files of the data set.")]
EngineName = Annotated[
    str | None, typer.Option("--engine", help="embedded or mpspdz (both on secret shares), or plaintext.")
]
Protocol = Annotated[str | None, typer.Option("--protocol", help=f"Of mpspdz: {', '.join(PROTOCOLS)}.")]
Program = Annotated[str | None, typer.Option("--program", help=f"{', '.join(PROGRAMS)}.")]
Programs = Annotated[list[str] | None, typer.Option("--program", help=f"{', '.join(PROGRAMS)}; repeats.")]
Parameters = Annotated[
    int | None,
    typer.Option("--parameters", min=1, help=f"Size of the model; default: the data set's, else {MODEL_SIZE:,}."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]


def overrides(
    given: list[str] | None,
    data_dir: Path | None = None,
    engine: str | None = None,
    protocol: str | None = None,
    program: str | None = None,
) -> list[str]:
    """``--set`` and, after it, the options that are short for one."""
    extra = [f"data.dir={json.dumps(str(data_dir), ensure_ascii=False)}"] if data_dir else []
    chosen = {"name": engine, "protocol": protocol, "program": program}
    return [*(given or ()), *extra, *(f"engine.{key}={json.dumps(value)}" for key, value in chosen.items() if value)]


def load(
    presets: list[str] | None,
    file: Path | None,
    given: list[str] | None,
    data_dir: Path | None = None,
    engine: str | None = None,
    protocol: str | None = None,
    program: str | None = None,
) -> Config:
    """The settings that the options describe."""
    return load_config(presets or (), file, overrides(given, data_dir, engine, protocol, program))


def names(option: str, text: str, allowed: Sequence[str]) -> list[str]:
    """The values of an option that takes several, separated by commas."""
    return choices(option, [name.strip() for name in text.split(",")], allowed)


def choices(option: str, values: list[str], allowed: Sequence[str]) -> list[str]:
    """The values of an option. Raises ConfigError for one that is not allowed."""
    for value in values:
        if value not in allowed:
            raise ConfigError(f"{option} {value}: expected one of {', '.join(allowed)}")
    return values


def model_size(settings: Config, given: int | None) -> int:
    """d as given, else of the data set, else `MODEL_SIZE` where the data set is not there."""
    if given is not None:
        return given
    from orchestrator.coordinator.training import model_size

    try:
        return model_size(settings)
    except DataError as error:
        note(f"{MODEL_SIZE:,} parameters, because the data set is not there ({error})")
        return MODEL_SIZE
