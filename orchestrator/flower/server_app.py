"""The coordinator as a Flower ServerApp: the round loop of `safegnn train`, with sites behind Flower's grid.

It carries ciphertexts. What it must not be able to do, and what stops it, is said by `orchestrator.aggregator.session`
and `orchestrator.site.consent`; this module only joins what they talk to.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from orchestrator.agreement.participant_file import ParticipantFile
from orchestrator.coordinator.deployed import Deployed
from orchestrator.coordinator.round_result import RoundResult
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import ConfigError
from orchestrator.flower.grid_sites import GridSites, Post
from orchestrator.flower.post import FlowerPost
from orchestrator.flower.run_config import begun, checked

__all__ = ["app", "coordinate"]

app = ServerApp()

_say = partial(print, flush=True)
"""Flower streams what a ServerApp prints to whoever started the run."""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train as the run's configuration says, and leave a run folder on this machine."""
    coordinate(context.run_config, FlowerPost(grid))


def coordinate(run_config: dict[str, object], post: Post) -> Path:
    """Run the rounds with the sites that can be reached; returns the run folder.

    Raises:
        SafeGNNError: with one line; the last checkpoint stands.
    """
    given, (config, folder) = checked(run_config), begun(run_config)
    if not given["coordinator"]:
        raise ConfigError("run-config coordinator: give the path of coordinator.yaml, from the coordinator's kit")
    own, roster, role = ParticipantFile.read(Path(str(given["coordinator"]))).participant()
    if role != "coordinator":
        raise ConfigError(f"{given['coordinator']}: {own.name} is {role} in {roster.name}; expected the coordinator")
    names = [site.name for site in roster.sites]
    sites = GridSites(post, names)
    for name in sites.gather(names, config.engine.startup_timeout_sec):
        _say(f"site {name}: no SuperNode says that it is this site; going on without")
    config = config.changed(data={"name": "own"})
    population = Deployed(config, roster, own, sites)
    resume = folder is not None
    folder = folder or RunFolder.create(config, str(given["folder"]) or None)

    def observe(result: RoundResult) -> None:
        _say(f"round {result.round} of {config.federation.rounds}: {len(result.cohort) - len(result.left_out)} sites")

    _say(f"run folder: {folder.path}")
    train(config, folder, resume=resume, observe=observe, announce=_say, population=population)
    return folder.path
