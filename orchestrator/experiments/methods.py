"""Several methods on one partition, with several seeds: curves, and a table of means and standard deviations.

Every run is an ordinary training with a run folder of its own. All methods of a seed see the same clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config import Config
from orchestrator.evaluation.metrics import metric_names
from orchestrator.experiments.contenders import contender
from orchestrator.experiments.grid import GridPlan, Observer, run_grid
from orchestrator.experiments.tables import Spread, markdown, write_table
from orchestrator.reports.plots import plot_settings

__all__ = ["MethodComparison", "Score", "best_round", "compare_methods"]


@dataclass(frozen=True)
class Score:
    """One metric of one method over the seeds, of the test nodes.

    Attributes:
        method, metric: names.
        best: in the `best_round`.
        last: after the last round.
        values: by seed, in the best round.
    """

    method: str
    metric: str
    best: Spread
    last: Spread
    values: tuple[float | None, ...]

    @classmethod
    def of(cls, method: str, metric: str, runs: Sequence[Sequence[Mapping[str, Any]]]) -> Score:
        """From the records of each seed."""
        best = tuple(best_round(run)["test"][metric] for run in runs)
        return cls(method, metric, Spread.of(best), Spread.of([run[-1]["test"][metric] for run in runs]), best)

    def as_dict(self) -> dict[str, Any]:
        """Flat, for a table and for JSON."""
        best, last = self.best, self.last
        spreads = {"best": best.mean, "best_sd": best.sd, "last": last.mean, "last_sd": last.sd}
        return {"method": self.method, "metric": self.metric, **spreads, "values": self.values}


@dataclass(frozen=True)
class MethodComparison:
    """Where everything lies, and the table: one `Score` for each method and metric."""

    folder: Path
    seeds: int
    scores: Sequence[Score]

    def as_dict(self) -> dict[str, Any]:
        """The JSON document of ``safegnn compare --methods``."""
        return {"folder": str(self.folder), "seeds": self.seeds, "scores": [score.as_dict() for score in self.scores]}

    def table(self) -> list[dict[str, str]]:
        """A row a method by column name: of the test nodes, mean ± sample standard deviation over the seeds."""
        rows: dict[str, dict[str, str]] = {}
        for score in self.scores:
            row = rows.setdefault(score.method, {"method": score.method})
            row[f"{score.metric}, best validation round"] = str(score.best)
            row[f"{score.metric}, last round"] = str(score.last)
        return list(rows.values())


def compare_methods(
    config: Config,
    methods: Sequence[str],
    seeds: int,
    *,
    resume: Path | None = None,
    observe: Observer = lambda name, seed, result: None,
    announce: Callable[[str], None] = lambda text: None,
    started: Callable[[Path], None] = lambda folder: None,
) -> MethodComparison:
    """Train every method with `seeds` seeds, from config.seed on; write `table.md`, `table.csv` and `curves.png`.

    Args:
        resume, observe, announce, started: as in `run_grid`.

    Raises:
        ConfigError: a method does not fit the settings; before anything is trained.
        SafeGNNError: as `run_grid`.
    """
    settings = {name: contender(config, name) for name in methods}
    title = f"compare-{config.data.name}-{config.clients.partition}-methods"
    plan = GridPlan("methods", config, settings, seeds)
    grid = run_grid(plan, title, resume=resume, observe=observe, announce=announce, started=started)
    runs = {name: grid.runs(name) for name in settings}
    title = f"{config.data.name}, {config.clients.partition}, {config.clients.count} clients, {seeds} seeds"
    plot_settings(runs, grid.folder / "curves.png", title)
    metrics = metric_names(next(iter(runs.values()))[0][0]["val"])
    scores = [Score.of(name, metric, own) for name, own in runs.items() for metric in metrics]
    result = MethodComparison(grid.folder, seeds, scores)
    write_table(grid.folder, "table", markdown(result.table()), [score.as_dict() for score in scores])
    return result


def best_round(run: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The record of the round of the best validation accuracy, the first of equal ones; as FED-PUB reports it."""
    return max(run, key=lambda record: -1.0 if (value := record["val"]["accuracy"]) is None else value)
