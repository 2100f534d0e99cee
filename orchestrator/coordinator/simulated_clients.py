"""The simulated clients as the round loop knows them: what it asks of them, whoever hosts them.

Several hosts have some of the clients each and follow orders (`orchestrator.client.host`). This says which order goes
to which host, and puts their answers together. How orders get there is a subclass's business.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from orchestrator.client.host import (
    Announce,
    Ask,
    Contribute,
    Deliver,
    Evaluate,
    Hear,
    HearTotal,
    Order,
    Restore,
    Reveal,
    Save,
    Train,
)
from orchestrator.client.interface import Decoder, Encoder
from orchestrator.client.summands import Summand
from orchestrator.config import Config
from orchestrator.errors import SafeGNNError

__all__ = ["SimulatedClients", "Trained"]


@dataclass(frozen=True)
class Trained:
    """What came back from one cohort besides its uploads.

    Attributes:
        audits: the plaintext uploads by slot where asked for, else empty.
        missing: by slot, why a client has no upload: its training failed, or it refused to encode its update.
        seconds: from the order to the last answer.
    """

    audits: dict[int, Any] = field(repr=False)
    missing: dict[int, SafeGNNError]
    seconds: float


class SimulatedClients(ABC):
    """All clients of a simulation; client c is hosted by host c mod `hosts`. A context manager."""

    def __init__(self, clients: int, hosts: int, config: Config) -> None:
        self._timeout_sec, self._counting = config.engine.training_timeout_sec, config.privacy.ledger is not None
        self._members: list[list[int]] = [list(range(k, clients, hosts)) for k in range(hosts)]

    @abstractmethod
    def _all(
        self,
        phase: str,
        round: int,
        orders: Mapping[int, Order],
        take: Callable[..., None] = lambda *upload: None,
    ) -> list[Any]:
        """Give every host its order; returns their answers when all are done.

        Args:
            phase, round: what an error names.
            orders: by host.
            take: called with slot, client, upload and plaintext for each upload, as it comes.
        """

    @abstractmethod
    def close(self) -> None:
        """Let all hosts go; safe to call twice."""

    def restore(self, states: Mapping[int, Path]) -> None:
        """Give clients the training state of a checkpoint. Raises RunError for a file that cannot be read."""
        files = [{c: states[c] for c in members if c in states} for members in self._members]
        self._all("restoring", 0, {k: Restore(own) for k, own in enumerate(files)})

    def save(self, round: int, clients: Iterable[int], folder: Path) -> dict[int, Path]:
        """Write the training states of these clients, one file a process; returns each client's file."""
        orders = {
            k: Save(members, folder / f"client-process-{k}-round-{round}.npz")
            for k, members in self._divided(clients).items()
        }
        return _merged(self._all("saving", round, orders))

    def train(
        self,
        round: int,
        cohort: Sequence[int],
        parameters: np.ndarray,
        encoder: Encoder,
        deliver: Callable[[int, int, Any], None],
        audit: Encoder | None = None,
        keyed: bool = False,
    ) -> Trained:
        """Let the cohort train from the released model, float64 (d,).

        Args:
            encoder: applied to each update inside the client's process.
            deliver: called with slot, client and what the encoder made, as soon as that client is done.
            audit: a second encoder, whose results come back in `Trained.audits`.
            keyed: whether every client will get an answer of its own, to be sealed to a key that the encoder is given.

        Raises:
            PeerLostError, PeerTimeoutError: naming the clients whose process failed.
            RunError: clients keep a ledger, and it has no room for the round.
        """
        started = time.perf_counter()
        if self._counting:  # also clients that take no part in the round
            self._all("ledger", round, {k: Announce(round) for k in range(len(self._members))})
        audits: dict[int, Any] = {}
        missing: dict[int, SafeGNNError] = {}

        def take(slot: int, client: int, upload: Any, plain: Any) -> None:
            if isinstance(upload, SafeGNNError):
                missing[slot] = upload
                return
            if audit:
                audits[slot] = plain
            deliver(slot, client, upload)

        orders = {}
        for k, members in self._divided(cohort).items():
            places = [(slot, c) for slot, c in enumerate(cohort) if c in members]
            orders[k] = Train(k, round, places, parameters, encoder, keyed, audit)
        self._all("local training", round, orders, take)
        return Trained(dict(sorted(audits.items())), dict(sorted(missing.items())), time.perf_counter() - started)

    def contribute(
        self,
        round: int,
        clients: Sequence[int],
        summand: Summand,
        bound: float,
        length: int,
        encoder: Encoder,
        deliver: Callable[[int, int, Any], None],
    ) -> dict[int, SafeGNNError]:
        """Let clients encode what they add to a secure sum; returns by slot why some have nothing to add.

        Args:
            summand: which of their numbers.
            bound, length: of the sum.
            encoder, deliver: as for `train`.
        """
        missing: dict[int, SafeGNNError] = {}

        def take(slot: int, client: int, upload: Any, plain: Any) -> None:
            if isinstance(upload, SafeGNNError):
                missing[slot] = upload
            else:
                deliver(slot, client, upload)

        orders = {}
        for k, members in self._divided(clients).items():
            places = [(slot, c) for slot, c in enumerate(clients) if c in members]
            orders[k] = Contribute(round, places, summand, bound, length, encoder)
        self._all("secure sum", round, orders, take)
        return dict(sorted(missing.items()))

    def hear_total(self, name: str, total: np.ndarray) -> None:
        """Tell every client what a secure sum of all of them came to, float64 (m,)."""
        self._all("secure sum", 0, {k: HearTotal(name, total) for k in range(len(self._members))})

    def deliver(
        self, round: int, cohort: Sequence[int], answers: Mapping[int, Any], decoder: Decoder, reveal: bool = False
    ) -> dict[int, np.ndarray]:
        """Give clients of the cohort the answers to their uploads, which only they can open.

        Args:
            answers: by slot; who was left out of the round has none.
            reveal: return what they opened, by slot; for simulations that are audited.

        Raises:
            ProtocolError: an answer is damaged or meant for somebody else.
        """
        orders = {}
        for k, members in self._divided(cohort).items():
            own = [(slot, c, answers[slot]) for slot, c in enumerate(cohort) if c in members and slot in answers]
            orders[k] = Deliver(round, own, decoder, reveal)
        return _merged(self._all("delivery", round, orders))

    def evaluate(
        self, round: int, clients: Iterable[int], parameters: np.ndarray, own: bool
    ) -> dict[int, dict[str, Any]]:
        """By client, what it says of a model on its own nodes; see `LocalMethod.evaluate`."""
        orders = {k: Evaluate(members, parameters, own) for k, members in self._divided(clients).items()}
        return _merged(self._all("evaluation", round, orders))

    def models(self, round: int, clients: Iterable[int], parameters: np.ndarray) -> dict[int, np.ndarray | None]:
        """Each client's own model, float64 (d,), as its method and the rounds left it; see `LocalMethod.model`."""
        orders = {k: Reveal(members, parameters) for k, members in self._divided(clients).items()}
        return _merged(self._all("saving", round, orders))

    def ask(self, step: int) -> dict[int, Mapping[str, np.ndarray]]:
        """Every client's question to all others in a step of their preparation, in the order of the clients."""
        orders = {k: Ask(members, step) for k, members in enumerate(self._members)}
        return dict(sorted(_merged(self._all("preparation", 0, orders)).items()))

    def hear(self, step: int, answers: Mapping[int, np.ndarray | None]) -> None:
        """Tell every client what its question was answered with; see `LocalMethod.hear`."""
        orders = {k: Hear(step, {c: answers[c] for c in members}) for k, members in enumerate(self._members)}
        self._all("preparation", 0, orders)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _divided(self, clients: Iterable[int]) -> dict[int, list[int]]:
        """The processes that host some of these clients, and which."""
        wanted = set(clients)
        parts = {k: [c for c in members if c in wanted] for k, members in enumerate(self._members)}
        return {k: members for k, members in parts.items() if members}

    def _name(self, k: int) -> str:
        numbers = self._members[k]
        listed = ", ".join(map(str, numbers[:4])) + (", ..." if len(numbers) > 4 else "")
        return f"client process {k} (clients {listed})"


def _merged(parts: Sequence[Mapping[Any, Any]]) -> dict[Any, Any]:
    return {key: value for part in parts for key, value in part.items()}
