"""The same training with several engines, from the same seeds, and how far they part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config import Config
from orchestrator.coordinator.factory import create_engine
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import RoundResult, train
from orchestrator.evaluation.metrics import metric_names
from orchestrator.graphs import load_graph
from orchestrator.reports.plots import plot_comparison

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes:
        folder: holds one run folder an engine and the overlaid curves.
        rounds: how many; fewer than configured where the privacy budget ended training.
        max_model_difference: over all rounds, the largest |released - float64 aggregation of the same uploads| of the
            secret-shared runs; None with noise, which no one but the servers can subtract.
        worst_share_of_bound: over all rounds, the largest difference / fixed-point bound of that round; at most 1.
        final: by engine, the metrics after the last round.
        largest: by metric, the largest difference between two engines in any round; None if never defined.
    """

    folder: Path
    rounds: int
    max_model_difference: float | None
    worst_share_of_bound: float | None
    final: Mapping[str, Mapping[str, float | None]]
    largest: Mapping[str, float | None]

    def as_dict(self) -> dict[str, Any]:
        """The JSON document of `safegnn compare`."""
        return {
            "folder": str(self.folder),
            "rounds": self.rounds,
            "max_model_difference": self.max_model_difference,
            "worst_share_of_bound": self.worst_share_of_bound,
            "largest_difference": dict(self.largest),
            "engines": {name: dict(metrics) for name, metrics in self.final.items()},
        }


def compare(
    config: Config,
    engines: Sequence[str] = ("plaintext", "embedded"),
    observe: Callable[[str, RoundResult], None] = lambda engine, result: None,
) -> Comparison:
    """Train with each engine and overlay the curves.

    Raises:
        ConfigError: an engine lacks what it needs; before anything is trained.
        ProtocolError: a released model lies further from float64 than its bound allows.
    """
    settings = {name: config.changed(engine={"name": name}) for name in engines}
    made = {name: create_engine(own) for name, own in settings.items()}
    graph = load_graph(config.data, config.seed)
    parent = RunFolder.create(config, f"compare-{config.data.name}-{config.method.name}")
    records: dict[str, list[dict[str, Any]]] = {}
    differences: list[float] = []
    shares: list[float] = []
    for name in engines:
        own = settings[name].changed(run={"dir": parent.path})
        folder = RunFolder.create(own, name)

        def watch(result: RoundResult, name: str = name) -> None:
            if name != "plaintext" and result.difference is not None and result.bound is not None:
                differences.append(result.difference)
                shares.append(result.difference / result.bound)
            observe(name, result)

        train(own, folder, audit=True, observe=watch, graph=graph, engine=made[name])
        records[name] = folder.records()
    plot_comparison(records, parent.path / "comparison.png", f"{config.data.name}, {config.method.name}")
    names = metric_names(next(iter(records.values()))[0]["val"])
    return Comparison(
        folder=parent.path,
        rounds=min(len(rows) for rows in records.values()),
        max_model_difference=max(differences, default=None),
        worst_share_of_bound=max(shares, default=None),
        final={name: {metric: rows[-1]["val"][metric] for metric in names} for name, rows in records.items()},
        largest={metric: _largest(list(records.values()), metric) for metric in names},
    )


def _largest(runs: Sequence[Sequence[Mapping[str, Any]]], metric: str) -> float | None:
    spreads = []
    for rows in zip(*runs, strict=True):
        values = [row["val"][metric] for row in rows]
        if None not in values:
            spreads.append(max(values) - min(values))
    return max(spreads, default=None)
