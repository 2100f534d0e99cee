"""Experiments of several settings and seeds: the paper's table 2 with figures 4 and 5, and the operating point.

Every run is an ordinary training with a run folder of its own; what is shown are means and sample standard deviations
over the seeds of the mean of the last 20 rounds on the validation nodes (SaFeGNN, section 5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pandas as pd

from orchestrator.config import Config
from orchestrator.coordinator.round_plan import RoundPlan
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import RoundResult, train
from orchestrator.errors import ConfigError
from orchestrator.evaluation.metrics import METRICS, moving_average
from orchestrator.privacy.plan import VIEWS, PrivacyPlan
from orchestrator.privacy.statement import calibrate
from orchestrator.reports.plots import plot_settings

__all__ = ["EXPERIMENTS", "Reproduction", "Row", "markdown", "reproduce", "settings_of"]

_PAPER_MULTIPLIERS = (1.341, 0.03166, 0.001)
_PAPER_CLIP_NORM = 10.0
_PAPER_DELTA = 1e-3
"""Not in the paper; the one that gives its figures, see docs/privacy.md."""

_TARGETS = (8.0, 4.0, 2.0, 1.0)
_NON_PRIVATE = {"clip_norm": None, "noise_multiplier": 0.0, "epsilon_budget": None}


@dataclass(frozen=True)
class Row:
    """One setting, over all seeds.

    Attributes:
        name: what distinguishes it.
        noise_multiplier: sigma; 0 without noise.
        epsilon_paper: as the paper's accounting has it, which is not valid for fixed cohorts; None without noise.
        epsilon: by view, after the last round, a server's for a client in every round; None without noise.
        metrics: by name, mean and sample standard deviation of MA-20; None where a run left it undefined.
    """

    name: str
    noise_multiplier: float
    epsilon_paper: float | None
    epsilon: Mapping[str, float | None] | None
    metrics: Mapping[str, tuple[float, float] | None]

    def as_dict(self) -> dict[str, Any]:
        """Flat, for a table."""
        epsilon = self.epsilon or dict.fromkeys(VIEWS)
        flat: dict[str, Any] = {"setting": self.name, "noise_multiplier": self.noise_multiplier}
        flat["epsilon_paper"] = self.epsilon_paper
        flat |= {f"epsilon_{view}": epsilon[view] for view in VIEWS}
        for metric, pair in self.metrics.items():
            flat[metric], flat[f"{metric}_sd"] = pair if pair is not None else (None, None)
        return flat


@dataclass(frozen=True)
class Reproduction:
    """Where everything lies, and the table."""

    folder: Path
    delta: float
    rows: Sequence[Row]

    def as_dict(self) -> dict[str, Any]:
        """The JSON document of `safegnn reproduce`."""
        return {"folder": str(self.folder), "delta": self.delta, "rows": [row.as_dict() for row in self.rows]}


def _table2(config: Config) -> dict[str, Config]:
    """Neither clip nor noise, and the paper's three noise multipliers at C = 10, split between the servers as there."""
    paper = {"clip_norm": _PAPER_CLIP_NORM, "noise": "split", "sensitivity": "worst_case", "delta": _PAPER_DELTA}
    # After T rounds of noise the model is a random walk of sqrt(T) 2 sigma C a coordinate: more bits before the point.
    wide = {"update_bits": 22, "weight_bits": 27, "integer_bits": 13}
    settings = {"non-private": config.changed(privacy=_NON_PRIVATE)}
    for sigma in _PAPER_MULTIPLIERS:
        settings[f"σ = {sigma:g}"] = config.changed(sharing=wide, privacy={**paper, "noise_multiplier": sigma})
    return settings


def _operating_point(config: Config) -> dict[str, Config]:
    """The same training with neither clip nor noise, and clipped with the noise that keeps epsilon at 8, 4, 2 and 1."""
    plan = RoundPlan.of(config.changed(privacy={"noise_multiplier": 1.0})).privacy
    if plan is None:
        raise ConfigError("federation.sampling: no accountant is valid for it; expected distinct or poisson")
    settings = {"non-private": config.changed(privacy=_NON_PRIVATE)}
    for target in _TARGETS:
        sigma = calibrate(plan, config.federation.rounds, target).noise_multiplier
        settings[f"ε = {target:g}"] = config.changed(privacy={"noise_multiplier": sigma})
    return settings


EXPERIMENTS: dict[str, Callable[[Config], dict[str, Config]]] = {
    "table2": _table2,
    "operating-point": _operating_point,
}
"""What `reproduce` can run: from one configuration to the settings that are compared."""


def settings_of(experiment: str, config: Config) -> dict[str, Config]:
    """The settings that an experiment compares, by name.

    Raises:
        ConfigError: the experiment is unknown or does not fit the configuration.
    """
    if experiment not in EXPERIMENTS:
        raise ConfigError(f"no experiment '{experiment}'; there are: {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[experiment](config)


def reproduce(
    experiment: str,
    config: Config,
    settings: Mapping[str, Config],
    seeds: int = 5,
    observe: Callable[[str, RoundResult], None] = lambda name, result: None,
) -> Reproduction:
    """Train every setting with `seeds` seeds, from config.seed on; write `table.md`, `table.csv` and `curves.png`.

    Args:
        experiment: its name, for the titles.
        config: what the settings have in common.
        settings: as `settings_of` gives them; the last one has noise.
        observe: called after every round with the setting and seed.
    """
    parent = RunFolder.create(config, f"reproduce-{experiment}-{config.data.name}")
    records: dict[str, list[list[dict[str, Any]]]] = {}
    for name, own in settings.items():
        for seed in range(config.seed, config.seed + seeds):
            label = f"{name}, seed {seed}"
            run = own.changed(seed=seed, run={"dir": parent.path})
            folder = RunFolder.create(run, label.replace(" = ", "-").replace(", ", "-").replace(" ", "-"))
            train(run, folder, observe=partial(observe, label))
            records.setdefault(name, []).append(folder.records())
    rows = [_row(name, own, records[name]) for name, own in settings.items()]
    title = (
        f"{experiment}: {config.data.name}, {config.method.name}, {config.federation.cohort} of {config.clients.count}"
    )
    plot_settings(records, parent.path / "curves.png", f"{title} clients a round, {seeds} seeds")
    result = Reproduction(parent.path, list(settings.values())[-1].privacy.delta, rows)
    pd.DataFrame([row.as_dict() for row in rows]).to_csv(parent.path / "table.csv", index=False)
    (parent.path / "table.md").write_text(markdown(result), encoding="utf-8")
    return result


def markdown(result: Reproduction) -> str:
    """The table as Markdown: mean ± sample standard deviation."""
    head = ["setting", "σ", "ε, paper's accounting", *(f"ε, {view}" for view in VIEWS), *METRICS]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in result.rows:
        epsilon = row.epsilon or dict.fromkeys(VIEWS)
        cells = [row.name, f"{row.noise_multiplier:g}" if row.noise_multiplier else "–"]
        cells += [_epsilon(row.epsilon_paper), *(_epsilon(epsilon[view]) for view in VIEWS)]
        for pair in row.metrics.values():
            cells.append("undefined" if pair is None else f"{pair[0]:.4f} ± {pair[1]:.4f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _epsilon(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _row(name: str, config: Config, runs: Sequence[Sequence[Mapping[str, Any]]]) -> Row:
    plan, rounds = RoundPlan.of(config).privacy, config.federation.rounds
    metrics: dict[str, tuple[float, float] | None] = {}
    for metric in METRICS:
        finals = [moving_average([record["val"][metric] for record in run])[-1] for run in runs]
        defined = [value for value in finals if value is not None]
        spread = stdev(defined) if len(defined) > 1 else 0.0
        metrics[metric] = (mean(defined), spread) if len(defined) == len(finals) else None
    return Row(
        name=name,
        noise_multiplier=config.privacy.noise_multiplier,
        epsilon_paper=None if plan is None else _as_the_paper(plan).epsilon(rounds),
        epsilon=None if plan is None else {view: plan.epsilon(rounds, view) for view in VIEWS},
        metrics=metrics,
    )


def _as_the_paper(plan: PrivacyPlan) -> PrivacyPlan:
    return PrivacyPlan(plan.sampler, plan.clients, plan.cohort, plan.noise_multiplier, plan.delta, accountant="paper")
