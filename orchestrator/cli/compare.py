"""`safegnn compare`, of engines or of methods."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import DataDir, File, Json, Overrides, Presets, Program, Protocol, load, names
from orchestrator.cli.printing import print_json, print_rows, progress, say, tell
from orchestrator.config import Config
from orchestrator.errors import ConfigError
from orchestrator.registry import CENTRALISED, METHODS

__all__ = ["compare"]


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
    as_json: Json = False,
) -> None:
    """Train in plaintext and on secret shares from the same seeds; overlay the curves. Or compare methods."""
    default = "plaintext" if methods else "plaintext,embedded"
    on = names("--engines", engines or default, ("plaintext", "embedded", "mpspdz"))
    compared = names("--methods", methods, (*METHODS, CENTRALISED)) if methods else []
    if compared and len(on) > 1:
        raise ConfigError(f"--engines {','.join(on)}: with --methods expected one")
    if seeds is not None and not compared:
        raise ConfigError("--seeds: engines are compared on one seed; give --methods")
    settings = load(preset, config, set_, data_dir, on[0] if compared else None, protocol, program)
    from orchestrator.coordinator.client_pool import warm_up

    warm_up()
    if compared:
        _compare_methods(settings, compared, seeds or 1, as_json)
    else:
        _compare_engines(settings, on, as_json)


def _compare_engines(settings: Config, engines: list[str], as_json: bool) -> None:
    from orchestrator.experiments.comparison import compare

    with progress(len(engines) * settings.federation.rounds) as advance:
        result = compare(settings, engines, observe=lambda engine, seed, round: advance(engine, round), announce=tell)
    if as_json:
        print_json(result.as_dict())
        return
    print_rows(result.table())
    if result.max_model_difference is None:
        say("largest model difference: not computed, because the servers add noise that nobody else knows")
    else:
        say(
            f"largest difference of a released model from float64 aggregation of the same uploads: "
            f"{result.max_model_difference:.3g}, at most {result.worst_share_of_bound:.2f} of the fixed-point bound"
        )
    say(f"curves: {result.folder / 'comparison.png'}")


def _compare_methods(settings: Config, methods: list[str], seeds: int, as_json: bool) -> None:
    from orchestrator.experiments.methods import compare_methods
    from orchestrator.experiments.tables import markdown

    with progress(len(methods) * seeds * settings.federation.rounds) as advance:
        result = compare_methods(
            settings, methods, seeds, observe=lambda name, seed, round: advance(f"{name}, seed {seed}", round)
        )
    if as_json:
        print_json(result.as_dict())
        return
    say(markdown(result.table()))
    spread = f", mean ± standard deviation over {seeds} seeds" if seeds > 1 else f", seed {settings.seed}"
    say(f"test nodes{spread}; runs, curves: {result.folder}")
