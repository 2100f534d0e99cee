"""Several runs as a comparison: which belong together, and what one has more than another, seed by seed.

One rule for every figure of a comparison: test nodes, the mean over the last 20 rounds, no round chosen by looking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.errors import RunError
from orchestrator.evaluation.figures import metric_names
from orchestrator.evaluation.metrics import moving_average
from orchestrator.experiments.paired import Paired
from orchestrator.experiments.plan import GridPlan
from orchestrator.page.record import Record
from orchestrator.page.verdicts import NAMES
from orchestrator.registry import CENTRALISED

__all__ = ["Arms", "leaves", "read_runs"]

_BASELINE = "fedavg"
_NOT_SETTINGS = ("seed", "run.", "engine.client_processes", "engine.ports")
_FIRST = ("method.name", "engine.name", "privacy.noise_multiplier", "federation.cohort", "federation.sampling")


def read_runs(paths: Iterable[Path], exact_metrics: bool = False) -> tuple[list[tuple[str, Record]], list[str]]:
    """The runs in some folders, by the name that a comparison gives them or ""; and what could not be read.

    Args:
        paths: run folders, and folders of comparisons, whose runs are taken as far as there are any.

    Raises:
        RunError: there is no run at all, or a path is neither.
    """
    runs: list[tuple[str, Record]] = []
    missing: list[str] = []
    for path in paths:
        if not (path / "plan.json").is_file():
            runs.append(("", Record.read(path, exact_metrics)))
            continue
        plan = GridPlan.load(path)
        for name, _, folder in plan.runs(path):
            if (folder / "config.yaml").is_file():
                runs.append((name, Record.read(folder, exact_metrics)))
            else:
                missing.append(f"{folder.name}: the comparison has not come to this run yet")
    if not runs:
        raise RunError("report: no run was begun in the folders that were given")
    return runs, missing


def leaves(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The settings of a tree of plain values by their full names."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= leaves(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found


@dataclass(frozen=True)
class Arms:
    """Runs by arm and seed.

    Attributes:
        runs: by arm, in the order in which they came, and by seed.
        baseline: the arm that others are compared with; FedAvg where it is there.
        differing: settings in which arms differ, by name, and by arm their value.
        unpaired: why arms cannot be compared seed by seed; empty where they can.
        doubles: runs that are left out, since another of the same settings and seed is there.
    """

    runs: Mapping[str, Mapping[int, Record]]
    baseline: str
    differing: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unpaired: str = ""
    doubles: tuple[str, ...] = ()

    @classmethod
    def of(cls, runs: Sequence[tuple[str, Record]]) -> Arms:
        """From `read_runs`."""
        trees = [leaves(record.config.model_dump(mode="json")) for _, record in runs]
        names = list(dict.fromkeys(name for tree in trees for name in tree if not name.startswith(_NOT_SETTINGS)))
        varying = [name for name in names if len({repr(tree.get(name)) for tree in trees}) > 1]
        called = [name for name, _ in runs]
        if not all(called):
            called = _labels(trees, varying)
        arms: dict[str, dict[int, Record]] = {}
        kept: dict[str, dict[str, Any]] = {}
        doubles = []
        for name, (_, record), tree in zip(called, runs, trees, strict=True):
            own = arms.setdefault(name, {})
            if record.config.seed in own:
                doubles.append(
                    f"{record.path}: another run of {name} has seed {record.config.seed} too; it is left out"
                )
                continue
            own[record.config.seed] = record
            kept.setdefault(name, tree)
        by_method = {next(iter(own.values())).config.method.name: name for name, own in reversed(arms.items())}
        baseline = _BASELINE if _BASELINE in arms else by_method.get(_BASELINE, next(iter(arms)))
        differing = {name: {arm: tree.get(name, "–") for arm, tree in kept.items()} for name in varying}
        differing = {name: values for name, values in differing.items() if len({*map(repr, values.values())}) > 1}
        return cls(arms, baseline, differing, _unpaired(arms), tuple(doubles))

    @property
    def records(self) -> list[Record]:
        """All runs."""
        return [record for own in self.runs.values() for record in own.values()]

    @property
    def several(self) -> bool:
        """Whether there is more than one run."""
        return len(self.records) > 1

    def first(self, arm: str) -> Record:
        """The run of the first seed."""
        return next(iter(self.runs[arm].values()))

    def metrics(self) -> list[str]:
        """Those that a page speaks of and some run has."""
        found = {name for record in self.records for name in metric_names(record.last())}
        return [name for name in NAMES if name in found]

    def values(self, arm: str, name: str) -> dict[int, float | None]:
        """By seed, the metric by the rule above."""
        found: dict[int, float | None] = {}
        for seed, record in self.runs[arm].items():
            series = record.series("test", name)
            found[seed] = moving_average(series)[-1] if series else None
            if found[seed] is None and len(series) == 1:
                found[seed] = series[0]
        return found

    def paired(self, arm: str, name: str) -> tuple[Paired, int]:
        """What an arm has more than the baseline, over the seeds that both have; and how many these are."""
        own, other = self.values(arm, name), self.values(self.baseline, name)
        seeds = [seed for seed in own if seed in other]
        return Paired.of([own[seed] for seed in seeds], [other[seed] for seed in seeds]), len(seeds)


def _labels(trees: Sequence[Mapping[str, Any]], varying: Sequence[str]) -> list[str]:
    """The fewest settings that tell the runs apart, as names of arms."""
    order = [*[n for n in _FIRST if n in varying], *[n for n in varying if n not in _FIRST]]
    whole = [tuple(repr(tree.get(name)) for name in varying) for tree in trees]
    if not order:
        return [str(tree.get("method.name")) for tree in trees]
    chosen: list[str] = []
    for name in order:
        if len({tuple(repr(tree.get(n)) for n in chosen) for tree in trees}) == len(set(whole)):
            break
        chosen.append(name)

    def label(tree: Mapping[str, Any]) -> str:
        said = [str(tree.get(n)) if n in _FIRST[:2] else f"{n.split('.')[-1]} {tree.get(n)}" for n in chosen]
        return ", ".join(said)

    return [label(tree) for tree in trees]


def _unpaired(arms: Mapping[str, Mapping[int, Record]]) -> str:
    """Pairs mean the same graph cut into the same clients. What trains on the whole by design is no fault."""
    for seed in {seed for own in arms.values() for seed in own}:
        found = [
            own[seed]
            for name, own in arms.items()
            if seed in own and name != CENTRALISED and own[seed].config.clients.partition != "whole"
        ]
        digests = {repr((run.digests, run.config.clients.count)) for run in found if run.digests is not None}
        if len(digests) > 1:
            return f"the runs of seed {seed} are of different data or clients"
    return ""
