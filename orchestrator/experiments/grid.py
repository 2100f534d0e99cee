"""The one loop over runs: every one of some named settings with every seed, a run folder each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from orchestrator.config import Config
from orchestrator.coordinator.factory import create_engine
from orchestrator.coordinator.round_result import RoundResult
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.experiments.run import run
from orchestrator.graphs import load_graph
from orchestrator.models import create_network

__all__ = ["Grid", "Observer", "run_grid"]

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
    common: Config,
    title: str,
    settings: Mapping[str, Config],
    seeds: int | None = None,
    *,
    audit: bool = False,
    observe: Observer = lambda name, seed, result: None,
    announce: Callable[[str], None] = lambda text: None,
) -> Grid:
    """Train every setting with every seed, all settings of one seed before those of the next.

    A graph is loaded once for all settings that share data and seed.

    Args:
        common: where the folder goes, and what is said in it to have been common to all.
        title: name of the folder.
        settings: by name, at least one.
        seeds: how many, from common.seed on; the run folders are named after setting and seed. None: that one, and
            they are named after the setting alone.
        audit: as in `train`.
        observe: called after every round.
        announce: as in `train`.

    Raises:
        ConfigError: an engine lacks what it needs, or cannot do what is set, or a network does not fit the data of the
            first seed; before there is a folder.
        DataError: a graph cannot be loaded; of the first seed before there is a folder.
        SafeGNNError: as `train`.
    """
    for own in settings.values():
        create_engine(own)
    load = lru_cache(maxsize=len({own.data for own in settings.values()}))(load_graph)
    for own in settings.values():
        graph = load(own.data, common.seed)
        create_network(graph.num_features, graph.classes, own.model)
    parent = RunFolder.create(common, title)
    records: dict[str, dict[int, list[dict[str, Any]]]] = {name: {} for name in settings}
    for seed in range(common.seed, common.seed + (1 if seeds is None else seeds)):
        for name, setting in settings.items():
            own = setting.changed(seed=seed, run={"dir": parent.path})
            stem = name.replace(" = ", "-")
            folder = RunFolder.create(own, stem if seeds is None else f"{stem}-seed-{seed}")
            watch, graph = partial(observe, name, seed), load(own.data, seed)
            run(own, folder, graph=graph, audit=audit, observe=watch, announce=announce)
            records[name][seed] = folder.records()
    return Grid(parent.path, records)
