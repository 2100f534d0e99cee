"""`safegnn coordinate`: a run between a roster's services and sites whose workers are on this host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import File, Overrides, Presets, load
from orchestrator.cli.printing import progress, say, tell
from orchestrator.cli.train import interruptible
from orchestrator.errors import ConfigError

__all__ = ["coordinate"]


def coordinate(
    participant: Annotated[
        Path, typer.Option("--coordinator", metavar="FILE", help="coordinator.yaml, as in the kit.")
    ],
    site: Annotated[list[str], typer.Option("--site", help="NAME=SOCKET of a site's worker; repeats.")],
    preset: Presets = None,
    config: File = None,
    set_: Overrides = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Run folder to continue.")] = None,
) -> None:
    """Coordinate a run with sites whose workers are on this host, to rehearse; else Flower carries the messages."""
    from orchestrator.agreement.participant_file import ParticipantFile
    from orchestrator.coordinator.deployed import Deployed
    from orchestrator.coordinator.run_folder import RunFolder
    from orchestrator.coordinator.site_transport import LocalSites
    from orchestrator.coordinator.training import train

    sockets = dict(_named(text) for text in site)
    if resume is not None and (preset or config):
        raise ConfigError("--resume continues with the run's own settings; leave --preset and --config out")
    settings = load(preset, config or (None if resume is None else resume / "config.yaml"), set_)
    own, roster, role = ParticipantFile.read(participant).participant()
    if role != "coordinator":
        raise ConfigError(f"{participant}: {own.name} is {role} in {roster.name}; expected the coordinator")
    if strangers := sorted(sockets.keys() - {each.name for each in roster.sites}):
        raise ConfigError(f"--site {strangers[0]}: the roster {roster.name} has no such site")
    settings = settings.changed(data={"name": "own"})
    population = Deployed(settings, roster, own, LocalSites(sockets))
    folder = RunFolder.create(settings) if resume is None else RunFolder.open(resume)[0]
    with interruptible("coordinate", [folder.path]), progress(settings.federation.rounds) as advance:
        train(
            settings,
            folder,
            resume=resume is not None,
            observe=lambda result: advance("", result),
            announce=tell,
            population=population,
        )
    say(f"{folder.path}: the run; its model is {folder.model()}")


def _named(text: str) -> tuple[str, Path]:
    name, separator, path = text.partition("=")
    if not (name and separator and path):
        raise ConfigError(f"--site {text[:80]}: expected NAME=SOCKET")
    return name, Path(path).expanduser()
