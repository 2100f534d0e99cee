"""One aggregation server as a process: `python -m` this module.

Parties, adversary and what is learned: see `program`. This process holds one share of everything and both of nothing.
It takes orders from the orchestrator's connection (setup, prepare, aggregate), opens the envelopes that are sealed to
its own key, agrees with the other server on program, parameters, round and cohort before a share is touched, and
returns its noisy share, or under a personal rule a share for each client, sealed to that client. Whatever fails is
reported to the orchestrator as an error that names peer, phase and round.
"""

from __future__ import annotations

import hashlib
import socket
import time
from abc import ABC, abstractmethod
from dataclasses import astuple
from typing import Any

import msgpack
import numpy as np

from mpc_programs.lockstep import Protocol, run
from mpc_programs.rules import RoundParameters
from orchestrator.engines.embedded.arithmetic import SharedArithmetic
from orchestrator.engines.embedded.channel import Channel, Position, accept, connect
from orchestrator.engines.embedded.generation import generate
from orchestrator.engines.embedded.ot import OtExtension
from orchestrator.engines.embedded.pool import Pool, Prepared
from orchestrator.engines.embedded.preprocessing import Batch
from orchestrator.engines.embedded.process import Assignment, begin
from orchestrator.engines.embedded.program import absorb, aggregate, demand, score_names, separate_count
from orchestrator.engines.embedded.sources import source_digest
from orchestrator.engines.embedded.tls import Identity
from orchestrator.errors import DisagreementError, PeerLostError, ProtocolError
from orchestrator.privacy.noise import noise_ring64
from orchestrator.sharing.answer import seal_answer
from orchestrator.sharing.envelope import Keypair
from orchestrator.sharing.fixed_point import COUNT_BITS, VectorFormat
from orchestrator.sharing.message import Header
from orchestrator.sharing.shares import VectorShare
from orchestrator.sharing.upload import Correlated, Upload, unpack_upload

__all__ = ["EmbeddedServer", "Server", "main", "run_with"]

_NoiseKey = tuple[int, float, float]
"""A round, and the standard deviations of its noise."""


class Server(ABC):
    """What every engine's server does: envelopes, agreement with the other server, noise. Engines add the computing.

    State between rounds: the share of the model, the connections, the uploads of the round to come.

    Attributes:
        sources: folders that the engine's servers run besides those that `source_digest` names.
    """

    sources: tuple[str, ...] = ()

    def __init__(self, index: int, keypair: Keypair, orchestrator: Channel, position: Position) -> None:
        self.index = index
        self._keypair = keypair
        self._orchestrator = orchestrator
        self._position = position
        self._uploads: dict[tuple[int, int], tuple[int, Upload]] = {}
        self._last_round = 0

    def setup(self, order: dict[str, Any], peer: Channel, supply: Channel) -> None:
        """Take over the public parameters and model; the model's share is the model itself at server 0 and 0 at 1.

        Args:
            peer: the connection to the other server, for the rounds.
            supply: a connection beside it: to the dealer, or a second one to the other server.
        """
        self._peer, self._supply = peer, supply
        self._run: bytes = order["run"]
        self._take_over(order)
        self._vectors = VectorFormat(**order["vectors"])
        self._program: str = order["program"]
        model = np.frombuffer(order["model"], dtype="<u8")
        own = model if self.index == 0 else np.zeros_like(model)
        self._model = VectorShare(own, self._vectors.model_bits, self.index)
        self._start = self._before_uploads()
        self._noise: Pool[_NoiseKey, tuple[np.ndarray, np.ndarray]] = Pool(self._draw, "noise")
        self._position.enter("handshake", 0)
        self._agree(
            {
                "program": (source_digest(*self.sources), self._program),
                "run": self._run,
                "model": len(model),
                "terms": self._terms,
                "vectors": order["vectors"],
                "engine": order["engine"],
            }
        )

    def prepare(self, order: dict[str, Any]) -> None:
        """Take over what is public about a coming round and begin with what the round needs; returns at once."""
        models = self._parameters.models
        self._take_over(order)
        if not self._uploads:
            self._start = self._before_uploads()
        elif self._parameters.models != models:
            raise self._orchestrator.error(DisagreementError, "announced another cohort's size after its uploads")
        if not self._parameters.personal:
            self._noise.fill((order["round"], self._noise_stddev, self._count_stddev or 0.0))

    def _before_uploads(self) -> VectorShare:
        """What the coming round's uploads add their products to: the model, under a personal rule once a client."""
        if not self._parameters.personal:
            return self._model
        values = np.broadcast_to(self._model.values, (self._parameters.models, len(self._model.values)))
        return VectorShare(values, self._model.scale_bits, self.index)

    def _take_over(self, order: dict[str, Any]) -> None:
        self._terms = [order["parameters"], order["noise_stddev"], order["count_stddev"]]
        self._parameters = RoundParameters(**order["parameters"])
        self._noise_stddev: float = order["noise_stddev"]
        self._count_stddev: float | None = order["count_stddev"]

    @abstractmethod
    def compute(self, number: int, cohort: list[int], uploads: list[Upload]) -> tuple[VectorShare, dict[str, Any]]:
        """This server's share of the new model without noise, and what it cost (fields of `RoundCost`, one side's).

        Under a personal rule the share of all clients' models, shape (q, d).

        Begins with `_agree_on_round`. The cohort is not empty.
        """

    def upload(self, order: dict[str, Any]) -> None:
        """Open one client's envelope and keep its shares for the round."""
        number, slot, client = order["round"], order["slot"], order["client"]
        self._position.enter("upload", number)
        if number <= self._last_round:
            # The same masks under other weights would show how the weights differ.
            reason = f"the upload is a replay: round {number} has been aggregated"
            raise DisagreementError(f"client {client}", "upload", number, reason)
        header = Header(self._run, number, slot, client, self.index)
        try:
            message = self._keypair.open(order["envelope"])
            shares = self._unpack(message, header)
            if (number, slot) in self._uploads:
                raise ValueError(f"a second upload for slot {slot}")
        except ValueError as error:
            raise DisagreementError(f"client {client}", "upload", number, str(error)) from None
        if isinstance(shares.update, Correlated):
            self._start, shares = absorb(self._start, shares)
        self._uploads[number, slot] = (client, shares)

    def aggregate(self, order: dict[str, Any]) -> dict[str, Any]:
        """One round; returns the reply for the orchestrator: the noisy shares, or the answers, and what they cost."""
        number, cohort = order["round"], order["cohort"]
        uploads, count = self._complete(number, cohort), None
        if self._count_stddev is not None:
            uploads, count = separate_count(uploads, self.index)
        self._last_round = number  # from here on masks may have been used, whether the round succeeds or not
        result, cost = self.compute(number, cohort, uploads) if cohort else self._compute_nothing(number)
        if self._parameters.personal:
            return self._answer(number, cohort, uploads, result, cost)
        (noise, count_noise), waited_seconds = self._noise.take((number, self._noise_stddev, self._count_stddev or 0.0))
        started = time.perf_counter()
        self._model = self._start = _add(result, noise)
        released = {"share": self._model}
        if count is not None:
            released["count"] = _add(count, count_noise)
        cost["waited_seconds"] += waited_seconds
        cost["online_seconds"] += time.perf_counter() - started
        self._position.enter("release", number)
        shares = {name: share.values.astype("<u8").tobytes() for name, share in released.items()}
        return {"type": "result", **shares, **cost}

    def _answer(
        self, number: int, cohort: list[int], uploads: list[Upload], models: VectorShare, cost: dict[str, Any]
    ) -> dict[str, Any]:
        """The reply under a personal rule: each client's share of its own model, for nobody else to open.

        The public model stays as it is.
        """
        started = time.perf_counter()
        self._position.enter("release", number)
        self._start, answers = self._before_uploads(), []
        for slot, (client, upload, share) in enumerate(zip(cohort, uploads, models.values, strict=False)):
            header = Header(self._run, number, slot, client, self.index)
            try:
                answers.append(seal_answer(share, header, upload.reply_key))
            except ValueError:
                reason = "its reply key is none"
                raise DisagreementError(f"client {client}", "release", number, reason) from None
        cost["online_seconds"] += time.perf_counter() - started
        return {"type": "result", "answers": answers, **cost}

    def _complete(self, number: int, cohort: list[int]) -> list[Upload]:
        """The shares of every slot of the cohort, exactly as announced."""
        self._position.enter("upload", number)
        held, self._uploads = self._uploads, {}
        if strays := {round for round, _ in held} - {number}:
            raise self._orchestrator.error(DisagreementError, f"brought uploads for round {min(strays)} too")
        found = {slot: client for (_, slot), (client, _) in held.items()}
        if found != dict(enumerate(cohort)) or len(cohort) != self._parameters.cohort:
            reason = f"announced the cohort {cohort}, but uploads came from {list(found.values())}"
            raise self._orchestrator.error(DisagreementError, reason)
        return [held[number, slot][1] for slot in range(len(cohort))]

    def _compute_nothing(self, number: int) -> tuple[VectorShare, dict[str, Any]]:
        """As `compute`, where a Poisson sample is empty: once the servers agree on that, the model as it was."""
        started, sent, exchanges = time.perf_counter(), self._peer.sent_bytes, self._peer.exchanges
        self._agree_on_round(number, [])
        return self._model, {
            "online_seconds": time.perf_counter() - started,
            "online_bytes": self._peer.sent_bytes - sent,
            "rounds": self._peer.exchanges - exchanges,
            "preprocessing_seconds": 0.0,
            "preprocessing_bytes": 0,
            "waited_seconds": 0.0,
            "startup_seconds": 0.0,
        }

    def _agree_on_round(self, number: int, cohort: list[int]) -> None:
        self._position.enter("handshake", number)
        self._agree({"round": number, "cohort": cohort, "terms": self._terms})

    def _agree(self, statement: dict[str, Any]) -> None:
        """Compare digests of what both servers must hold alike; naming what differs needs one more exchange."""
        parts = {name: hashlib.sha256(msgpack.packb(value)).digest() for name, value in statement.items()}
        own = b"".join(parts.values())
        theirs = self._peer.exchange(own)
        differing = [name for k, name in enumerate(parts) if own[32 * k : 32 * k + 32] != theirs[32 * k : 32 * k + 32]]
        if differing:
            raise self._peer.error(DisagreementError, f"holds another {', '.join(differing)} than server {self.index}")

    def _unpack(self, message: bytes, header: Header) -> Upload:
        d, k = len(self._model.values), len(score_names(self._parameters)) + (self._count_stddev is not None)
        factors, answered = self._parameters.models, self._parameters.personal
        return unpack_upload(message, header, d, k, self._program, factors, answered)

    def _draw(self, key: _NoiseKey) -> tuple[np.ndarray, np.ndarray]:
        """A round's noise, for the aggregate and for the count, used for nothing else; runs in a thread of its own."""
        _, noise_stddev, count_stddev = key
        noise = noise_ring64(len(self._model.values), noise_stddev, self._vectors.model_bits)
        return noise, noise_ring64(1, count_stddev, COUNT_BITS)


def _add(share: VectorShare, noise: np.ndarray) -> VectorShare:
    return VectorShare(share.values + noise, share.scale_bits, share.owner)


class EmbeddedServer(Server):
    """Computes a round by the protocols of `program`, with correlations from a pool."""

    def setup(self, order: dict[str, Any], peer: Channel, supply: Channel) -> None:
        super().setup(order, peer, supply)
        self._dealt = supply.peer == "dealer"
        if not self._dealt:
            supply.position.enter("preprocessing", 0)
            self._transfers = run_with(OtExtension.create(), supply)
        self._pool: Pool[tuple[int, RoundParameters], Prepared] = Pool(self._make, "preprocessing")

    def prepare(self, order: dict[str, Any]) -> None:
        super().prepare(order)
        if self._parameters.cohort:
            self._pool.fill((order["round"], self._parameters))

    def compute(self, number: int, cohort: list[int], uploads: list[Upload]) -> tuple[VectorShare, dict[str, Any]]:
        asked = time.perf_counter()
        prepared, _ = self._pool.take((number, self._parameters))
        self._agree_on_round(number, cohort)  # by then both have their correlations
        started, sent, exchanges = time.perf_counter(), self._peer.sent_bytes, self._peer.exchanges
        self._position.enter("online", number)
        ops = SharedArithmetic(self.index, prepared.batch)
        protocol = aggregate(ops, self._parameters, self._vectors, uploads, self._start, self._program)
        result = run_with(protocol, self._peer)
        return result, {
            "online_seconds": time.perf_counter() - started,
            "online_bytes": self._peer.sent_bytes - sent,
            "rounds": self._peer.exchanges - exchanges,
            "preprocessing_seconds": prepared.seconds,
            "preprocessing_bytes": prepared.bytes,
            "waited_seconds": started - asked,
            "startup_seconds": 0.0,
        }

    def _make(self, key: tuple[int, RoundParameters]) -> Prepared:
        """Make a round's correlations with the other server, or fetch them from the dealer; runs in the pool's thread.

        The first batch after the start may be that of any round: a run may have been resumed.
        """
        (round, parameters), channel = key, self._supply
        channel.position.enter("preprocessing", round)
        started, before = time.perf_counter(), (channel.sent_bytes, channel.received_bytes)
        needed = demand(parameters, len(self._model.values), self._program)
        if self._dealt:
            channel.send_message({"round": round, "demand": astuple(needed)})
            message = channel.receive()
            try:
                batch = Batch.from_dealer(needed, self.index, message)
            except ValueError as error:
                raise channel.error(DisagreementError, str(error)) from None
            count = channel.received_bytes - before[1]
        else:
            batch = run_with(generate(self._transfers, self.index, needed), channel)
            count = channel.sent_bytes - before[0]
        return Prepared(batch, time.perf_counter() - started, count)


def run_with(protocol: Protocol, peer: Channel) -> Any:
    """Run a protocol with the other server; what it finds wrong with a message is that server's fault."""
    try:
        return run(protocol, peer.exchange)
    except ValueError as error:
        raise peer.error(DisagreementError, str(error)) from None


def serve(
    server: Server,
    orchestrator: Channel,
    listener: socket.socket,
    assignment: Assignment,
    identity: Identity,
    position: Position,
) -> None:
    """Follow the orchestrator's orders until it closes the connection."""
    while True:
        try:
            order = _next_order(orchestrator)
        except PeerLostError:
            return
        kind = order.get("type")
        if kind == "setup":
            peer, supply = _meet(order, server.index, listener, assignment, identity, position)
            listener.close()
            server.setup(order, peer, supply)
            orchestrator.send_message({"type": "ready"})
        elif kind == "prepare":
            server.prepare(order)
        elif kind == "upload":
            server.upload(order)
        elif kind == "aggregate":
            orchestrator.send_message(server.aggregate(order))
        else:
            raise orchestrator.error(DisagreementError, f"gave the unknown order {kind!r}")


def _meet(
    order: dict[str, Any],
    index: int,
    listener: socket.socket,
    assignment: Assignment,
    identity: Identity,
    position: Position,
) -> tuple[Channel, Channel]:
    """A connection to the other server for the rounds, and one beside it: to it too, or to the dealer."""
    session, timeout_sec = assignment.session, assignment.timeout_sec

    def other(position: Position) -> Channel:
        if index == 0:
            return connect(tuple(order["peer"]), identity, session, "server 1", position, timeout_sec)
        return accept(listener, {"server 0"}, identity, session, position, timeout_sec)["server 0"]

    peer, background = other(position), Position()
    if order["dealer"] is None:
        return peer, other(background)
    return peer, connect(tuple(order["dealer"]), identity, session, "dealer", background, timeout_sec)


def _next_order(orchestrator: Channel) -> dict[str, Any]:
    """Between orders a server waits for as long as clients train; only the closing of the connection ends it."""
    orchestrator.wait()
    return orchestrator.receive_message()


def main(kind: type[Server] = EmbeddedServer) -> None:
    """Run a server of this kind until the orchestrator's connection closes."""
    keypair = Keypair()
    assignment, identity, listener = begin({"public_key": keypair.public_key.hex()})
    position = Position()
    session, timeout_sec = assignment.session, assignment.timeout_sec
    orchestrator = accept(listener, {"orchestrator"}, identity, session, position, timeout_sec)["orchestrator"]
    server = kind(int(assignment.role.removeprefix("server ")), keypair, orchestrator, position)
    try:
        serve(server, orchestrator, listener, assignment, identity, position)
    except ProtocolError as error:
        orchestrator.send_message(
            {
                "type": "error",
                "kind": type(error).__name__,
                "peer": error.peer,
                "phase": error.phase,
                "round": error.round,
                "reason": error.reason,
            }
        )
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
