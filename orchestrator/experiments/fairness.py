"""What fairness costs and brings: several arms, several seeds, and their differences to FedAvg seed by seed.

Every run is an ordinary training with a run folder of its own. Every arm that was run is shown, on the test nodes;
which arm of a method one would choose, and with `reference` which round, is decided on the validation nodes alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.config import Config
from orchestrator.evaluation.figures import metric_names
from orchestrator.evaluation.group_table import GAPS
from orchestrator.evaluation.metrics import moving_average
from orchestrator.experiments.fairness_settings import BASELINE, family
from orchestrator.experiments.grid import GridPlan, Observer, run_grid
from orchestrator.experiments.paired import Paired
from orchestrator.experiments.tables import Spread, markdown, metric, nodes_behind, write_table
from orchestrator.registry import CENTRALISED
from orchestrator.reports.plots import plot_plane, plot_settings

__all__ = ["Arm", "FairnessComparison", "compare_fairness", "reference_round"]


_UTILITY = ("auc", "balanced_accuracy")

_ALLOWED = 0.01
"""How much less utility than the baseline's an arm may have on the validation nodes to be chosen for its gaps."""

_REFERENCE_ACCURACY = 0.66
"""F2GNN's reference code, ``--acc``: rounds of a larger validation accuracy are looked at for their gaps."""


@dataclass(frozen=True)
class Arm:
    """One arm's figures.

    Attributes:
        name: of the arm.
        values: by metric and in the order of the seeds, of the test nodes; None where undefined.
        nodes: by gap, the nodes of group 0 and group 1 behind it.
        validation: as `values`, of the validation nodes.
    """

    name: str
    values: Mapping[str, tuple[float | None, ...]]
    nodes: Mapping[str, tuple[int, int] | None]
    validation: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, runs: Sequence[Sequence[Mapping[str, Any]]], reference: bool = False) -> Arm:
        """From the records of each seed.

        Args:
            reference: figures are of the round that F2GNN's reference code would choose, see `reference_round`; else
                means over the last 20 rounds.
        """
        last = [run[-1]["test"] for run in runs]
        names = [n for n in metric_names(last[0]) if n in (*_UTILITY, *GAPS)]

        def figures(mask: str) -> dict[str, tuple[float | None, ...]]:
            if reference:
                chosen = [reference_round(run) for run in runs]
                return {n: tuple(record[mask][n] for record in chosen) for n in names}
            return {n: tuple(moving_average([record[mask][n] for record in run])[-1] for run in runs) for n in names}

        return cls(name, figures("test"), {n: nodes_behind(last, n) for n in names}, figures("val"))

    def on_validation(self, names: Sequence[str]) -> list[float] | None:
        """Mean over the seeds of some metrics, of the validation nodes; None where one is undefined."""
        found = [Spread.of(self.validation[n]).mean for n in names if n in self.validation]
        return None if None in found or not found else [value for value in found if value is not None]

    def chance(self, gap: str) -> float | None:
        """What a gap between two equal rates of one half comes to in the mean, for so few nodes: E|N(0, sd)|.

        Half is the rate at which it is largest; no model can be seen to do better on these nodes.
        """
        if (nodes := self.nodes.get(gap)) is None or not all(nodes):
            return None
        return math.sqrt(2 / math.pi * 0.25 * (1 / nodes[0] + 1 / nodes[1]))


@dataclass(frozen=True)
class FairnessComparison:
    """Where everything lies, and the arms, of which one is `BASELINE`."""

    folder: Path
    seeds: int
    arms: Sequence[Arm]
    reference: bool = False

    @property
    def baseline(self) -> Arm:
        return next(arm for arm in self.arms if arm.name == BASELINE)

    @property
    def selected(self) -> list[Arm]:
        """Of every method with several arms, the one that the validation nodes speak for.

        That is the one with the least sum of gaps among those that have at most 0.01 less AUC and balanced accuracy
        than the baseline, means over the seeds; without such an arm none.
        """
        methods = dict.fromkeys(family(arm.name) for arm in self.arms)
        chosen = [self._selected([arm for arm in self.arms if family(arm.name) == method]) for method in methods]
        return [arm for arm in chosen if arm is not None]

    @staticmethod
    def _in_words(baseline: Arm, other: Arm) -> str:
        """What the second of two arms costs and brings."""
        pairs = {n: (Spread.of(baseline.values[n]).mean, Spread.of(other.values[n]).mean) for n in other.values}
        moved = ", ".join(f"{name} from {metric(before)} to {metric(after)}" for name, (before, after) in pairs.items())
        return f"{other.name} instead of {baseline.name} takes {moved}"

    def _selected(self, arms: Sequence[Arm]) -> Arm | None:
        least = self.baseline.on_validation(_UTILITY)
        if len(arms) < 2 or least is None or family(arms[0].name) == CENTRALISED:
            return None
        allowed: list[tuple[float, Arm]] = []
        for arm in arms:
            utility, gaps = arm.on_validation(_UTILITY), arm.on_validation(GAPS)
            if utility and gaps and all(u >= b - _ALLOWED for u, b in zip(utility, least, strict=True)):
                allowed.append((sum(gaps), arm))
        return min(allowed, key=lambda pair: pair[0])[1] if allowed else None

    def table(self) -> list[dict[str, str | None]]:
        """A row an arm, as it is shown."""
        rows = []
        for arm in self.arms:
            row: dict[str, str | None] = {"arm": arm.name}
            for name, values in arm.values.items():
                row[name] = str(Spread.of(values))
                other = self.baseline.values[name]
                row[f"{name} less {BASELINE}'s"] = None if arm is self.baseline else str(Paired.of(values, other))
            rows.append(row)
        return rows

    def as_dict(self) -> dict[str, Any]:
        """The JSON document of `safegnn reproduce fairness`."""
        return {
            "folder": str(self.folder),
            "seeds": self.seeds,
            "baseline": BASELINE,
            "selected": [arm.name for arm in self.selected],
            "rows": self.rows(),
        }

    def rows(self) -> list[dict[str, Any]]:
        """Flat, for a table."""
        rows = []
        for arm in self.arms:
            row: dict[str, Any] = {"arm": arm.name}
            for name, values in arm.values.items():
                row[name], row[f"{name}_sd"] = Spread.of(values)
                paired = Paired.of(values, self.baseline.values[name])
                row[f"{name}_difference"], row[f"{name}_difference_low"], row[f"{name}_difference_high"] = paired
                row[f"{name}_by_seed"] = list(values)
            rows.append(row)
        return rows

    @property
    def closing(self) -> str:
        """What has to be known beside the table."""
        rounds = "the round that the reference code chooses" if self.reference else "means of the last 20 rounds"
        lines = [f"test nodes, {rounds}, {self.seeds} seed{'s' * (self.seeds > 1)}; all arms that were run"]
        if len(self.arms) == 2:
            lines.append(self._in_words(*self.arms))
        if self.selected:
            names = ", ".join(arm.name for arm in self.selected)
            lines.append(f"of each method's arms the validation nodes choose: {names} (least gaps for at most 0.01)")
        for gap in GAPS:
            if (floor := self.baseline.chance(gap)) is not None:
                n0, n1 = self.baseline.nodes[gap] or (0, 0)
                lines.append(
                    f"{gap} is of {n0} and {n1} nodes: equal rates of one half differ by {metric(floor)} in the mean"
                )
        return "\n".join([*lines, f"table, curves, plane: {self.folder}"])


def reference_round(run: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The round that F2GNN's reference code keeps (commit e9f888b): of those whose validation accuracy is above 0.66
    the one with the least sum of both validation gaps; without one, that of the best validation accuracy.

    Args:
        run: records, at least one. What is undefined counts as worst.
    """

    def gaps(record: Mapping[str, Any]) -> float:
        found = [record["val"].get(gap) for gap in GAPS]
        return math.inf if None in found else sum(found)

    good = [record for record in run if (record["val"]["accuracy"] or 0.0) > _REFERENCE_ACCURACY]
    return min(good, key=gaps) if good else max(run, key=lambda record: record["val"]["accuracy"] or 0.0)


def compare_fairness(
    experiment: str,
    config: Config,
    settings: Mapping[str, Config],
    seeds: int = 5,
    *,
    reference: bool = False,
    resume: Path | None = None,
    observe: Observer = lambda name, seed, result: None,
    announce: Callable[[str], None] = lambda text: None,
    started: Callable[[Path], None] = lambda folder: None,
) -> FairnessComparison:
    """Train every arm with `seeds` seeds; write `table.md`, `table.csv`, `curves.png` and `plane.png`.

    Arguments as of `reproduction.reproduce`, and `reference` as of `Arm.of`; one of the settings is `BASELINE`.

    Raises:
        SafeGNNError: as `run_grid`.
    """
    plan = GridPlan(experiment, config, settings, seeds)
    title = f"reproduce-{experiment}-{config.data.name}"
    grid = run_grid(plan, title, resume=resume, observe=observe, announce=announce, started=started)
    result = FairnessComparison(
        grid.folder, seeds, [Arm.of(name, grid.runs(name), reference) for name in settings], reference
    )
    heading = f"{config.data.name}, {config.federation.cohort} of {config.clients.count} clients, {seeds} seeds"
    plot_settings({name: grid.runs(name) for name in settings}, grid.folder / "curves.png", heading)
    plot_plane({arm.name: arm.values for arm in result.arms}, grid.folder / "plane.png", heading)
    text = f"{markdown(result.table())}\n\n{result.closing}"
    flat = [{k: v for k, v in row.items() if not k.endswith("_by_seed")} for row in result.rows()]
    write_table(grid.folder, "table", text, flat)
    return result
