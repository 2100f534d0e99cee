"""What a grid of runs is to be, as it stands in its folder; imports nothing that takes long."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config import Config, validated
from orchestrator.coordinator.inputs import changes
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.errors import ConfigError, RunError
from orchestrator.files import write_atomically

__all__ = ["GridPlan"]

_FILE = "plan.json"


@dataclass(frozen=True)
class GridPlan:
    """Some named settings, each to be trained with some seeds.

    Attributes:
        kind: what is compared: "engines", "methods", or the experiment's name.
        common: where the folder goes, and what is said in it to have been common to all.
        settings: by name, at least one.
        seeds: how many, from common.seed on; the run folders are named after setting and seed. None: that one, and
            they are named after the setting alone.
    """

    kind: str
    common: Config
    settings: Mapping[str, Config]
    seeds: int | None = None

    @classmethod
    def load(cls, folder: Path) -> GridPlan:
        """What a folder is of. Raises RunError where it holds no plan."""
        path = folder / _FILE
        if not path.is_file():
            raise RunError(f"{folder}: cannot be gone on with; it holds no {_FILE}, as a comparison's folder does")
        _, common = RunFolder.open(folder)
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
            settings = {name: validated(tree) for name, tree in said["settings"].items()}
            seeds = None if said["seeds"] is None else int(said["seeds"])
            plan = cls(str(said["kind"]), common, settings, seeds)
            found = changes(common.model_dump(mode="json"), said["common"])
        except (ConfigError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise RunError(f"{path}: cannot be read, it is damaged: {error}") from error
        plan._refuse(folder, found)
        return plan

    def save(self, folder: Path) -> None:
        """Write it into a new folder."""
        trees = {name: own.absolute().model_dump(mode="json") for name, own in self.settings.items()}
        said = {
            "kind": self.kind,
            "seeds": self.seeds,
            "common": self.common.absolute().model_dump(mode="json"),
            "settings": trees,
        }
        write_atomically(folder / _FILE, lambda file: file.write(json.dumps(said, indent=2).encode() + b"\n") and None)

    def check(self, folder: Path) -> None:
        """Raises RunError where a folder is of another plan."""
        kept = GridPlan.load(folder)
        if (kept.kind, kept.seeds, [*kept.settings]) != (self.kind, self.seeds, [*self.settings]):
            raise RunError(f"{folder}: is of other runs: {kept.kind}, {', '.join(kept.settings)}")
        for name, own in self.settings.items():
            found = changes(own.absolute().model_dump(mode="json"), kept.settings[name].model_dump(mode="json"))
            self._refuse(folder, [f"{name}: {change}" for change in found if not change.startswith("run.")])

    def runs(self, folder: Path) -> Iterator[tuple[str, int, Path]]:
        """Setting, seed and run folder of each run, all settings of one seed before those of the next."""
        for seed in range(self.common.seed, self.common.seed + (1 if self.seeds is None else self.seeds)):
            for name in self.settings:
                stem = name.replace(" = ", "-")
                yield name, seed, folder / (stem if self.seeds is None else f"{stem}-seed-{seed}")

    def completed(self, folder: Path | None) -> int:
        """Rounds that were completed, of all runs; 0 without a folder. Raises RunError for a damaged checkpoint."""
        paths = [] if folder is None else [path for _, _, path in self.runs(folder)]
        return sum(RunFolder(path).completed() for path in paths)

    @property
    def rounds(self) -> int:
        """Of all runs."""
        return (self.seeds or 1) * sum(own.federation.rounds for own in self.settings.values())

    @staticmethod
    def _refuse(folder: Path, found: list[str]) -> None:
        if found:
            raise RunError(f"{folder}: settings are not those that it began with: {'; '.join(found[:3])}")
