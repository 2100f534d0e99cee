"""The run folder: resolved configuration, environment, metrics, costs, checkpoint, model.

    config.yaml  environment.json  inputs.json  data.json  clients.json  metrics.jsonl  metrics.csv  costs.csv
    weights.csv  model.pt  *.png  report.html
    models/client-7.pt              instead of model.pt, where every client has a model of its own
    checkpoint/state.npz            round, released model, clip bound, and which client file counts
    checkpoint/client-7-round-12.npz
    checkpoint/privacy.json         what has been released so far, written before each release
    checkpoint/totals.npz           what clients added up before the first round
    checkpoint/secret.key           of a run with noise: from which its cohorts and its clients' seeds follow

A file that replaces another is written beside it, flushed to the disk and renamed, so a crash or a full disk leaves
the last good one. Lines of rounds after the checkpoint are dropped on resume, also one that a crash cut short. One
process writes at a time, which holds `RunFolder.lock`; anyone may read meanwhile.

The order of a round: it is charged in `privacy.json`, its result is released, its lines are appended, what the next
checkpoint needs is written, the checkpoint replaced. What a crash leaves out is done again, and charged again.

Folder and files are their owner's alone (modes 0700 and 0600): the checkpoint says who took part, and holds the
simulated clients' own models. TensorBoard's logs, and the table of methods compared, are protected by the folder only.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.config import Config, load_config
from orchestrator.coordinator.cohorts import kept_key
from orchestrator.coordinator.environment import environment, versions
from orchestrator.coordinator.inputs import Inputs, check_settings
from orchestrator.errors import ConfigError, RunError
from orchestrator.files import private, read_arrays, write_atomically
from orchestrator.locks import FolderLock

__all__ = ["Checkpoint", "RunFolder"]

_PRIVACY = "privacy.json"
_SECRET = "secret.key"
_NUMBER = "number"
_TOTALS = "totals.npz"
_PREPARATION = "preparation.json"
_INPUTS = "inputs.json"
_ENVIRONMENT = "environment.json"
_DATA = "data.json"
_CLIENTS = "clients.json"
_EVALUATION = "evaluation/"
_TOTAL = "total/"


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands after a round.

    Attributes:
        round: rounds completed.
        parameters: the released model, float64 (d,).
        states: file of each client's training state, for clients that ever took part.
        clip_norm: C of the next round; None where updates are not clipped.
        evaluations: what each client last said of its model, where clients evaluate; see `LocalMethod.evaluate`.
        totals: by name, what sums over the last round's cohort came to; float64 (m,).
    """

    round: int
    parameters: np.ndarray
    states: Mapping[int, Path]
    clip_norm: float | None = None
    evaluations: Mapping[int, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    totals: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)


class RunFolder:
    """One run on disk.

    Attributes:
        path: the folder.
        lock: to be held by whoever writes.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, FolderLock(path)

    @classmethod
    def create(cls, config: Config, name: str | None = None) -> RunFolder:
        """A new folder `<run.dir>/<data>-<method>-<engine>-<time>`, or with the given name; holds the configuration.

        Its mode is 0700; `run.dir` is made where it is missing, and else left as it is.

        Raises:
            RunError: it cannot be created.
        """
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        stem = name or f"{config.data.name}-{config.method.name}-{config.engine.name}-{stamp}"
        path = config.run.dir / stem
        attempt = 1
        try:
            config.run.dir.mkdir(parents=True, exist_ok=True)
            while True:
                try:
                    path.mkdir(mode=0o700)
                    break
                except FileExistsError:
                    attempt += 1
                    path = config.run.dir / f"{stem}-{attempt}"
        except OSError as error:
            raise RunError(f"{error.filename or path}: cannot be created: {error.strerror or error}") from error
        return cls.furnish(path, config)

    @classmethod
    def furnish(cls, path: Path, config: Config) -> RunFolder:
        """Make a folder a run's, also one that a crash left without its configuration, which is written last.

        Raises:
            RunError: it cannot be created.
        """
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            (path / "checkpoint").mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise RunError(f"{error.filename or path}: cannot be created: {error.strerror or error}") from error
        folder = cls(path)
        folder._write_json(_ENVIRONMENT, environment())
        folder.save_settings(config)
        return folder

    @classmethod
    def open(cls, path: Path) -> tuple[RunFolder, Config]:
        """An existing run and its configuration.

        Raises:
            RunError: it is none.
            ConfigError: its configuration does not hold what it should.
        """
        file = path / "config.yaml"
        if not file.is_file():
            raise RunError(f"{path}: no run folder; it holds no config.yaml")
        try:
            return cls(path), load_config(file=file)
        except ConfigError as error:
            raise ConfigError(f"{file}: {str(error).removeprefix(f'{file}: ')}") from error

    @property
    def state_dir(self) -> Path:
        return self.path / "checkpoint"

    def model(self, client: int | None = None) -> Path:
        """Where the trained model stands, or that of a client, once training has ended."""
        return self.path / "model.pt" if client is None else self.path / "models" / f"client-{client}.pt"

    @property
    def has_models(self) -> bool:
        """Whether clients' own models were written, as at the end of training."""
        return any(self.path.glob("models/*.pt"))

    @property
    def begun(self) -> bool:
        """Whether a round may have been released."""
        kept = (self.state_dir / name for name in ("state.npz", _TOTALS, _PRIVACY))
        return any(path.exists() for path in (*kept, self.path / "metrics.jsonl"))

    def save_settings(self, config: Config) -> None:
        """Replace `config.yaml`, whose paths are absolute, so that a run goes on from any working directory."""
        self._write_text("config.yaml", config.absolute().to_yaml())

    def check_settings(self, config: Config) -> None:
        """Raises RunError where settings are not those that the run began with, as far as it began."""
        if (before := self._read_json(_INPUTS)) is not None:
            self._located(check_settings, config.model_dump(mode="json"), before.get("settings"))

    def settle(self, inputs: Inputs) -> list[str]:
        """Keep what a run begins with or, if it began before, compare with that; returns what differs and may.

        Versions of libraries and of this program may differ; `environment.json` says under "resumed" which did.

        Raises:
            RunError: naming what differs and may not.
        """
        before = self._read_json(_INPUTS)
        if before is None:
            if self.begun:
                raise RunError(f"{self.path}: has no {_INPUTS}, so that nobody knows what its rounds are of")
            self._write_json(_INPUTS, inputs.as_dict())
            return []
        return self._located(inputs.check, before) + self._changed_versions()

    def _changed_versions(self) -> list[str]:
        """Versions in which this process differs from the last one that wrote here, which are kept."""
        first, now = self._read_json(_ENVIRONMENT) or {}, environment()
        resumed = first.get("resumed", [])
        last, current = versions(resumed[-1] if resumed else first), versions(now)
        if not (found := [name for name, version in current.items() if last.get(name) != version]):
            return []
        self._write_json(_ENVIRONMENT, {**first, "resumed": [*resumed, {**now, "after_round": self.completed()}]})
        return ["the program's source" if k == "source" else f"{k} {current[k]}, was {last.get(k)}" for k in found]

    def drop_results(self) -> None:
        """Remove what is made at the end of training, of a run that goes on."""
        made = self.path.glob("models/*.pt"), self.path.glob("*.png"), self.path.glob("*.html")
        for path in (self.model(), *(path for several in made for path in several)):
            path.unlink(missing_ok=True)

    def append(self, record: Mapping[str, Any], costs: Mapping[str, Any]) -> None:
        """Add one round's metrics (nested; JSON) and costs (flat)."""
        self._append_text("metrics.jsonl", json.dumps(record) + "\n")
        self._append_row("metrics.csv", _flat(record))
        self._append_row("costs.csv", costs)

    def records(self) -> list[dict[str, Any]]:
        """All rounds' metrics so far. Raises RunError for a damaged file."""
        path = self.path / "metrics.jsonl"
        try:
            return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        except (OSError, ValueError) as error:
            raise RunError(f"{path}: cannot be read: {error}") from error

    def costs(self) -> list[dict[str, float]]:
        """All rounds' costs so far. Raises RunError for a damaged file."""
        path = self.path / "costs.csv"
        if not path.exists():
            return []
        try:
            with open(path, newline="") as file:
                return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
        except (OSError, ValueError, TypeError, csv.Error) as error:  # TypeError: a row of another length
            raise RunError(f"{path}: cannot be read: {error}") from error

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint, then remove client files that it no longer names."""
        clients = sorted(checkpoint.states)
        fields: dict[str, Any] = {
            "round": np.array(checkpoint.round),
            "parameters": checkpoint.parameters,
            "clients": np.array(clients, dtype=np.int64),
            "files": np.array([checkpoint.states[client].name for client in clients], dtype=np.str_),
        }
        if checkpoint.clip_norm is not None:
            fields["clip_norm"] = np.array(checkpoint.clip_norm)
        fields |= {_TOTAL + name: total for name, total in checkpoint.totals.items()}
        if evaluated := sorted(checkpoint.evaluations):
            fields["evaluated"] = np.array(evaluated, dtype=np.int64)
            for name in checkpoint.evaluations[evaluated[0]]:
                fields[_EVALUATION + name] = np.stack([checkpoint.evaluations[c][name] for c in evaluated])
        write_atomically(self.state_dir / "state.npz", lambda file: np.savez(file, **fields))
        kept = {path.name for path in checkpoint.states.values()}
        for pattern in ("client-*.npz", "*.new"):  # other people's files are none of ours
            for path in self.state_dir.glob(pattern):
                if path.name not in kept:
                    path.unlink(missing_ok=True)

    def completed(self) -> int:
        """Rounds that a resumed run would not repeat. Raises RunError for a damaged checkpoint."""
        path = self.state_dir / "state.npz"
        return int(read_arrays(path).get("round", 0)) if path.exists() else 0

    def load(self) -> Checkpoint | None:
        """The checkpoint, with everything after it dropped from the records; None if no round was completed.

        Raises:
            RunError: the checkpoint is damaged, or the records hold fewer rounds than it.
        """
        path = self.state_dir / "state.npz"
        if not path.exists():
            self._truncate(0)
            return None
        arrays = read_arrays(path)
        try:
            clients, files = arrays["clients"].tolist(), arrays["files"].tolist()
            states = {client: self.state_dir / name for client, name in zip(clients, files, strict=True)}
            clip_norm = float(arrays["clip_norm"]) if "clip_norm" in arrays else None
            said = {key.removeprefix(_EVALUATION): arrays[key] for key in arrays if key.startswith(_EVALUATION)}
            evaluations = {
                c: {name: values[k] for name, values in said.items()}
                for k, c in enumerate(arrays["evaluated"].tolist() if said else [])
            }
            totals = {key.removeprefix(_TOTAL): arrays[key] for key in arrays if key.startswith(_TOTAL)}
            checkpoint = Checkpoint(int(arrays["round"]), arrays["parameters"], states, clip_norm, evaluations, totals)
        except (ValueError, TypeError, KeyError) as error:
            raise RunError(f"{path}: is no checkpoint of this program: {error}") from error
        self._truncate(checkpoint.round)
        return checkpoint

    def save_weights(self, cohort: Sequence[int], weights: np.ndarray) -> None:
        """Replace `weights.csv`: in row i, how much client i took from each client in the last aggregation.

        Args:
            cohort: the q clients, in the order of rows and columns.
            weights: float64, shape (q, q).
        """
        lines = [",".join(["client", *map(str, cohort)])]
        lines += [",".join([str(c), *map(repr, row)]) for c, row in zip(cohort, weights.tolist(), strict=True)]
        self._write_text("weights.csv", "\n".join(lines) + "\n")

    def weights(self) -> tuple[list[int], np.ndarray] | None:
        """What `save_weights` wrote last; None if nobody knows the weights. Raises RunError for a damaged file."""
        path = self.path / "weights.csv"
        if not path.exists():
            return None
        try:
            rows = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
            clients = [int(cell) for row in rows[:1] for cell in row[1:]]
            if not clients or [row[:1] for row in rows[1:]] != [[str(c)] for c in clients]:
                raise ValueError("expected one row for each client of the first line")
            weights = np.array([[float(cell) for cell in row[1:]] for row in rows[1:]])
            return clients, weights.reshape(len(clients), len(clients))
        except (OSError, ValueError) as error:
            raise RunError(f"{path}: cannot be read: {error}") from error

    def save_totals(self, totals: Mapping[str, np.ndarray]) -> None:
        """Replace `totals.npz`: by name, what secure sums before the first round came to; float64 (m,)."""
        fields: dict[str, Any] = {_TOTAL + name: total for name, total in totals.items()}
        write_atomically(self.state_dir / _TOTALS, lambda file: np.savez(file, **fields))

    def totals(self) -> dict[str, np.ndarray]:
        """What `save_totals` wrote last; empty if there was none. Raises RunError for a damaged file."""
        path = self.state_dir / _TOTALS
        kept = read_arrays(path) if path.exists() else {}
        return {name.removeprefix(_TOTAL): total for name, total in kept.items()}

    def save_preparation(self, facts: Mapping[str, Any]) -> None:
        """Write `preparation.json`: what clients did together before the first round, and what it cost."""
        self._write_json(_PREPARATION, facts)

    def preparation(self) -> dict[str, Any] | None:
        """What `save_preparation` wrote; None if there was none. Raises RunError for a damaged file."""
        return self._read_json(_PREPARATION)

    def save_data(self, facts: Mapping[str, Any]) -> None:
        """Write `data.json`: what was read, what of it is trained on, and what its numbers stand for."""
        self._write_json(_DATA, facts)

    def data(self) -> dict[str, Any] | None:
        """What `save_data` wrote; None if nothing was said. Raises RunError for a damaged file."""
        return self._read_json(_DATA)

    def save_clients(self, facts: Sequence[Mapping[str, Any]]) -> None:
        """Write `clients.json`: what each client of a simulation holds; exact, so never of a run with noise."""
        self._write_json(_CLIENTS, {"clients": list(facts)})

    def clients(self) -> list[dict[str, Any]] | None:
        """What `save_clients` wrote; None if nothing was said. Raises RunError for a damaged file."""
        kept = self._read_json(_CLIENTS)
        if kept is not None and not isinstance(kept.get("clients"), list):
            raise RunError(f"{self.path / _CLIENTS}: is no file of this program")
        return None if kept is None else kept["clients"]

    def inputs(self) -> dict[str, Any] | None:
        """What the run began with, as `settle` kept it; None before. Raises RunError for a damaged file."""
        return self._read_json(_INPUTS)

    def environment(self) -> dict[str, Any] | None:
        """Versions and machine, and under "resumed" later ones; None if nothing was said."""
        return self._read_json(_ENVIRONMENT)

    def save_privacy(self, state: Mapping[str, Any]) -> None:
        """Replace what is known to have been released; called before a release, so that no crash forgets one.

        Raises:
            BusyError: another process has taken this one's place.
        """
        self.lock.confirm()
        text = json.dumps(state) + "\n"
        write_atomically(self.state_dir / _PRIVACY, lambda file: file.write(text.encode()) and None)

    def load_privacy(self) -> dict[str, Any] | None:
        """What `save_privacy` wrote last; None if nothing was released. Raises RunError for a damaged file."""
        return self._read_json(f"checkpoint/{_PRIVACY}")

    def cohort_seed(self, config: Config) -> int | bytes:
        """What cohorts and clients' seeds follow from; with noise a key, drawn when the run begins, see `kept_key`."""
        if config.privacy.noise_multiplier == 0:
            return config.seed
        return kept_key(self.state_dir / _SECRET, new=not self.begun)

    @property
    def number(self) -> str:
        """What tells the run from all others, 32 hexadecimal digits; drawn when it is first asked for. No secret."""
        return kept_key(self.state_dir / _NUMBER, new=True).hex()

    def _truncate(self, rounds: int) -> None:
        """Keep the lines of the first `rounds` rounds; a last line cut short by a crash goes too."""
        for name, header in (("metrics.jsonl", 0), ("metrics.csv", 1), ("costs.csv", 1)):
            path = self.path / name
            try:
                lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
            except OSError as error:
                raise RunError(f"{path}: cannot be read: {error.strerror or error}") from error
            kept = lines[: rounds + header] if rounds else []
            if rounds and (len(kept) < rounds + header or not kept[-1].endswith(b"\n")):
                raise RunError(f"{path}: holds fewer rounds than the checkpoint ({rounds}); it was changed")
            if kept != lines:
                write_atomically(path, methodcaller("writelines", kept))

    def _read_json(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        try:
            content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        except (OSError, ValueError) as error:
            raise RunError(f"{path}: cannot be read, it is damaged: {error}") from error
        if content is not None and not isinstance(content, dict):
            raise RunError(f"{path}: is no file of this program")
        return content

    def _located(self, check: Callable[..., list[str]], *arguments: Any) -> list[str]:
        try:
            return check(*arguments)
        except RunError as error:
            raise RunError(f"{self.path}: {error}") from None

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        self._write_text(name, json.dumps(content, indent=2) + "\n")

    def _write_text(self, name: str, text: str) -> None:
        write_atomically(self.path / name, lambda file: file.write(text.encode()) and None)

    def _append_text(self, name: str, text: str) -> None:
        path = self.path / name
        try:
            with open(path, "a", encoding="utf-8", opener=private) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())  # or a power failure could leave the checkpoint without its lines
        except OSError as error:
            raise RunError(
                f"{path}: cannot be written: {error.strerror or error}; the last checkpoint stands"
            ) from None

    def _append_row(self, name: str, row: Mapping[str, Any]) -> None:
        path = self.path / name
        fresh = not path.exists() or path.stat().st_size == 0
        cells = ["" if value is None else str(value) for value in row.values()]
        self._append_text(name, (",".join(row) + "\n" if fresh else "") + ",".join(cells) + "\n")


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers only, nested names joined with '_': `val_accuracy`; lists are left out."""
    row: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, list):
            continue
        if isinstance(value, Mapping):
            if key != "undefined":
                row.update({f"{key}_{name}": item for name, item in _flat(value).items()})
        else:
            row[key] = value
    return row
