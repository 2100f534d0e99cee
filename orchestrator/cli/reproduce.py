"""`safegnn reproduce`."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import DataDir, File, Json, Overrides, Presets, overrides
from orchestrator.cli.printing import note, print_json, progress, say

__all__ = ["reproduce"]


def reproduce(
    experiment: Annotated[str, typer.Argument(help="table2 (with figures 4 and 5) or operating-point.")],
    preset: Presets = None,
    config: File = None,
    set_: Overrides = None,
    data_dir: DataDir = None,
    engine: Annotated[str, typer.Option("--engine", help="plaintext, faster, or embedded.")] = "plaintext",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs of every setting.")] = 5,
    as_json: Json = False,
) -> None:
    """Train several privacy settings with several seeds; leave a table, curves and every run's folder.

    Where Pokec's files are missing, the synthetic stand-in of the same size takes its place.
    """
    from orchestrator.coordinator.client_pool import warm_up
    from orchestrator.experiments.privacy_settings import configuration, settings_of

    settings, stand_in = configuration(experiment, preset or (), config, overrides(set_, data_dir, engine))
    if stand_in:
        note(stand_in)
    compared = settings_of(experiment, settings)
    warm_up()
    from orchestrator.experiments import reproduction
    from orchestrator.experiments.tables import markdown

    with progress(len(compared) * seeds * settings.federation.rounds) as advance:
        result = reproduction.reproduce(
            experiment,
            settings,
            compared,
            seeds,
            observe=lambda name, seed, round: advance(f"{name}, seed {seed}", round),
        )
    if as_json:
        print_json(result.as_dict())
        return
    say(markdown(result.table()))
    simulated = ", of the run on shares that plaintext simulates" if engine == "plaintext" else ""
    say(f"epsilon at delta {result.delta:g}{simulated}; table and curves: {result.folder}")
