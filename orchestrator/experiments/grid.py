"""The one loop over runs: every one of some named settings with every seed, a run folder each.

What is to be run stands in the folder, so that one that was interrupted is gone on with: runs that ended are kept, the
one that was interrupted goes on from its checkpoint, and the others follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from orchestrator.coordinator.factory import create_engine
from orchestrator.coordinator.round_result import RoundResult
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.experiments.plan import GridPlan
from orchestrator.experiments.run import run
from orchestrator.graphs import load_graph
from orchestrator.models import create_network

__all__ = ["Grid", "GridPlan", "Observer", "run_grid"]

Observer = Callable[[str, int, RoundResult], None]
"""Called after every round with the setting's name and the seed."""


@dataclass(frozen=True)
class Grid:
    """Finished runs.

    Attributes:
        folder: holds a run folder for every setting and seed.
        records: what `metrics.jsonl` holds, by setting and then by seed.
    """

    folder: Path
    records: Mapping[str, Mapping[int, list[dict[str, Any]]]]

    def runs(self, name: str) -> list[list[dict[str, Any]]]:
        """The records of a setting, one list a seed."""
        return list(self.records[name].values())


def run_grid(
    plan: GridPlan,
    title: str,
    *,
    resume: Path | None = None,
    audit: bool = False,
    observe: Observer = lambda name, seed, result: None,
    announce: Callable[[str], None] = lambda text: None,
    started: Callable[[Path], None] = lambda folder: None,
) -> Grid:
    """Train every setting with every seed, all settings of one seed before those of the next.

    A graph is loaded once for all settings that share data and seed.

    Args:
        plan: what to run.
        title: name of the folder, where it is a new one.
        resume: the folder of a grid of the same plan, to go on with.
        audit: as in `train`.
        observe: called after every round.
        announce: as in `train`.
        started: called with the folder once there is one.

    Raises:
        BusyError: another process goes on with the same folder.
        ConfigError: an engine lacks what it needs, or cannot do what is set, or a network does not fit the data of the
            first seed; before there is a folder.
        DataError: a graph cannot be loaded; of the first seed before there is a folder.
        RunError: the folder to go on with is of another plan.
        SafeGNNError: as `train`.
    """
    for own in plan.settings.values():
        create_engine(own)
    load = lru_cache(maxsize=len({own.data for own in plan.settings.values()}))(load_graph)
    for own in plan.settings.values():
        graph = load(own.data, plan.common.seed)
        create_network(graph.num_features, graph.classes, own.model)
    parent = RunFolder.create(plan.common, title) if resume is None else RunFolder(resume)
    with parent.lock:
        if resume is None:
            plan.save(parent.path)
        else:
            plan.check(parent.path)
        started(parent.path)
        records: dict[str, dict[int, list[dict[str, Any]]]] = {name: {} for name in plan.settings}
        for name, seed, path in plan.runs(parent.path):
            own = plan.settings[name].changed(seed=seed, run={"dir": parent.path})
            resumed = (path / "config.yaml").exists()
            folder = RunFolder(path) if resumed else RunFolder.furnish(path, own)
            watch, graph = partial(observe, name, seed), load(own.data, seed)
            run(own, folder, graph=graph, resume=resumed, audit=audit, observe=watch, announce=announce)
            records[name][seed] = folder.records()
    return Grid(parent.path, records)
