"""What every aggregation server does: envelopes, agreement with the other server, noise, release.

Parties, adversary and what is learned: see `aggregation`. A server holds one share of everything, both of nothing. It
takes the coordinator's orders (`orders`), opens the envelopes that are sealed to its own key (`reception`), agrees with
the other server on program, terms, round, cohort and uploads before a share is touched, and returns its share, dithered
and noisy, or under a personal rule a dithered one for each client, sealed to the client. What a client does wrong costs
that client its part; whatever else fails is an error that names peer, phase and round.
"""

from __future__ import annotations

import hashlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import msgpack
import numpy as np

from mpc_programs.lockstep import Protocol, run
from mpc_programs.rules import RoundParameters
from mpc_programs.verification import LARGEST_BOUND, LEAST_BOUND
from orchestrator.errors import ConfigError, DisagreementError, ProtocolError
from orchestrator.mpc.fixed_point import COUNT_BITS, LARGEST_COUNT_NOISE
from orchestrator.mpc.shares import VectorShare
from orchestrator.privacy.bands import BandedNoise
from orchestrator.privacy.dither import dither_ring64
from orchestrator.privacy.noise import noise_ring64
from orchestrator.server.aggregation import absorb, only, separate_count
from orchestrator.server.pool import Key, Made, Pool
from orchestrator.server.reception import Reception, Seat
from orchestrator.server.sources import source_digest
from orchestrator.transport.channel import Channel, Position
from orchestrator.wire.answer import seal_answer
from orchestrator.wire.envelope import Keypair
from orchestrator.wire.message import Header
from orchestrator.wire.orders import Aggregate, Announcement, Prepare, Settle, Setup, Submit
from orchestrator.wire.upload import Layout, Upload

__all__ = ["Present", "Server", "run_with"]

_ORDER_BYTES, _PLACE_BYTES = 2048, 20
"""Room for an order's fields beside an envelope or places, and for a place in an order."""

_NoiseKey = tuple[int, float, float]
"""A round, and the standard deviations of its noise."""


@dataclass(frozen=True)
class Present:
    """Who takes part in a round, once the servers agree on that.

    Attributes:
        parameters: of the round, for as many clients as take part.
        clients: their numbers, in the order of their slots.
        uploads: theirs, absorbed where that can be done.
        start: the share of what the products are added to: the model, under a personal rule once a client.
    """

    parameters: RoundParameters
    clients: list[int]
    uploads: list[Upload] = field(repr=False)
    start: VectorShare = field(repr=False)


@dataclass
class Checks:
    """What checking a round's uploads cost, of one side."""

    seconds: float = 0.0
    bytes: int = 0
    exchanges: int = 0
    preprocessing_seconds: float = 0.0
    preprocessing_bytes: int = 0


class Server(ABC):
    """What every engine's server does: envelopes, agreement with the other server, noise. Engines add the computing.

    State between rounds: the share of the model, the connections, the uploads of the round to come.

    Attributes:
        sources: folders that the engine's servers run besides those that `source_digest` names.
    """

    sources: tuple[str, ...] = ()

    def __init__(
        self,
        index: int,
        keypair: Keypair,
        coordinator: Channel,
        position: Position,
        signed_by: Callable[[int, bytes, bytes], bool] | None = None,
    ) -> None:
        """Args: signed_by: whether a client made a signature of a message; None: uploads are not signed."""
        self.index, self._signed_by = index, signed_by
        self._keypair = keypair
        self._coordinator = coordinator
        self._position = position
        self._last_round = 0
        self._closing: list[Callable[[], None]] = []

    def setup(self, order: Setup, peer: Channel, supply: Channel) -> None:
        """Take over the public parameters and model; the model's share is the model itself at server 0 and 0 at 1.

        Args:
            peer: the connection to the other server, for the rounds.
            supply: a connection beside it: to the dealer, or a second one to the other server.
        """
        self._peer, self._supply = peer, supply
        self._closing += [peer.close, supply.close]
        self._run = order.run
        self._vectors = order.vectors
        self._announced = self._checked(order.announcement)
        self._min_cohort, self._accumulates = order.min_cohort, order.accumulates
        self._program = order.program
        model = np.frombuffer(order.model, dtype="<u8")
        own = model if self.index == 0 else np.zeros_like(model)
        self._model = VectorShare(own, self._vectors.model_bits, self.index)
        self._begin()
        self._noise: Pool[_NoiseKey, tuple[np.ndarray, np.ndarray]] = Pool(self._draw, "noise")
        self._closing.append(self._noise.close)
        self._bands, self._releases = BandedNoise(order.bands), 0
        self._turns: dict[int, int] = {}
        self._position.enter("handshake", 0)
        self._agree(
            {
                "program": (source_digest(*self.sources), self._program),
                "run": self._run,
                "plan": order.plan,
                "model": (len(model), self._accumulates),
                "terms": self._terms,
                "vectors": astuple(self._vectors),
                "bands": self._bands.bands,
                "engine": order.engine,
            }
        )

    def close(self) -> None:
        """Let go of everything: the session is over. Safe to call twice, and before `setup`."""
        while self._closing:
            self._closing.pop()()

    def prepare(self, order: Prepare) -> None:
        """Take over what is public about a coming round and begin with what the round needs; returns at once."""
        before, self._announced = self._announced, self._checked(order.announcement)
        if self._round is None:
            self._begin()
        elif before != self._announced:
            raise self._coordinator.error(DisagreementError, "announced other terms after uploads")
        if not self._parameters.personal:
            self._noise.fill((order.round, self._announced.noise_stddev, self._announced.count_stddev or 0.0))

    def _checked(self, announcement: Announcement) -> Announcement:
        """The same, if its noise can be held, and what it asks to check can be checked."""
        if (bound := announcement.parameters.bound) is not None:
            steps = math.ldexp(bound, self._vectors.update_bits)
            if not LEAST_BOUND <= steps <= LARGEST_BOUND:
                raise self._coordinator.error(
                    DisagreementError, f"announced a bound of {bound:g}, which nothing checks"
                )
        try:
            self._vectors.check_noise(announcement.noise_stddev)
        except ConfigError as error:
            raise self._coordinator.error(DisagreementError, f"announced too much noise: {error}") from None
        if (announcement.count_stddev or 0.0) > LARGEST_COUNT_NOISE:
            raise self._coordinator.error(DisagreementError, "announced too much noise for a count")
        return announcement

    @property
    def longest_order(self) -> int:
        """Of the orders about a round: an upload, or all places of the cohort, with room for the names of fields."""
        envelope = self._layout().envelope_bytes(self.index)
        return max(envelope, _PLACE_BYTES * self._parameters.cohort) + _ORDER_BYTES

    @property
    def _parameters(self) -> RoundParameters:
        """Of the round that was announced, for all who are asked."""
        return self._announced.parameters

    @property
    def _terms(self) -> list[Any]:
        """What both servers must hold alike in a round."""
        noise = [self._announced.noise_stddev, self._announced.count_stddev]
        return [astuple(self._parameters), noise, self._min_cohort]

    def _begin(self) -> None:
        """Wait for the uploads of a round."""
        self._round: int | None = None
        self._reception = Reception(self.index, self._keypair, self._witnessed, self._signed_by)
        self._checks = Checks()
        self._uploads: dict[int, Upload] = {}
        self._start = self._model
        if self._parameters.personal:
            values = np.broadcast_to(self._model.values, (self._parameters.models, len(self._model.values)))
            self._start = VectorShare(values, self._model.scale_bits, self.index)

    @abstractmethod
    def compute(self, number: int, present: Present) -> tuple[VectorShare, dict[str, Any]]:
        """This server's share of the new model without noise, and what it cost (fields of `RoundCost`, one side's).

        Under a personal rule the share of all clients' models, shape (q, d).

        Begins with `_agree_on_round`. Somebody is present.
        """

    def upload(self, order: Submit) -> None:
        """Open one client's envelope. Whatever is wrong with it is noted, and costs that client its part alone."""
        self._enter(order.round)
        place = order.slot, order.client
        self._reception.take(self._run, order.round, place, order.envelope, self._layout())

    def settle(self, order: Settle) -> None:
        """Agree with the other server on some uploads, and absorb those that both hold."""
        self._enter(order.round)
        self._settle(order.round, order.places)

    def _enter(self, number: int) -> None:
        """Check that the round of an order is the one that uploads come for."""
        self._position.enter("upload", number)
        if number <= self._last_round:
            # The same masks under other weights would show how the weights differ.
            reason = f"brought a replay: round {number} has been aggregated"
            raise self._coordinator.error(DisagreementError, reason)
        if self._round not in (None, number):
            raise self._coordinator.error(DisagreementError, f"brought uploads for round {self._round} too")
        self._round = number

    def _settle(self, number: int, places: list[Seat]) -> None:
        self._position.enter("settlement", number)
        try:
            agreed = self._reception.settle(number, places, self._peer)
        except ValueError as error:
            raise self._coordinator.error(DisagreementError, str(error)) from None
        if agreed and self._parameters.bound is not None:
            agreed = self._verify(number, agreed)
        for slot, upload in agreed.items():
            self._start, self._uploads[slot] = absorb(self._start, upload)

    def _witnessed(self, upload: Upload) -> Upload:
        """An upload that came, with what is checked of it, where clients are not trusted."""
        return upload

    @abstractmethod
    def _verify(self, number: int, agreed: dict[int, Upload]) -> dict[int, Upload]:
        """Those of the uploads, by slot, that are what they have to be; `Reception.refused` says why others are not."""

    def aggregate(self, order: Aggregate) -> dict[str, Any]:
        """One round; returns the reply for the coordinator: the noisy shares, or the answers, and what they cost.

        Where fewer clients are present than a round needs, nothing is computed, and the reply says who was left out.
        """
        number = order.round
        self._enter(number)
        present, left_out = self._present(number, order.cohort), self._reception.refused
        self._last_round = number  # from here on masks may have been used, whether the round succeeds or not
        if len(present.clients) < self._min_cohort:
            self._end(number)
            return {"type": "too few", "left_out": list(left_out.items())}
        self._take_turns(present.clients)
        count = None
        if self._announced.count_stddev is not None:
            uploads, count = separate_count(present.uploads, self.index)
            present = replace(present, uploads=uploads)
        result, cost = self.compute(number, present) if present.clients else self._compute_nothing(number, present)
        reply: dict[str, Any] = {"type": "result", "left_out": list(left_out.items())}
        if self._parameters.personal:
            reply["answers"] = self._answers(number, present, result, cost)
        else:
            reply |= self._release(number, result, count, cost)
        cost["online_seconds"] += self._checks.seconds
        cost["online_bytes"] += self._checks.bytes
        cost["rounds"] += self._checks.exchanges
        cost["preprocessing_seconds"] += self._checks.preprocessing_seconds
        cost["preprocessing_bytes"] += self._checks.preprocessing_bytes
        self._end(number)
        return {**reply, **cost}

    def _taken(self, pool: Pool[Key, Made], key: Key) -> tuple[Made, float]:
        """What a pool has made; as long as it has not, the others hear that this server is at work."""

        def beat() -> None:
            self._peer.beat()
            self._coordinator.beat()

        return pool.take(key, min(self._peer.timeout_sec, self._coordinator.timeout_sec) / 4, beat)

    def _end(self, number: int) -> None:
        """The round is over: what was made for it and not taken is let go, and the next one's uploads may come."""
        self._noise.forget(lambda key: key[0] <= number)
        self._begin()

    def _release(
        self, number: int, result: VectorShare, count: VectorShare | None, cost: dict[str, Any]
    ) -> dict[str, bytes]:
        """The share of the new model, with noise, and that of the count; rounds that accumulate go on from this one."""
        key = number, self._announced.noise_stddev, self._announced.count_stddev or 0.0
        (noise, count_noise), waited_seconds = self._taken(self._noise, key)
        started = time.perf_counter()
        try:
            released = {"share": _add(result, self._bands.next(noise))}
        except OverflowError as error:
            raise ProtocolError(f"server {self.index}", "release", number, str(error)) from None
        if self._accumulates:  # noise included: clients train from what was released
            self._model = released["share"]
        if count is not None:
            released["count"] = _add(count, count_noise)
        cost["waited_seconds"] += waited_seconds
        cost["online_seconds"] += time.perf_counter() - started
        self._position.enter("release", number)
        return {name: share.values.astype("<u8").tobytes() for name, share in released.items()}

    def _take_turns(self, clients: list[int]) -> None:
        """Note who takes part in a release, each b releases after its last one: within b, noise is not theirs alone."""
        self._releases += 1
        bands = len(self._bands.bands) + 1
        for client in clients if bands > 1 else ():
            since = self._releases - self._turns.get(client, -bands)
            if since < bands:
                reason = f"asked client {client} again after {since} releases, and the noise has {bands} bands"
                raise self._coordinator.error(DisagreementError, reason)
            self._turns[client] = self._releases

    def _answers(
        self, number: int, present: Present, models: VectorShare, cost: dict[str, Any]
    ) -> list[tuple[int, bytes]]:
        """Under a personal rule, by slot: each client's share of its own model, for nobody else to open.

        The public model stays.
        """
        started = time.perf_counter()
        self._position.enter("release", number)
        slots, answers = sorted(self._uploads), []
        for slot, client, upload, share in zip(slots, present.clients, present.uploads, models.values, strict=True):
            header = Header(self._run, number, slot, client, self.index)
            dithered = share + dither_ring64(len(share), self._vectors.weight_bits)
            answers.append((slot, seal_answer(dithered, header, upload.reply_key)))
        cost["online_seconds"] += time.perf_counter() - started
        return answers

    def _present(self, number: int, cohort: list[int]) -> Present:
        """Who of the cohort takes part: those whose uploads both servers hold; both then name the same ones."""
        if len(cohort) != self._parameters.cohort:
            reason = f"announced {self._parameters.cohort} clients, but a cohort of {len(cohort)}"
            raise self._coordinator.error(DisagreementError, reason)
        try:
            places = self._reception.open_places(cohort)
        except ValueError as error:
            raise self._coordinator.error(DisagreementError, str(error)) from None
        if places:
            self._settle(number, places)
        slots = sorted(self._uploads)  # uploads may have come to the other server in another order
        uploads, start = [self._uploads[slot] for slot in slots], self._start
        if self._parameters.personal and len(slots) < len(cohort):
            uploads = [only(upload, slots) for upload in uploads]
            start = VectorShare(start.values[slots], start.scale_bits, start.owner)
        parameters = replace(self._parameters, cohort=len(slots))
        return Present(parameters, [cohort[slot] for slot in slots], uploads, start)

    def _compute_nothing(self, number: int, present: Present) -> tuple[VectorShare, dict[str, Any]]:
        """As `compute`, where nobody is present: once the servers agree on that, the model as it was."""
        started, sent, exchanges = time.perf_counter(), self._peer.sent_bytes, self._peer.exchanges
        self._agree_on_round(number, present)
        return present.start, {
            "online_seconds": time.perf_counter() - started,
            "online_bytes": self._peer.sent_bytes - sent,
            "rounds": self._peer.exchanges - exchanges,
            "preprocessing_seconds": 0.0,
            "preprocessing_bytes": 0,
            "waited_seconds": 0.0,
            "startup_seconds": 0.0,
        }

    def _agree_on_round(self, number: int, present: Present) -> None:
        self._position.enter("handshake", number)
        self._agree({"round": number, "cohort": present.clients, "terms": self._terms})

    def _agree(self, statement: dict[str, Any]) -> None:
        """Compare digests of what both servers must hold alike; naming what differs needs one more exchange."""
        parts = {name: hashlib.sha256(msgpack.packb(value)).digest() for name, value in statement.items()}
        own = b"".join(parts.values())
        theirs = self._peer.exchange(own)
        differing = [name for k, name in enumerate(parts) if own[32 * k : 32 * k + 32] != theirs[32 * k : 32 * k + 32]]
        if differing:
            raise self._peer.error(DisagreementError, f"holds another {', '.join(differing)} than server {self.index}")

    def _layout(self) -> Layout:
        """What every upload of the announced round holds."""
        counted = self._announced.count_stddev is not None
        signed = self._signed_by is not None
        return Layout.of_round(self._parameters, self._program, len(self._model.values), counted, signed)

    def _draw(self, key: _NoiseKey) -> tuple[np.ndarray, np.ndarray]:
        """A round's noise, for the aggregate, dither included, and for the count; runs in a thread of its own."""
        _, noise_stddev, count_stddev = key
        noise = noise_ring64(len(self._model.values), noise_stddev, self._vectors.model_bits)
        noise += dither_ring64(len(noise), self._vectors.weight_bits)
        return noise, noise_ring64(1, count_stddev, COUNT_BITS)


def _add(share: VectorShare, noise: np.ndarray) -> VectorShare:
    return VectorShare(share.values + noise, share.scale_bits, share.owner)


def run_with(protocol: Protocol, peer: Channel) -> Any:
    """Run a protocol with the other server; what it finds wrong with a message is that server's fault."""
    try:
        return run(protocol, peer.exchange)
    except ValueError as error:
        raise peer.error(DisagreementError, str(error)) from None
