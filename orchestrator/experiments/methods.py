"""Several methods on one partition, with several seeds: curves, and a table of means and standard deviations.

Every run is an ordinary training with a run folder of its own. All methods of a seed see the same clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pandas as pd

from orchestrator.config import Config, validated
from orchestrator.coordinator.factory import create_engine
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import RoundResult, train
from orchestrator.errors import ConfigError
from orchestrator.evaluation.metrics import metric_names
from orchestrator.graphs import load_graph
from orchestrator.registry import METHODS
from orchestrator.reports.plots import plot_settings
from orchestrator.reports.similarity import draw_similarity

__all__ = ["CENTRALISED", "MethodComparison", "Score", "compare_methods", "contender", "markdown"]

CENTRALISED = "centralised"
"""One client that holds the whole graph and trains alone: an upper bound, and no federation."""


@dataclass(frozen=True)
class Score:
    """One metric of one method over the seeds: mean and sample standard deviation, of the test nodes.

    Attributes:
        method, metric: names.
        best, best_sd: in the round of the best validation accuracy, the first of equal ones; as FED-PUB reports it.
        last, last_sd: after the last round.
        values: by seed, in the best round.
    """

    method: str
    metric: str
    best: float | None
    best_sd: float | None
    last: float | None
    last_sd: float | None
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class MethodComparison:
    """Where everything lies, and the table: one `Score` for each method and metric."""

    folder: Path
    seeds: int
    scores: Sequence[Score]

    def as_dict(self) -> dict[str, Any]:
        """The JSON document of ``safegnn compare --methods``."""
        return {"folder": str(self.folder), "seeds": self.seeds, "scores": [asdict(score) for score in self.scores]}


def contender(config: Config, name: str) -> Config:
    """The settings of a method, or of `CENTRALISED`, that are otherwise those of the given configuration.

    A method that cannot train the configured network trains the first one that it can.

    Raises:
        ConfigError: there is no such method, or the settings do not fit it.
    """
    if name not in (*METHODS, CENTRALISED):
        raise ConfigError(f"--methods {name}: expected one of {', '.join((*METHODS, CENTRALISED))}")
    tree = config.model_dump()
    tree["method"]["name"] = "local" if name == CENTRALISED else name
    networks = METHODS[tree["method"]["name"]].networks
    if networks and tree["model"]["name"] not in networks:
        tree["model"]["name"] = networks[0]
    if name == CENTRALISED:
        tree["clients"] |= {"partition": "whole", "count": 1}
        tree["federation"] |= {"cohort": 1, "sampling": "distinct"}
    try:
        return validated(tree)
    except ConfigError as error:
        raise ConfigError(f"--methods {name}: {error}") from None


def compare_methods(
    config: Config,
    methods: Sequence[str],
    seeds: int,
    observe: Callable[[str, RoundResult], None] = lambda name, result: None,
) -> MethodComparison:
    """Train every method with `seeds` seeds, from config.seed on; write `table.md`, `table.csv` and `curves.png`.

    Raises:
        ConfigError: a method does not fit the settings; before anything is trained.
    """
    settings = {name: contender(config, name) for name in methods}
    for own in settings.values():
        create_engine(own)  # refuses what no engine can do
    parent = RunFolder.create(config, f"compare-{config.data.name}-{config.clients.partition}-methods")
    records: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in methods}
    for seed in range(config.seed, config.seed + seeds):
        graph = load_graph(config.data, seed)
        for name, own in settings.items():
            run = own.changed(seed=seed, run={"dir": parent.path})
            folder = RunFolder.create(run, f"{name}-seed-{seed}")
            train(run, folder, observe=partial(observe, name), graph=graph)
            draw_similarity(folder, graph, run)
            records[name].append(folder.records())
    title = f"{config.data.name}, {config.clients.partition}, {config.clients.count} clients, {seeds} seeds"
    plot_settings(records, parent.path / "curves.png", title)
    metrics = metric_names(next(iter(records.values()))[0][0]["val"])
    scores = [_score(name, metric, runs) for name, runs in records.items() for metric in metrics]
    result = MethodComparison(parent.path, seeds, scores)
    pd.DataFrame([asdict(score) for score in scores]).to_csv(parent.path / "table.csv", index=False)
    (parent.path / "table.md").write_text(markdown(result), encoding="utf-8")
    return result


def markdown(result: MethodComparison) -> str:
    """The table as Markdown: test nodes, mean ± sample standard deviation over the seeds."""
    metrics = list(dict.fromkeys(score.metric for score in result.scores))
    by_name: dict[str, dict[str, Score]] = {}
    for score in result.scores:
        by_name.setdefault(score.method, {})[score.metric] = score
    head = ["method", *(f"{m}, {when}" for m in metrics for when in ("best validation round", "last round"))]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name, scores in by_name.items():
        cells = [
            cell
            for m in metrics
            for cell in (_cell(scores[m].best, scores[m].best_sd), _cell(scores[m].last, scores[m].last_sd))
        ]
        lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join(lines) + "\n"


def _cell(middle: float | None, spread: float | None) -> str:
    if middle is None:
        return "undefined"
    return f"{middle:.4f}" if spread is None else f"{middle:.4f} ± {spread:.4f}"


def _score(name: str, metric: str, runs: Sequence[Sequence[Mapping[str, Any]]]) -> Score:
    best = [_best(run)["test"][metric] for run in runs]
    return Score(name, metric, *_spread(best), *_spread([run[-1]["test"][metric] for run in runs]), tuple(best))


def _best(run: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return max(run, key=lambda record: -1.0 if (value := record["val"]["accuracy"]) is None else value)


def _spread(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    defined = [value for value in values if value is not None]
    if len(defined) < len(values):
        return None, None
    return mean(defined), stdev(defined) if len(defined) > 1 else None
