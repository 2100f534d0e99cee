"""`safegnn compare`, of engines or of methods."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import DataDir, File, Json, Overrides, Presets, Program, Protocol, load, names
from orchestrator.cli.printing import print_json, print_rows, progress, say, tell
from orchestrator.cli.train import interruptible
from orchestrator.errors import ConfigError
from orchestrator.page import REPORT
from orchestrator.registry import CENTRALISED, METHODS

if TYPE_CHECKING:
    from orchestrator.experiments.plan import GridPlan

__all__ = ["compare"]

ENGINES = ("plaintext", "embedded", "mpspdz")


def compare(
    preset: Presets = None,
    config: File = None,
    set_: Overrides = None,
    data_dir: DataDir = None,
    engines: Annotated[
        str | None,
        typer.Option("--engines", help="Which; default plaintext,embedded, and plaintext alone with --methods."),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option("--methods", help=f"Compare these instead, of {', '.join(METHODS)} and {CENTRALISED}."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="With --methods: runs of each; default 1.")
    ] = None,
    protocol: Protocol = None,
    program: Program = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="Folder of a comparison to go on with, with its settings.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train in plaintext and on secret shares from the same seeds; overlay the curves. Or compare methods."""
    if resume is None:
        plan = _plan(preset, config, set_, data_dir, engines, methods, seeds, protocol, program)
    elif any((preset, config, set_, data_dir, engines, methods, seeds, protocol, program)):
        raise ConfigError("--resume goes on with the comparison's own settings; leave the other options out")
    else:
        from orchestrator.experiments.plan import GridPlan

        plan = GridPlan.load(resume)
        if plan.kind not in ("engines", "methods"):
            raise ConfigError(f"--resume {resume}: it is of `safegnn reproduce {plan.kind}`")
    from orchestrator.coordinator.client_pool import warm_up

    warm_up()
    if plan.kind == "methods":
        _compare_methods(plan, resume, as_json)
    else:
        _compare_engines(plan, resume, as_json)


def _plan(
    preset: list[str] | None,
    config: Path | None,
    set_: list[str] | None,
    data_dir: Path | None,
    engines: str | None,
    methods: str | None,
    seeds: int | None,
    protocol: str | None,
    program: str | None,
) -> GridPlan:
    """What the options ask for, checked before anything is imported that takes long."""
    from orchestrator.experiments.contenders import contender
    from orchestrator.experiments.plan import GridPlan

    on = names("--engines", engines or ("plaintext" if methods else "plaintext,embedded"), ENGINES)
    compared = names("--methods", methods, (*METHODS, CENTRALISED)) if methods else []
    if compared and len(on) > 1:
        raise ConfigError(f"--engines {','.join(on)}: with --methods expected one")
    if seeds is not None and not compared:
        raise ConfigError("--seeds: engines are compared on one seed; give --methods")
    settings = load(preset, config, set_, data_dir, on[0] if compared else None, protocol, program)
    if compared:
        return GridPlan("methods", settings, {name: contender(settings, name) for name in compared}, seeds or 1)
    return GridPlan("engines", settings, {name: settings.changed(engine={"name": name}) for name in on})


def _compare_engines(plan: GridPlan, resume: Path | None, as_json: bool) -> None:
    from orchestrator.experiments.comparison import compare
    from orchestrator.page.build import write_report

    begun: list[Path] = []
    with interruptible("compare", begun), progress(plan.rounds, plan.completed(resume)) as advance:
        result = compare(
            plan.common,
            list(plan.settings),
            resume=resume,
            observe=lambda engine, seed, round: advance(engine, round),
            announce=tell,
            started=begun.append,
        )
    write_report([result.folder], result.folder / REPORT)
    if as_json:
        print_json(result.as_dict())
        return
    print_rows(result.table())
    for line in result.gap_lines():
        say(line)
    if result.max_model_difference is None:
        say("largest model difference: not computed, because the servers add noise that nobody else knows")
    else:
        say(
            f"largest difference of a released model from float64 aggregation of the same uploads: "
            f"{result.max_model_difference:.3g}, at most {result.worst_share_of_bound:.2f} of the fixed-point bound"
        )
    say(f"curves: {result.folder / 'comparison.png'}")
    say(f"report: {result.folder / REPORT}")


def _compare_methods(plan: GridPlan, resume: Path | None, as_json: bool) -> None:
    from orchestrator.experiments.methods import compare_methods
    from orchestrator.page.build import write_report

    begun, seeds = list[Path](), plan.seeds or 1
    with interruptible("compare", begun), progress(plan.rounds, plan.completed(resume)) as advance:
        result = compare_methods(
            plan.common,
            list(plan.settings),
            seeds,
            resume=resume,
            observe=lambda name, seed, round: advance(f"{name}, seed {seed}", round),
            announce=tell,
            started=begun.append,
        )
    write_report([result.folder], result.folder / REPORT)
    if as_json:
        print_json(result.as_dict())
        return
    say(result.text())
    spread = f", mean ± standard deviation over {seeds} seeds" if seeds > 1 else f", seed {plan.common.seed}"
    say(f"test nodes{spread}; runs, curves: {result.folder}")
    say(f"report: {result.folder / REPORT}")
