"""`safegnn predict`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import DataDir, Overrides, overrides
from orchestrator.cli.printing import note
from orchestrator.config import Config, DataConfig, load_config
from orchestrator.errors import ConfigError
from orchestrator.files import write_atomically

__all__ = ["predict"]


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a run that has ended.")],
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", help="A file in place of the run's; repeats, in the order of settings: nodes, edges."),
    ] = None,
    data_dir: DataDir = None,
    set_: Overrides = None,
    client: Annotated[
        int | None, typer.Option("--client", min=0, help="Whose model, from 0, where every client has its own.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", help="CSV file to write; else standard output.")] = None,
) -> None:
    """Predict every node of some files with a run's model, as CSV: node, probability of each class, predicted class.

    Files are read as the run's were, but for labels and the sensitive attribute, which need not be there. --set takes
    settings of data.
    """
    from orchestrator.api import Run
    from orchestrator.graphs import load_unlabelled

    opened = Run.load(run)
    settings = _settings(run, data or (), overrides(set_, data_dir))
    model = opened.trained(client)
    config = _of_one_holder(settings.data) if data else settings.data
    graph, nodes = load_unlabelled(config, settings.seed, model.meaning.features)
    table = model.predict(graph)
    if model.reordered(graph):
        note(f"{graph.name}: features are in another order than in training; they are found by name")
    table.insert(0, "node", list(nodes))
    text = table.to_csv(index=False, float_format="%.6g")
    if output is None:
        sys.stdout.write(text)
    else:
        write_atomically(output, lambda file: file.write(text.encode()))


def _settings(run: Path, files: Sequence[Path], given: list[str]) -> Config:
    """The run's, with what is to be read instead.

    Raises:
        ConfigError: a setting is none of data, or files are given that the run's settings have no place for.
    """
    for override in given:
        if override.split("=")[0].strip().split(".")[0] != "data":
            raise ConfigError(f"--set {override}: a prediction reads only data; expected data.NAME=VALUE")
    changed = load_config(file=run / "config.yaml", overrides=given)
    places = _places(changed)
    if files and len(files) != len(places):
        named = ", ".join(places) or f"none, as data.name = {changed.data.name} is read from a folder, --data-dir"
        raise ConfigError(f"--data: got {len(files)} files; expected {named}")
    if changed.data.name == "own":
        raise ConfigError(
            f"{run}: its graph was given in Python; predict there, Run.load(...).predict(graph), or say what to read, "
            "--set data.name=files --set data.files=..."
        )
    # Absolute, as data.dir is for the run's own.
    paths = [f"{place}={json.dumps(str(file.resolve()))}" for place, file in zip(places, files, strict=False)]
    return load_config(file=run / "config.yaml", overrides=[*given, *paths])


def _of_one_holder(data: DataConfig) -> DataConfig:
    """Files that are given by their paths are in no client's folder."""
    assert data.files is not None  # else there are no places for files
    return data.model_copy(update={"files": data.files.model_copy(update={"client_folders": False})})


def _places(settings: Config) -> list[str]:
    """The settings that name a file each."""
    files = settings.data.files if settings.data.name == "files" else None
    if files is None:
        return []
    return ["data.files.nodes", *(["data.files.edges"] if files.edges is not None else [])]
