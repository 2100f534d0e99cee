"""Several methods on one partition, with several seeds: curves, and a table of means and standard deviations.

Every run is an ordinary training with a run folder of its own. All methods of a seed see the same clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.config import Config
from orchestrator.evaluation.figures import metric_names
from orchestrator.experiments.contenders import contender
from orchestrator.experiments.grid import GridPlan, Observer, run_grid
from orchestrator.experiments.paired import Paired
from orchestrator.experiments.tables import Spread, markdown, nodes_behind, with_nodes, write_table
from orchestrator.reports.plots import plot_settings

__all__ = ["MethodComparison", "Score", "best_round", "compare_methods"]


_DIFFERENCE = ("difference", "difference_low", "difference_high")


@dataclass(frozen=True)
class Score:
    """One metric of one method over the seeds, of the test nodes.

    Attributes:
        method, metric: names.
        best: in the `best_round`.
        last: after the last round.
        values: by seed, in the best round.
        nodes: of a gap, those of group 0 and group 1 that it compares in the best round, the fewest over the seeds.
        interval: of a gap and a single seed, its 95 % interval in the best round; several seeds have their spread.
        difference: to the first method, seed by seed, in the best rounds; None of that method itself.
    """

    method: str
    metric: str
    best: Spread
    last: Spread
    values: tuple[float | None, ...]
    nodes: tuple[int, int] | None = None
    interval: tuple[float | None, float | None] = (None, None)
    difference: Paired | None = None

    @classmethod
    def of(cls, method: str, metric: str, runs: Sequence[Sequence[Mapping[str, Any]]]) -> Score:
        """From the records of each seed."""
        tests = [best_round(run)["test"] for run in runs]
        best, nodes = tuple(test[metric] for test in tests), nodes_behind(tests, metric)
        interval: tuple[float | None, float | None] = (None, None)
        if nodes is not None and len(runs) == 1:
            interval = tests[0]["gaps"][metric]["low"], tests[0]["gaps"][metric]["high"]
        last = Spread.of([run[-1]["test"][metric] for run in runs])
        return cls(method, metric, Spread.of(best), last, best, nodes, interval)

    def as_dict(self) -> dict[str, Any]:
        """Flat, for a table and for JSON."""
        best, last = self.best, self.last
        spreads = {"best": best.mean, "best_sd": best.sd, "last": last.mean, "last_sd": last.sd}
        low, high = self.interval
        n_s0, n_s1 = self.nodes or (None, None)
        behind = {"low": low, "high": high, "n_s0": n_s0, "n_s1": n_s1}
        behind |= dict(zip(_DIFFERENCE, self.difference or (None, None, None), strict=True))
        return {"method": self.method, "metric": self.metric, **spreads, **behind, "values": self.values}

    def cells(self) -> dict[str, str]:
        """By column name: mean ± sample standard deviation over the seeds; a gap of one seed with its interval."""
        best, (low, high) = str(self.best), self.interval
        if low is not None and high is not None:
            best += f" [{low:.4f}, {high:.4f}]"
        return {
            f"{self.metric}, best validation round": with_nodes(best, self.nodes),
            f"{self.metric}, last round": str(self.last),
        }


@dataclass(frozen=True)
class MethodComparison:
    """Where everything lies, and the table: one `Score` for each method and metric."""

    folder: Path
    seeds: int
    scores: Sequence[Score]

    def as_dict(self) -> dict[str, Any]:
        """The JSON document of ``safegnn compare --methods``."""
        return {"folder": str(self.folder), "seeds": self.seeds, "scores": [score.as_dict() for score in self.scores]}

    def table(self, over_clients: bool = False) -> list[dict[str, str]]:
        """A row a method by column name, of the test nodes.

        Args:
            over_clients: the mean and the worst of the clients' own gaps, where there are any, instead of the rest.
        """
        rows: dict[str, dict[str, str]] = {}
        for score in self.scores:
            if score.metric.endswith(("_mean", "_worst")) == over_clients:
                rows.setdefault(score.method, {"method": score.method}).update(score.cells())
        return list(rows.values())

    def differences(self) -> list[dict[str, str]]:
        """A row for every method but the first: by metric how much it has more, seed by seed; none of a single seed."""
        rows: dict[str, dict[str, str]] = {}
        for score in self.scores:
            if score.difference is not None and self.seeds > 1:
                rows.setdefault(score.method, {f"less {self.scores[0].method}": score.method})
                rows[score.method][score.metric] = str(score.difference)
        return list(rows.values())

    def text(self) -> str:
        """All tables in Markdown."""
        tables = (self.table(), self.table(over_clients=True), self.differences())
        return "\n\n".join(markdown(table) for table in tables if table)


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
    first = {score.metric: score.values for score in scores if score.method == methods[0]}
    scores = [
        own if own.method == methods[0] else replace(own, difference=Paired.of(own.values, first[own.metric]))
        for own in scores
    ]
    result = MethodComparison(grid.folder, seeds, scores)
    write_table(grid.folder, "table", result.text(), [score.as_dict() for score in scores])
    return result


def best_round(run: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The record of the round of the best validation accuracy, the first of equal ones; as FED-PUB reports it."""
    return max(run, key=lambda record: -1.0 if (value := record["val"]["accuracy"]) is None else value)
