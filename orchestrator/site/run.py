"""One session of a run as a site lives through it: what it is asked, done by what does it in simulations too.

The client, its ledger and its keys are `orchestrator.client.host`'s; here is what a site adds: it answers a round once,
keeps its own state, and signs what it uploads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np

from orchestrator.agreement.identity import OwnKey
from orchestrator.client import host
from orchestrator.client.ledger import Account
from orchestrator.client.opening import OpeningDecoder
from orchestrator.client.sealing import SealingEncoder
from orchestrator.errors import BusyError, ConfigError, ConsentError, ProtocolError, RangeError, RunError, SafeGNNError
from orchestrator.graphs.graph import Graph
from orchestrator.site.consent import Agreed, AgreedSum, Consent
from orchestrator.site.memory import Memory
from orchestrator.site.messages import (
    Announce,
    Contribute,
    Deliver,
    Done,
    Evaluate,
    Evaluated,
    Failed,
    HearTotal,
    Message,
    Refused,
    Train,
    Upload,
    one_line,
)
from orchestrator.wire.envelope import UPLOAD
from orchestrator.wire.records import LARGEST

__all__ = ["SiteRun", "told"]


class _Own(Sequence[Graph]):
    """The graphs of all clients, of which there is one here."""

    def __init__(self, client: int, graph: Graph) -> None:
        self._client, self._graph = client, graph

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Graph]:
        yield self._graph

    @overload
    def __getitem__(self, index: int) -> Graph: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Graph]: ...
    def __getitem__(self, index: int | slice) -> Graph | Sequence[Graph]:
        if index != self._client:
            raise IndexError(index)
        return self._graph


class _Outbox(list[Any]):
    """Stands where a process of clients has its connection."""

    send = list.append


class SiteRun:
    """A session of a run: one offer, from whose keys a new one differs."""

    def __init__(
        self, agreed: Agreed, consent: Consent, client: int, graph: Graph, own: OwnKey, seed: int, memory: Memory
    ) -> None:
        """Args: client: the site's number; seed: from which its training derives, where the terms give none.

        Raises:
            ConsentError: the run's method cannot do with the site's data.
            RunError: what was kept of the run is damaged.
        """
        config = agreed.config
        if agreed.terms.seed is None or config.privacy.noise_multiplier > 0:
            config = config.model_copy(update={"seed": seed})
        account = Account(agreed.plan.privacy, agreed.terms.run, agreed.offer.session)
        self.agreed, self._consent, self._client, self._own, self._memory = agreed, consent, client, own, memory
        self._clients = host.Clients(_Own(client, graph), config, account=account)
        self._trained: int | None = None  # the round after which the live client stands; None: there is no such client
        self._said: dict[str, tuple[int, bytes, bytes]] = {}
        for name, total in memory.totals().items():
            self._clients.hear(name, total)
        try:
            self._stand_before(LARGEST)
        except ConfigError as error:
            raise ConsentError(str(error)) from None

    @property
    def session(self) -> str:
        return self.agreed.offer.session

    def announce(self, order: Announce) -> Message:
        """Count a round that this site is not asked for."""
        self.agreed.check_round(order.round)
        self._carried_out(host.Announce(order.round))
        return Done()

    def train(self, order: Train, request: bytes) -> bytes:
        """The reply to an order, which `request` is. Two different ones for one round get one upload at most.

        Raises:
            ConsentError: the plan has no such round, or it was answered.
        """
        encoder = self._signing(self.agreed.encoder(order.round, order.slot, order.cohort, order.clip_norm))
        model = self.agreed.model(order.model)

        def answer() -> Message:
            self._stand_before(order.round)
            keyed = self.agreed.plan.rule.personal
            place = (order.slot, self._client)
            try:
                upload = _upload(self._carried_out(host.Train(0, order.round, [place], model, encoder, keyed, None)))
                self._memory.answer(self.session, order.round, self._clients[self._client].state_dict())
            except BaseException:
                self._forget()  # half of a training is none, nor is one that cannot be kept
                raise
            self._trained = order.round
            return upload

        return self._once(self.session, order.round, request, answer)

    def contribute(self, order: Contribute, request: bytes) -> bytes:
        """The same for an order to add to a sum."""
        agreed: AgreedSum = self._consent.to_sum(order.sum, self.agreed)
        encoder = self._signing(agreed.encoder(order.round, order.slot, order.cohort, agreed.plan.clip_norm))
        summand, described = self._consent.summand(agreed, order.model), agreed.described

        def answer() -> Message:
            self._stand_before(LARGEST)
            place, bound, length = (order.slot, self._client), described.bound, agreed.terms.length
            carried = self._carried_out(host.Contribute(order.round, [place], summand, bound, length, encoder))
            upload = _upload(carried)
            self._memory.answer(agreed.offer.session, order.round)
            return upload

        return self._once(agreed.offer.session, order.round, request, answer)

    def hear(self, order: HearTotal) -> Message:
        """Take what a sum came to."""
        total = self._consent.total(self.agreed, order.name, order.total)
        self._memory.hear(order.name, total)
        self._carried_out(host.HearTotal(order.name, total))
        return Done()

    def deliver(self, order: Deliver) -> Message:
        """Open the model that the round made for this site alone."""
        plan, offer = self.agreed.plan, self.agreed.offer
        if not plan.rule.personal or order.round != self._trained:
            raise ConsentError(f"there is no answer of round {order.round} that it waits for")
        decoder = OpeningDecoder(offer.run, plan.vectors, self.agreed.terms.length)
        answers = [(order.slot, self._client, order.answers)]
        self._carried_out(host.Deliver(order.round, answers, decoder, reveal=False))
        self._memory.answer(self.session, order.round, self._clients[self._client].state_dict())
        return Done()

    def evaluate(self, order: Evaluate) -> Message:
        """Say what the site's own nodes say of a model, where its owner allows that."""
        self._consent.check_metrics(self.agreed.plan)
        model = self.agreed.model(order.model)
        self._stand_before(LARGEST)
        said: dict[int, dict[str, Any]] = {}
        self._carried_out(host.Evaluate([self._client], model, order.own), said.update)
        own = said[self._client]
        tables = {mask: [int(count) for count in np.ravel(own[mask])] for mask in ("val", "test")}
        figures = {name: float(value) for name, value in own.items() if name not in tables}
        known = {name: value if np.isfinite(value) else None for name, value in figures.items()}
        return Evaluated(tables["val"], tables["test"], known)

    def _once(self, session: str, round: int, request: bytes, answer: Callable[[], Message]) -> bytes:
        """An order's reply: the same bytes where the same order comes again, and none to another of its round."""
        digest = hashlib.sha256(request).digest()
        if (session in self._said) and self._said[session][:2] == (round, digest):
            return self._said[session][2]
        if round <= self._memory.answered(session):
            raise ConsentError(f"round {round} was answered already; a round has one upload")
        reply = answer().to_bytes()
        self._said[session] = (round, digest, reply)
        return reply

    def _stand_before(self, round: int) -> None:
        """See to it that the client stands where it stood before a round, or before the next one to come."""
        if self._trained is not None and self._trained < round:
            return
        self._forget()
        self._trained, state = self._memory.before(round)
        client = self._clients[self._client]
        if state is not None:
            try:
                client.load_state_dict(state)
            except (KeyError, ValueError, TypeError) as error:
                self._forget()
                raise RunError(f"its state is none of this run's method: {type(error).__name__}") from None

    def _forget(self) -> None:
        self._clients.pop(self._client, None)
        self._trained = None

    def _signing(self, encoder: SealingEncoder) -> SealingEncoder:
        return replace(encoder, sign=lambda message: self._own.sign(UPLOAD, message))

    def _carried_out(self, order: host.Order, take: Callable[[Mapping[Any, Any]], None] | None = None) -> _Outbox:
        """Do it; returns what was ready before it was done. Args: take: what is done with its result."""
        outbox = _Outbox()
        try:
            result = order.carry_out(self._clients, outbox)
        except (BusyError, RunError) as error:  # whose text says what was spent in other runs
            raise ConsentError("its ledger has no room for this, or cannot be written") from error
        if take is not None:
            take(result)
        return outbox


def told(error: SafeGNNError) -> Message:
    """What of an error leaves the site: lines that were made of what is public, else where it happened."""
    if isinstance(error, ConsentError | RangeError):
        return Refused(one_line(str(error)))
    if isinstance(error, ProtocolError):
        return Failed(one_line(error.reason))
    return Failed(one_line(host.where(error)))


def _upload(outbox: _Outbox) -> Message:
    """What came of an update. Raises the SafeGNNError of a training that came to nothing."""
    [(_, (_, _, upload, _))] = outbox
    if isinstance(upload, RangeError):  # the client has trained, and only what came of it cannot be encoded
        return told(upload)
    if isinstance(upload, SafeGNNError):
        raise upload
    return Upload(upload)
