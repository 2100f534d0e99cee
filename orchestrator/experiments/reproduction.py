"""Several privacy settings with several seeds, and a table of what noise costs.

Every run is an ordinary training with a run folder of its own; what is shown are means and sample standard deviations
over the seeds of the mean of the last 20 rounds on the validation nodes (SaFeGNN, section 5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import Config
from orchestrator.evaluation.figures import metric_names
from orchestrator.evaluation.metrics import moving_average
from orchestrator.experiments.grid import GridPlan, Observer, run_grid
from orchestrator.experiments.tables import Spread, markdown, nodes_behind, short, with_nodes, write_table
from orchestrator.privacy.plan import VIEWS, PrivacyPlan
from orchestrator.reports.plots import plot_settings

__all__ = ["Reproduction", "Row", "reproduce"]


@dataclass(frozen=True)
class Row:
    """One setting, over all seeds.

    Attributes:
        name: what distinguishes it.
        noise_multiplier: sigma; 0 without noise.
        epsilon_paper: as the paper's accounting has it, which is not valid for fixed cohorts; None without noise, and
            where clients take turns, which it does not know.
        epsilon: by view, after the last round, a server's for a client in every round; None without noise.
        metrics: by name, of MA-20.
        nodes: by gap, those of group 0 and group 1 that it compares, the fewest over the seeds.
    """

    name: str
    noise_multiplier: float
    epsilon_paper: float | None
    epsilon: Mapping[str, float | None] | None
    metrics: Mapping[str, Spread]
    nodes: Mapping[str, tuple[int, int] | None] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, config: Config, runs: Sequence[Sequence[Mapping[str, Any]]]) -> Row:
        """From the records of each seed."""
        plan, rounds = plan_of(config).privacy, config.federation.rounds
        last = [run[-1]["val"] for run in runs]
        names = metric_names(last[0])
        return cls(
            name=name,
            noise_multiplier=config.privacy.noise_multiplier,
            epsilon_paper=None if plan is None or plan.sampler == "cyclic" else _as_the_paper(plan).epsilon(rounds),
            epsilon=None if plan is None else {view: plan.epsilon(rounds, view) for view in VIEWS},
            metrics={
                metric: Spread.of([moving_average([record["val"][metric] for record in run])[-1] for run in runs])
                for metric in names
            },
            nodes={name: nodes_behind(last, name) for name in names},
        )

    def as_dict(self) -> dict[str, Any]:
        """Flat, for a table."""
        epsilon = self.epsilon or dict.fromkeys(VIEWS)
        flat: dict[str, Any] = {"setting": self.name, "noise_multiplier": self.noise_multiplier}
        flat["epsilon_paper"] = self.epsilon_paper
        flat |= {f"epsilon_{view}": epsilon[view] for view in VIEWS}
        for metric, spread in self.metrics.items():
            flat[metric], flat[f"{metric}_sd"] = spread
            if nodes := self.nodes.get(metric):
                flat[f"{metric}_n_s0"], flat[f"{metric}_n_s1"] = nodes
        return flat

    def cells(self) -> dict[str, str | None]:
        """As it is shown, by column name: mean ± sample standard deviation."""
        epsilon = self.epsilon or dict.fromkeys(VIEWS)
        return {
            "setting": self.name,
            "σ": f"{self.noise_multiplier:g}" if self.noise_multiplier else None,
            "ε, paper's accounting": short(self.epsilon_paper),
            **{f"ε, {view}": short(epsilon[view]) for view in VIEWS},
            **{metric: with_nodes(spread, self.nodes.get(metric)) for metric, spread in self.metrics.items()},
        }


@dataclass(frozen=True)
class Reproduction:
    """Where everything lies, and the table; `simulated`: plaintext took the place of shares."""

    folder: Path
    delta: float
    rows: Sequence[Row]
    simulated: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The JSON document of `safegnn reproduce`."""
        return {"folder": str(self.folder), "delta": self.delta, "rows": [row.as_dict() for row in self.rows]}

    @property
    def closing(self) -> str:
        """What has to be known beside the table."""
        simulated = ", of the run on shares that plaintext simulates" if self.simulated else ""
        return f"epsilon at delta {self.delta:g}{simulated}; table and curves: {self.folder}"

    def table(self) -> list[dict[str, str | None]]:
        """A row a setting, as it is shown."""
        return [row.cells() for row in self.rows]


def reproduce(
    experiment: str,
    config: Config,
    settings: Mapping[str, Config],
    seeds: int = 5,
    *,
    resume: Path | None = None,
    observe: Observer = lambda name, seed, result: None,
    announce: Callable[[str], None] = lambda text: None,
    started: Callable[[Path], None] = lambda folder: None,
) -> Reproduction:
    """Train every setting with `seeds` seeds, from config.seed on; write `table.md`, `table.csv` and `curves.png`.

    Args:
        experiment: its name, for the titles.
        config: what the settings have in common.
        settings: as `privacy_settings.settings_of` gives them; the last one has noise.
        resume, observe, announce, started: as in `run_grid`.

    Raises:
        SafeGNNError: as `run_grid`.
    """
    title = f"reproduce-{experiment}-{config.data.name}"
    plan = GridPlan(experiment, config, settings, seeds)
    grid = run_grid(plan, title, resume=resume, observe=observe, announce=announce, started=started)
    runs = {name: grid.runs(name) for name in settings}
    rows = [Row.of(name, own, runs[name]) for name, own in settings.items()]
    title = (
        f"{experiment}: {config.data.name}, {config.method.name}, {config.federation.cohort} of {config.clients.count}"
    )
    plot_settings(runs, grid.folder / "curves.png", f"{title} clients a round, {seeds} seeds")
    delta = list(settings.values())[-1].privacy.delta
    result = Reproduction(grid.folder, delta, rows, config.engine.name == "plaintext")
    write_table(grid.folder, "table", markdown(result.table()), [row.as_dict() for row in rows])
    return result


def _as_the_paper(plan: PrivacyPlan) -> PrivacyPlan:
    return replace(plan, accountant="paper")
