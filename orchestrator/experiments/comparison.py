"""The same training with several engines, from the same seeds, and how far they part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.config import Config
from orchestrator.evaluation.figures import metric_names
from orchestrator.experiments.grid import GridPlan, Observer, run_grid
from orchestrator.experiments.tables import gap_lines, markdown, metric, write_table
from orchestrator.reports.plots import plot_comparison

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes:
        folder: holds one run folder an engine, the overlaid curves, and the table as Markdown and CSV.
        rounds: how many; fewer than configured where the privacy budget ended training.
        max_model_difference: over all rounds, the largest |released - float64 aggregation of the same uploads| of the
            secret-shared runs; None with noise, which no one but the servers can subtract.
        worst_share_of_bound: over all rounds, the largest difference / fixed-point bound of that round; at most 1.
        final: by engine, the metrics after the last round.
        gaps: by engine, how sure its gaps are there; see `Evaluation.gaps`.
        undefined: by engine, why a metric is None there.
        largest: by metric, the largest difference between two engines in any round; None if never defined.
    """

    folder: Path
    rounds: int
    max_model_difference: float | None
    worst_share_of_bound: float | None
    final: Mapping[str, Mapping[str, float | None]]
    largest: Mapping[str, float | None]
    gaps: Mapping[str, Mapping[str, Mapping[str, float | None]]] = field(default_factory=dict)
    undefined: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The JSON document of `safegnn compare`."""
        return {
            "folder": str(self.folder),
            "rounds": self.rounds,
            "max_model_difference": self.max_model_difference,
            "worst_share_of_bound": self.worst_share_of_bound,
            "largest_difference": dict(self.largest),
            "engines": {name: dict(metrics) for name, metrics in self.final.items()},
            "gaps": {name: dict(gaps) for name, gaps in self.gaps.items()},
        }

    def gap_lines(self) -> list[str]:
        """A line for each engine and gap: its size, its interval, and the nodes that it is of."""
        engines = self.gaps.items()
        return [f"{e}, {line}" for e, gaps in engines for line in gap_lines(self.final[e], gaps, self.undefined[e])]

    def rows(self) -> list[dict[str, str | float | None]]:
        """The table by column name: a row a metric, its values after the last round and how far engines part."""
        table = []
        for name, largest in self.largest.items():
            values = {engine: metrics[name] for engine, metrics in self.final.items()}
            finals = {f"final, {engine}": value for engine, value in values.items()}
            parted = {"final difference": _spread(list(values.values())), "largest difference": largest}
            table.append({"validation": name, **finals, **parted})
        return table

    def table(self) -> list[dict[str, str]]:
        """The rows as they are shown."""
        return [{key: v if isinstance(v, str) else metric(v) for key, v in row.items()} for row in self.rows()]


def compare(
    config: Config,
    engines: Sequence[str] = ("plaintext", "embedded"),
    *,
    resume: Path | None = None,
    observe: Observer = lambda engine, seed, result: None,
    announce: Callable[[str], None] = lambda text: None,
    started: Callable[[Path], None] = lambda folder: None,
) -> Comparison:
    """Train with each engine and overlay the curves.

    Args:
        resume, observe, announce, started: as in `run_grid`.

    Raises:
        ConfigError: an engine lacks what it needs; before anything is trained.
        SafeGNNError: as `run_grid`.
        ProtocolError: a released model lies further from float64 than its bound allows.
    """
    settings = {name: config.changed(engine={"name": name}) for name in engines}
    title = f"compare-{config.data.name}-{config.method.name}"
    plan = GridPlan("engines", config, settings)
    grid = run_grid(plan, title, resume=resume, audit=True, observe=observe, announce=announce, started=started)
    records = {name: grid.runs(name)[0] for name in engines}
    plot_comparison(records, grid.folder / "comparison.png", f"{config.data.name}, {config.method.name}")
    names = metric_names(next(iter(records.values()))[0]["val"])
    audits = [
        (row["model_difference"], row["model_difference_bound"])
        for name, rows in records.items()
        for row in rows
        if name != "plaintext" and row["model_difference"] is not None
    ]
    result = Comparison(
        folder=grid.folder,
        rounds=min(len(rows) for rows in records.values()),
        max_model_difference=max((difference for difference, _ in audits), default=None),
        worst_share_of_bound=max((difference / bound for difference, bound in audits), default=None),
        final={name: {metric: rows[-1]["val"][metric] for metric in names} for name, rows in records.items()},
        largest={metric: _largest(list(records.values()), metric) for metric in names},
        gaps={name: rows[-1]["val"].get("gaps", {}) for name, rows in records.items()},
        undefined={name: rows[-1]["val"]["undefined"] for name, rows in records.items()},
    )
    write_table(grid.folder, "table", markdown(result.table()), result.rows())
    return result


def _largest(runs: Sequence[Sequence[Mapping[str, Any]]], metric: str) -> float | None:
    """The largest difference between runs in any round in which all of them define the metric."""
    parted = (_spread([row["val"][metric] for row in rows]) for rows in zip(*runs, strict=True))
    return max((difference for difference in parted if difference is not None), default=None)


def _spread(values: Sequence[float | None]) -> float | None:
    """From the least to the largest; None where one is not defined, or there is one only."""
    defined = [value for value in values if value is not None]
    return max(defined) - min(defined) if len(defined) == len(values) > 1 else None
