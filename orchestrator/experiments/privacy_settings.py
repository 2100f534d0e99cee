"""What `reproduce` compares: the paper's table 2 with figures 4 and 5, the operating point, and what fairness costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import Config, load_config, preset_names
from orchestrator.errors import ConfigError, DataError
from orchestrator.experiments.fairness_settings import fairness_settings
from orchestrator.graphs import load_graph
from orchestrator.privacy.statement import calibrate

__all__ = ["EXPERIMENTS", "Experiment", "configuration", "settings_of"]

_PAPER_MULTIPLIERS = (1.341, 0.03166, 0.001)
_PAPER_CLIP_NORM = 10.0
_PAPER_DELTA = 1e-3
"""Not in the paper; the one that gives its figures, see docs/privacy.md."""

_TARGETS = (8.0, 4.0, 2.0, 1.0)
_SIMULATED = {"exact_beside_noise": True}
"""What is compared are exact metrics, which no epsilon covers: research on data that are no secret."""

_NON_PRIVATE = {"clip_norm": None, "noise_multiplier": 0.0, "epsilon_budget": None}


def _table2(config: Config) -> dict[str, Config]:
    """Neither clip nor noise, and the paper's three noise multipliers at C = 10, split between the servers as there."""
    paper = {"clip_norm": _PAPER_CLIP_NORM, "noise": "split", "sensitivity": "worst_case", "delta": _PAPER_DELTA}
    # After T rounds of noise the model is a random walk of sqrt(T) 2 sigma C a coordinate: more bits before the point.
    config = config.changed(evaluation=_SIMULATED)
    wide = {"update_bits": 22, "weight_bits": 27, "integer_bits": 13}
    settings = {"non-private": config.changed(privacy=_NON_PRIVATE)}
    for sigma in _PAPER_MULTIPLIERS:
        settings[f"σ = {sigma:g}"] = config.changed(sharing=wide, privacy={**paper, "noise_multiplier": sigma})
    return settings


def _operating_point(config: Config) -> dict[str, Config]:
    """The same training with neither clip nor noise, and clipped with the noise that keeps epsilon at 8, 4, 2 and 1.

    FedAvg without clip and noise beside it says what fairness and privacy cost together.
    """
    rounds = plan_of(config.changed(privacy={"noise_multiplier": 1.0, "epsilon_budget": None}))
    if (plan := rounds.privacy) is None:
        raise ConfigError(f"operating-point: no epsilon can be stated: {rounds.unproven}")
    config = config.changed(evaluation=_SIMULATED)
    settings = {"non-private": config.changed(privacy=_NON_PRIVATE)}
    if config.method.name != "fedavg":
        plain = config.changed(privacy=_NON_PRIVATE, method={"name": "fedavg"})
        settings = {"fedavg, non-private": plain, **settings}
    for target in _TARGETS:
        sigma = calibrate(plan, config.federation.rounds, target).noise_multiplier
        settings[f"ε = {target:g}"] = config.changed(privacy={"noise_multiplier": sigma})
    return settings


@dataclass(frozen=True)
class Experiment:
    """What `reproduce` can run.

    Attributes:
        presets: what its settings have in common, where nothing else is named.
        layer: presets of which the first lies upon whatever is named, unless one of them is named: table 2's cohort of
            three is the paper's, not our default.
        settings: from one configuration to the settings that are compared.
    """

    presets: tuple[str, ...]
    layer: tuple[str, ...]
    settings: Callable[[Config], dict[str, Config]]


EXPERIMENTS: Mapping[str, Experiment] = {
    "table2": Experiment(("pokec-n",), ("paper", "reference"), _table2),
    "operating-point": Experiment(("dp-large",), (), _operating_point),
    "fairness": Experiment(("demo",), (), fairness_settings),
}


def configuration(
    experiment: str, presets: Sequence[str] = (), file: Path | None = None, overrides: Sequence[str] = ()
) -> tuple[Config, str]:
    """What an experiment's settings have in common, and a line that says so where a stand-in takes the data's place.

    Where the files of a preset's data set are missing, the synthetic graph of the same size does, if there is one.

    Args:
        experiment: its name.
        presets, file, overrides: as in `load_config`; without presets the experiment's own.

    Raises:
        ConfigError: the experiment or a setting is unknown.
        DataError: other data are missing.
    """
    wanted = _experiment(experiment)
    chosen = tuple(presets or wanted.presets)
    if not set(wanted.layer) & set(chosen):
        chosen += wanted.layer[:1]
    config = load_config(chosen, file, overrides)
    try:
        load_graph(config.data, config.seed)
    except DataError as error:
        missing = config.data.name
        if missing not in chosen or f"synthetic-{missing}" not in preset_names():
            raise
        stand_ins = [f"synthetic-{name}" if name == missing else name for name in chosen]
        return load_config(stand_ins, file, overrides), f"{error}; the synthetic stand-in takes its place"
    return config, ""


def settings_of(experiment: str, config: Config) -> dict[str, Config]:
    """The settings that an experiment compares, by name.

    Raises:
        ConfigError: the experiment is unknown or does not fit the configuration.
    """
    return _experiment(experiment).settings(config)


def _experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise ConfigError(f"no experiment '{name}'; there are: {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
