"""`safegnn reproduce`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.cli.options import DataDir, File, Json, Overrides, Presets, overrides
from orchestrator.cli.printing import note, print_json, progress, say, tell
from orchestrator.cli.train import interruptible
from orchestrator.errors import ConfigError
from orchestrator.page import REPORT

__all__ = ["reproduce"]


def reproduce(
    experiment: Annotated[
        str | None,
        typer.Argument(help="table2 (and figures 4, 5), operating-point or fairness; none with --resume."),
    ] = None,
    preset: Presets = None,
    config: File = None,
    set_: Overrides = None,
    data_dir: DataDir = None,
    engine: Annotated[
        str | None, typer.Option("--engine", help="plaintext, the default and faster, or embedded.")
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="Runs of every setting; default 5.")] = None,
    arms: Annotated[
        str | None,
        typer.Option("--arms", help="Of fairness: arms, or METHOD* for all of a method, beside fedavg; default all."),
    ] = None,
    reference_rounds: Annotated[
        bool,
        typer.Option("--reference-rounds", help="Of fairness: figures of the round that F2GNN's reference code keeps."),
    ] = False,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="Folder of a reproduction to go on with, with its settings.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train several settings with several seeds; leave a table, curves and every run's folder.

    Where Pokec's files are missing, the synthetic stand-in of the same size takes its place.
    """
    from orchestrator.coordinator.client_pool import warm_up
    from orchestrator.experiments.plan import GridPlan

    if resume is None:
        from orchestrator.experiments.fairness_settings import chosen_arms
        from orchestrator.experiments.privacy_settings import EXPERIMENTS, configuration, settings_of

        if experiment is None:
            raise ConfigError(f"reproduce: expected an experiment, {' or '.join(EXPERIMENTS)}, or --resume FOLDER")
        chosen = overrides(set_, data_dir, engine or "plaintext")
        settings, stand_in = configuration(experiment, preset or (), config, chosen)
        if stand_in:
            note(stand_in)
        wanted = settings_of(experiment, settings)
        if experiment != "fairness" and (arms is not None or reference_rounds):
            raise ConfigError(f"--arms and --reference-rounds are of `reproduce fairness`; {experiment} has neither")
        if arms is not None:
            wanted = chosen_arms(wanted, [name.strip() for name in arms.split(",")])
        plan = GridPlan(experiment, settings, wanted, seeds or 5)
    elif any((experiment, preset, config, set_, data_dir, engine, seeds, arms)):
        raise ConfigError("--resume goes on with the reproduction's own settings; leave the experiment and options out")
    else:
        plan = GridPlan.load(resume)
        if plan.kind in ("engines", "methods"):
            raise ConfigError(f"--resume {resume}: it is of `safegnn compare`")
    warm_up()
    from orchestrator.experiments.fairness import compare_fairness
    from orchestrator.experiments.reproduction import reproduce as compare_privacy
    from orchestrator.experiments.tables import markdown
    from orchestrator.page.build import write_report

    compare: Callable[..., Any] = compare_privacy
    if plan.kind == "fairness":
        compare = partial(compare_fairness, reference=reference_rounds)
    begun: list[Path] = []
    with interruptible("reproduce", begun), progress(plan.rounds, plan.completed(resume)) as advance:
        result = compare(
            plan.kind,
            plan.common,
            plan.settings,
            plan.seeds or 1,
            resume=resume,
            observe=lambda name, seed, round: advance(f"{name}, seed {seed}", round),
            announce=tell,
            started=begun.append,
        )
    write_report([result.folder], result.folder / REPORT)
    if as_json:
        print_json(result.as_dict())
        return
    say(markdown(result.table()))
    say(result.closing)
    say(f"report: {result.folder / REPORT}")
