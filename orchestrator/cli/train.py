"""`safegnn train`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.cli.options import DataDir, EngineName, File, Json, Overrides, Presets, Program, Protocol, load
from orchestrator.cli.printing import print_json, print_rows, progress, say, tell
from orchestrator.config import Config
from orchestrator.errors import ConfigError, SafeGNNError
from orchestrator.page import REPORT

__all__ = ["interruptible", "train"]


def train(
    preset: Presets = None,
    config: File = None,
    set_: Overrides = None,
    data_dir: DataDir = None,
    engine: EngineName = None,
    protocol: Protocol = None,
    program: Program = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume", help="Run folder to continue, with its settings; --set federation.rounds=N extends it."
        ),
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Check every aggregation against float64; simulation only.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train one federated model and leave a run folder with metrics, costs, plots and the model."""
    from orchestrator.coordinator.run_folder import RunFolder

    if resume is None:
        settings = load(preset, config, set_, data_dir, engine, protocol, program)
    elif preset or config or data_dir or engine or protocol or program:
        raise ConfigError(
            "--resume continues with the run's own settings; leave other options than --set federation.rounds=N out"
        )
    else:
        RunFolder.open(resume)
        settings = load(None, resume / "config.yaml", set_)
    from orchestrator import api

    begun: list[Path] = []
    with interruptible("train", begun), progress(settings.federation.rounds) as advance:
        run = api.train(
            settings=settings,
            resume=resume,
            audit=audit,
            observe=lambda result: advance("", result),
            announce=tell,
            started=begun.append,
        )
    document = run.summary()
    if as_json:
        print_json(document)
    else:
        _print(document, settings)


def _print(document: Mapping[str, Any], settings: Config) -> None:
    from orchestrator.experiments.tables import gap_lines, metric
    from orchestrator.privacy.statement import in_words

    rounds = document["rounds"]
    columns = {"validation": "validation", "test": "test"}
    if rounds > 1:
        columns["validation_ma20"] = f"validation, mean of {min(20, rounds)} rounds"
    print_rows(
        [
            {"after the last round": name, **{title: metric(document[key][name]) for key, title in columns.items()}}
            for name in document["test"]
        ]
    )
    for mask, reasons in document["undefined"].items():
        gaps = document["gaps"][mask]
        for line in gap_lines(document[mask], gaps, reasons):
            say(f"{mask} {line}")
        nodes = document["counts"][mask].get("nodes")
        if gaps and (effective := document["counts"][mask].get("nodes_effective", nodes)) != nodes:
            say(f"{mask}: clients share nodes; these intervals are as wide as for {effective} nodes, not {nodes}")
        for name, reason in reasons.items():
            if not name.startswith(tuple(gaps)):
                say(f"{mask} {name} is undefined: {reason}")
    costs, rounds_of = document["costs"], f"median of {rounds}" if rounds > 1 else "the only one"
    say(
        f"per round ({rounds_of}): local training {costs['training_seconds']:.3f} s, aggregation online "
        f"{costs['online_seconds']:.3f} s, {costs['online_bytes_server0'] / 1000:.1f} kB between the servers each way, "
        f"upload {costs['upload_bytes_per_client'] / 1000:.0f} kB per client"
    )
    for note in (document["data"] or {}).get("notes", ()):
        say(f"data: {note}")
    if (privacy := document["privacy"]) is not None:
        for line in in_words(privacy):
            say(line)
    elif (reason := document["no_epsilon"]) is not None:
        say(f"no epsilon is stated: {reason}")
    elif settings.privacy.clip_norm is not None and settings.privacy.noise_multiplier == 0:
        say("privacy.clip_norm without privacy.noise_multiplier: clipping alone protects nothing, and no epsilon holds")
    say(f"run folder: {document['run']}")
    say(f"report: {Path(document['run']) / REPORT}")


class _Interrupted(SafeGNNError):
    """Ctrl-C, with what can be done next."""

    exit_status = 130


@contextmanager
def interruptible(command: str, begun: list[Path]) -> Iterator[None]:
    """Say after Ctrl-C how to go on. Args: begun: the folder, once there is one."""
    try:
        yield
    except KeyboardInterrupt:
        if not begun:
            raise
        advice = f"the last checkpoint stands, `safegnn {command} --resume {begun[0]}` continues"
        raise _Interrupted(f"interrupted; {advice}") from None
