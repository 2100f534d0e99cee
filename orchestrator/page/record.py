"""What a run left on the disk, as far as a report may say it.

A report is passed on, and a run folder is not. Of a run with noise it therefore has nothing that no epsilon covers:
no exact metrics, no fingerprint of the data, no count of nodes, and not who was left out, when. `Record.withheld` says
so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import Config
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.errors import RunError, SafeGNNError
from orchestrator.evaluation.figures import metric_names
from orchestrator.reports.run import metrics_covered, no_epsilon, privacy_report

__all__ = ["Record"]

_T = TypeVar("_T")

_WITHHELD_METRICS = (
    "exact metrics: no epsilon covers what they say of clients' nodes (evaluation.exact_beside_noise); "
    "--exact-metrics shows them, in a page that must not be passed on where the data are real"
)
_WITHHELD = (
    "fingerprints and counts of the data (inputs.json, data.json): they are exact",
    "who was left out in which round: that says who took part, which epsilon counts on being unknown",
    "sizes and groups of clients: they are exact, and the run wrote none",
    "what single rounds cost, and exact times: they say how many took part, and how large these are",
)


@dataclass(frozen=True)
class Record:
    """One run.

    Attributes:
        path: its folder.
        config: its settings.
        rounds: a mapping a round, as `metrics.jsonl` has them, without what is withheld.
        costs: a mapping a round.
        private: whether it has noise, so that parts are withheld.
        shown: whether its metrics may be shown.
        exact: whether they are exact beside noise, and shown because that was asked for.
        privacy: what it may claim; see `privacy_report`.
        left_out: how many uploads had no part, by reason; of a run without noise `who` says whose, by client.
        digests: fingerprints of graph and clients, to see whether two runs are of the same; of a run with noise nothing
            else may be done with them.
        withheld: what is not shown, and why; a line each.
        faults: what cannot be read, a line each.
    """

    path: Path
    config: Config
    rounds: list[dict[str, Any]] = field(repr=False)
    costs: list[dict[str, float]] = field(repr=False)
    private: bool
    shown: bool
    exact: bool
    privacy: dict[str, Any] | None = None
    no_epsilon: str | None = None
    data: dict[str, Any] | None = None
    inputs: dict[str, Any] | None = None
    environment: dict[str, Any] | None = None
    clients: list[dict[str, Any]] | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    who: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    digests: tuple[Any, Any] | None = field(default=None, repr=False)
    withheld: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path, exact_metrics: bool = False) -> Record:
        """A run on disk, also one that is not finished or lacks files.

        Args:
            exact_metrics: keep metrics that no epsilon covers.

        Raises:
            RunError: there is no run.
            ConfigError: its settings cannot be read.
        """
        folder, config = RunFolder.open(path)
        faults: list[str] = []

        def found(read: Callable[[], _T], otherwise: _T) -> _T:
            try:
                return read()
            except SafeGNNError as error:
                faults.append(str(error))
                return otherwise

        private = config.privacy.noise_multiplier > 0
        none: list[dict[str, Any]] = []
        rounds = found(folder.records, none)
        costs: list[dict[str, float]] = found(folder.costs, none)[: len(rounds)]
        covered = found(lambda: metrics_covered(config), "exact")
        exact = private and covered == "exact"
        shown = bool(rounds) and covered != "none" and (exact_metrics or not exact)
        lost = Counter[str]()
        who: dict[int, Counter[str]] = {}
        for row in rounds:
            for each in row.get("left_out") or ():
                lost[str(each.get("reason"))] += 1
                who.setdefault(int(each.get("client", -1)), Counter())[str(each.get("reason"))] += 1
        privacy = found(lambda: privacy_report(folder, config), None)
        inputs = found(folder.inputs, None)
        digests = None if inputs is None else (inputs.get("graph"), inputs.get("clients"))
        data, clients = found(folder.data, None), found(folder.clients, None)
        withheld: tuple[str, ...] = ()
        if private:
            withheld = (*([_WITHHELD_METRICS] if exact and not exact_metrics else []), *_WITHHELD)
            rounds, who = [_public(row, shown) for row in rounds], {}
            data, clients, inputs = None, None, _without_digests(inputs)
        return cls(
            path=path,
            config=config,
            rounds=rounds,
            costs=costs,
            private=private,
            shown=shown,
            exact=exact and shown,
            privacy=privacy,
            no_epsilon=found(lambda: no_epsilon(config), None) if private else None,
            data=data,
            inputs=inputs,
            environment=found(folder.environment, None),
            clients=clients,
            left_out=dict(lost),
            who=who,
            digests=digests,
            withheld=withheld,
            faults=tuple(faults),
        )

    @property
    def completed(self) -> int:
        """Rounds."""
        return int(self.rounds[-1]["round"]) if self.rounds else 0

    @property
    def stopped(self) -> str | None:
        """Why it has fewer rounds than its settings ask for; None where it has them all."""
        if self.completed >= self.config.federation.rounds:
            return None
        if self.privacy is not None and self.privacy["stopped"]:
            return str(self.privacy["stopped"])
        return (
            f"{self.completed} of {self.config.federation.rounds} rounds are completed: it was interrupted, or goes on"
        )

    @property
    def clear_bytes(self) -> int | None:
        """Bytes of the model in the clear, as float64; None where its shapes are not known."""
        shapes = ((self.inputs or {}).get("network") or {}).get("shapes")
        if not shapes:
            return None
        sizes = 0
        for shape in shapes.values():
            size = 1
            for side in shape:
                size *= int(side)
            sizes += size
        return 8 * sizes

    @property
    def classes(self) -> int:
        """Of the labels; two where nothing says otherwise."""
        said = ((self.inputs or {}).get("graph") or {}).get("classes", "2")
        return int(said) if str(said).isdigit() else 2

    @property
    def hides_metrics(self) -> bool:
        """Whether there are metrics that are not shown."""
        return _WITHHELD_METRICS in self.withheld and bool(self.rounds)

    def series(self, mask: str, name: str) -> list[float | None]:
        """A metric over the rounds; empty where nothing is shown."""
        return [(row.get(mask) or {}).get(name) for row in self.rounds] if self.shown else []

    def last(self, mask: str = "test") -> dict[str, Any]:
        """The last evaluation; empty where there is none to be shown."""
        if not self.shown:
            return {}
        for row in reversed(self.rounds):
            found = row.get(mask) or {}
            if any(found.get(name) is not None for name in metric_names(found)):
                return found
        return self.rounds[-1].get(mask) or {}

    def participation(self) -> list[int] | None:
        """How often each client was drawn; None where nobody may know."""
        if self.private or not any("cohort" in row for row in self.rounds):
            return None
        drawn = Counter(client for row in self.rounds for client in set(row.get("cohort") or ()))
        return [drawn[client] for client in range(self.config.clients.count)]

    def hiding(self) -> int | None:
        """The smallest cohort that a round may go on with; None where the settings do not say."""
        try:
            return plan_of(self.config).min_cohort
        except (SafeGNNError, RunError):
            return None


def _public(row: Mapping[str, Any], metrics: bool) -> dict[str, Any]:
    """Of a round with noise what may be passed on."""
    kept = ("round", "clip_norm", "updates_within_clip_norm", "epsilon", *(("val", "test") if metrics else ()))
    return {name: row[name] for name in kept if name in row}


def _without_digests(inputs: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Shapes of the network are public, and the number of classes, which they show."""
    if inputs is None:
        return None
    classes = (inputs.get("graph") or {}).get("classes")
    return {"network": inputs.get("network"), "graph": {} if classes is None else {"classes": classes}}
