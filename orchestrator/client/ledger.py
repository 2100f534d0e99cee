"""A client's ledger: what all runs together spent on its data, in a file of its own, and its veto.

Budgets are per run, and the coordinator keeps them. This file is the client's, beside its data: it counts every
release of every run by itself, before anything leaves it, and refuses to take part where its own limit would be
exceeded. Whoever keeps it takes a coordinator's word for the run's plan, that is for the noise and the way of sampling,
and for the rounds in which it does not take part; not for how often it was asked.

Everything in one file adds up, whatever version of the data a run was on: their people are the same. Where several
processes host clients of the same data, as in simulations, they share the file, and a release counts once for all.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orchestrator.errors import BusyError, ConfigError, RunError
from orchestrator.files import write_atomically
from orchestrator.privacy.budget import Budget
from orchestrator.privacy.plan import NoisySum, PrivacyPlan
from orchestrator.privacy.together import Spent, epsilon_together

if TYPE_CHECKING:
    from orchestrator.graphs.graph import Graph

__all__ = ["Account", "Entry", "Ledger", "data_digest", "read_ledger"]

_LOG = logging.getLogger(__name__)

_PATIENCE_SEC = 60.0
"""For another process to end its reading and writing."""

_ROUND = "a round"


@dataclass(frozen=True)
class Account:
    """What clients are told of a run, to count it.

    Attributes:
        plan: what the run does for privacy; None: no epsilon is stated.
        run: what tells it from others, and is the same when it is resumed.
        session: of the coordinator's process; what is repeated in another one is released again.
    """

    plan: PrivacyPlan | None
    run: str
    session: str


@dataclass
class Entry:
    """One run's part of a ledger.

    Attributes:
        data: digest of the data that it began with.
        budget: its plan, and what was released.
        rounds: those in which these data took part.
        session, round, done: of the last charge, and what else was charged with it.
    """

    data: str = field(repr=False)
    budget: Budget
    rounds: set[int] = field(default_factory=set, repr=False)
    session: str = ""
    round: int = 0
    done: set[str] = field(default_factory=set)

    @property
    def spent(self) -> Spent:
        return Spent(self.budget, len(self.rounds))

    def charge(self, what: str, session: str, round: int, again: bool) -> bool:
        """Count a release; returns whether that changed anything. Args: again: whether it is certainly another one."""
        if (session, round) != (self.session, self.round):
            self.session, self.round, self.done = session, round, set()
        if what in self.done and not again:
            return False
        self.done.add(what)
        if what != _ROUND:
            self.budget.charge_sum(what)
            return True
        for number in range(self.budget.last + 1, round):  # others' rounds, of which nobody told
            self.budget.charge(number)
        self.budget.charge(round)
        return True

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "data": self.data,
            "plan": asdict(self.budget.plan),
            "state": self.budget.state(),
            "rounds": sorted(self.rounds),
            "last": [self.session, self.round, sorted(self.done)],
        }

    @classmethod
    def restored(cls, run: str, stored: Any) -> Entry:
        """What `as_dict` made. Raises whatever Python raises for something else."""
        plan = dict(stored["plan"])
        plan["sums"] = tuple(NoisySum(**noisy) for noisy in plan["sums"])
        budget = Budget(PrivacyPlan(**plan), run=run).restore(stored["state"])
        session, round, done = stored["last"]
        return cls(str(stored["data"]), budget, {int(r) for r in stored["rounds"]}, session, int(round), set(done))


class Ledger:
    """The ledger of one run's clients in one process: to be told before anything leaves them."""

    def __init__(self, path: Path, limit: float | None, account: Account | None, data: Callable[[], str]) -> None:
        """Args: limit: the largest epsilon that all runs may reach for an outsider; data: their digest."""
        self._path, self._limit, self._account, self._data = path, limit, account, data
        self._asked: set[tuple[int, str]] = set()

    def hear(self, round: int) -> None:
        """A round is about to be released, whether these data are in it or not.

        Where clients take turns nothing is counted but their own, each when it comes: a process that hears of a round
        first, and has no part in it, would charge it as somebody else's, and the limit would be looked at too late.

        Raises:
            RunError: the limit would be exceeded, or the file cannot be read or written. Nothing may be released.
        """
        if self._plan.sampler == "cyclic":
            return
        self._charge(round, _ROUND, again=False)

    def take_part(self, round: int) -> None:
        """The same, with these data; asked a second time it is another release. Raises RunError as `hear` does."""
        again = (round, _ROUND) in self._asked
        self._asked.add((round, _ROUND))
        self._charge(round, _ROUND, again, takes_part=True)

    def add(self, round: int, name: str) -> None:
        """Numbers for a sum are about to leave. Raises RunError as `hear` does, and for a sum that no plan counts."""
        again = (round, name) in self._asked
        if any(noisy.name == name and noisy.of_cohort for noisy in self._plan.sums):
            if again or (round, _ROUND) not in self._asked:
                raise RunError(f"{self._path}: the sum '{name}' is a part of round {round}, which was not asked for")
        else:
            self._charge(round, name, again)
        self._asked.add((round, name))

    @property
    def _plan(self) -> PrivacyPlan:
        if self._account is None or self._account.plan is None:
            raise ConfigError(f"{self._path}: no epsilon is stated of this run, so that nothing can be counted")
        return self._account.plan

    def _charge(self, round: int, what: str, again: bool, takes_part: bool = False) -> None:
        plan = self._plan
        assert self._account is not None
        run, session = self._account.run, self._account.session
        with _locked(self._path):
            entries = read_ledger(self._path)
            entry = entries.setdefault(run, Entry(self._data(), Budget(plan, run=run)))
            before = len(entry.rounds)
            if entry.budget.state()["plan"] != Budget(plan, run=run).state()["plan"]:
                raise RunError(f"{self._path}: run {run[:12]} was counted with another plan")
            changed = entry.charge(what, session, round, again)
            if takes_part:
                entry.rounds.add(round)
            if not changed and len(entry.rounds) == before:
                return
            if changed and self._limit is not None:
                self._check(entries, plan.delta, f"round {round}" if what == _ROUND else f"the sum '{what}'")
            text = json.dumps({"runs": {name: kept.as_dict() for name, kept in entries.items()}}, indent=1)
            write_atomically(self._path, lambda file: file.write(text.encode()))

    def _check(self, entries: dict[str, Entry], delta: float, what: str) -> None:
        epsilon = epsilon_together([entry.spent for entry in entries.values()], "outsider", delta)
        if self._limit is None or epsilon <= self._limit:
            return
        error = RunError(
            f"{self._path}: {what} would bring what these data spent in {len(entries)} "
            f"run{'s' if len(entries) > 1 else ''} to epsilon {epsilon:.4g} (delta {delta:g}, an outsider's), beyond "
            f"privacy.ledger_limit = {self._limit:g}; these clients take no part in it"
        )
        _LOG.warning("%s", error)
        raise error


def read_ledger(path: Path) -> dict[str, Entry]:
    """By run, what was spent; empty where there is no file. Raises RunError for a file that is damaged."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"runs": {}}
        return {run: Entry.restored(run, entry) for run, entry in stored["runs"].items()}
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError, AttributeError, ConfigError, RunError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise RunError(f"{path}: is no ledger, or damaged: {reason}") from None


def data_digest(graphs: Sequence[Graph]) -> str:
    """SHA-256 of the clients' data, hexadecimal: of the whole graph where they are cut out of one.

    Splits, scaling and how clients are cut are none of it.
    """
    from orchestrator.graphs.partition import Subgraphs

    digest = hashlib.sha256()
    for graph in [graphs.whole] if isinstance(graphs, Subgraphs) else graphs:
        for values in (graph.edges, graph.labels, graph.sensitive, graph.features):
            array = np.zeros(0) if values is None else np.ascontiguousarray(values)
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(array.data)
    return digest.hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Nobody else reads and writes meanwhile."""
    from filelock import FileLock, Timeout

    if not path.parent.is_dir():  # the library would make one
        raise RunError(f"{path}: cannot be written: there is no folder {path.parent}")
    try:
        with FileLock(f"{path}.lock", timeout=_PATIENCE_SEC, mode=0o600):
            yield
    except Timeout:
        raise BusyError(f"{path}: another process has held its lock for {_PATIENCE_SEC:g} s") from None
    except OSError as error:
        raise RunError(f"{path}: cannot be locked: {error.strerror or error}") from error
