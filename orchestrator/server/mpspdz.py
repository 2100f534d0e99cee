"""One aggregation server that computes with MP-SPDZ, as a process: `python -m` this module.

Parties, adversary: as in the embedded `aggregation`; in addition MP-SPDZ's own, semi-honest with one corruption
(`semi2k`), or with a dealer that colludes with neither server (`dealer-ring`). This process opens its envelopes and
hands its shares to a party of its own as that party's share file, so that no private input costs communication, and
reads its share of the result back. With `assisted` the parties compute the factors s_i only, and the servers open
e_i = s_i - a_i between themselves. Channel: the parties' connections are TLS with the installation's certificates; the
servers' own is mutual TLS (`tls`). What is opened inside MP-SPDZ is masked by its protocols.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from mpc_programs.rules import RoundParameters
from orchestrator.errors import ConfigError, PeerLostError, PeerTimeoutError, ProtocolError
from orchestrator.mpc.fixed_point import SCALAR_BITS
from orchestrator.mpc.offline.correlations import Tally
from orchestrator.mpc.ring import truncate
from orchestrator.mpc.shared_arithmetic import SharedArithmetic
from orchestrator.mpc.shares import ScalarShare, VectorShare
from orchestrator.mpspdz.compiler import compile_program
from orchestrator.mpspdz.installation import PROTOCOLS, Installation
from orchestrator.mpspdz.output import PartyCost
from orchestrator.mpspdz.party import Party, PartyError, PortInUseError, Waitable
from orchestrator.mpspdz.persistence import integers, read_shares, words, write_shares
from orchestrator.mpspdz.ports import free_ports, is_free
from orchestrator.mpspdz.shape import Shape
from orchestrator.server.aggregation import scaled_sums
from orchestrator.server.base import Present, run_with
from orchestrator.server.checking import CheckingServer
from orchestrator.server.main import main
from orchestrator.transport.channel import Channel, ready
from orchestrator.wire.orders import Setup
from orchestrator.wire.upload import Upload

__all__ = ["MpSpdzServer"]

_HOST = "127.0.0.1"
_ATTEMPTS = 20
_DONE, _AGAIN = b"\0", b"\1"
_HEARING_SEC = 5.0  # for the dealer to say what it knows, before somebody is blamed


class MpSpdzServer(CheckingServer):
    """Computes a round by a party of MP-SPDZ, started for it."""

    sources = ("orchestrator/mpspdz",)

    def setup(self, order: Setup, peer: Channel, supply: Channel) -> None:
        super().setup(order, peer, supply)
        self._settings = order.engine
        self._installation = Installation(Path(self._settings["home"]))
        self._cache, self._scratch = Path(self._settings["cache"]), Path(self._settings["scratch"])
        self._shape = self._shape_of(self._parameters)
        self._dealer = supply if PROTOCOLS[self._shape.protocol].dealer else None
        if self._dealer is not None:
            supply.position = self._position  # it is used in the rounds, not beside them
        elif self._parameters.bound is not None:
            self._supplied(supply)

    def _shape_of(self, parameters: RoundParameters) -> Shape:
        return Shape(self._program, self._settings["protocol"], parameters, len(self._model.values))

    def compute(self, number: int, present: Present) -> tuple[VectorShare, dict[str, Any]]:
        """As every server. A program is for one number of clients: for fewer another one is compiled, which is kept."""
        self._agree_on_round(number, present)
        started, sent, exchanges = time.perf_counter(), self._peer.sent_bytes, self._peer.exchanges
        self._shape = self._shape_of(present.parameters)
        inputs, outputs = self._inputs(present.uploads), self._output_count()
        ring_bits = self._shape.ring_bits
        try:
            compiled = compile_program(self._installation, self._shape, self._cache)
            with Party(self._installation, self._shape, compiled, self.index, self._scratch) as party:
                write_shares(party.shares, inputs)
                self._position.enter("online", number)
                cost, dealt = self._run_parties(party, number)
                shares = read_shares(party.shares, ring_bits, len(inputs), outputs)
        except (ConfigError, ValueError, OSError) as error:
            reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
            raise self._failure(reason) from None
        resumed = time.perf_counter()
        result = self._result(shares, present)
        ended = time.perf_counter()
        online_seconds = cost.online_seconds + ended - resumed
        return result, {
            "online_seconds": online_seconds,
            "online_bytes": cost.online_bytes + self._peer.sent_bytes - sent,
            "rounds": cost.online_rounds + self._peer.exchanges - exchanges,
            "preprocessing_seconds": cost.preprocessing_seconds,
            "preprocessing_bytes": cost.preprocessing_bytes + dealt,
            "waited_seconds": cost.preprocessing_seconds,
            "startup_seconds": max(0.0, ended - started - online_seconds - cost.preprocessing_seconds),
        }

    def _inputs(self, uploads: list[Upload]) -> np.ndarray:
        """The party's share file: the scores, one column of q after the other, then the vectors the program takes."""
        program, owner = self._shape.round_program, self.index
        columns = [value for column in zip(*(upload.scalars for upload in uploads), strict=True) for value in column]
        scores = words(truncate(columns, SCALAR_BITS - program.fraction_bits, owner), program.ring_bits)
        return np.concatenate([scores, *(program.words(upload.update, self._vectors, owner) for upload in uploads)])

    def _output_count(self) -> int:
        return self._shape.length if self._shape.round_program.sums else self._shape.parameters.cohort

    def _result(self, shares: np.ndarray, present: Present) -> VectorShare:
        program = self._shape.round_program
        if not program.sums:
            factors = ScalarShare(integers(shares), SCALAR_BITS, self.index)
            ops = SharedArithmetic(self.index, Tally())  # the sum takes nothing from preprocessing
            return run_with(scaled_sums(ops, self._vectors, factors, present.uploads, present.start), self._peer)
        total = shares[:, 0] << np.uint64(self._vectors.model_bits - program.sum_bits(self._vectors))
        return VectorShare(present.start.values - total, self._vectors.model_bits, self.index)

    def _run_parties(self, party: Party, number: int) -> tuple[PartyCost, int]:
        """Run the parties, again on other ports where these are taken; what this server's cost and the dealer sent.

        When its party has ended each server says so to the other one, which hears it while its own party still runs.
        """
        for _ in range(_ATTEMPTS):
            port = self._agree_on_ports(number)
            heard: dict[str, Any] = {}
            watch: dict[Waitable, Callable[[], None]] = {self._coordinator: _abandon}
            watch[self._peer] = lambda: self._hear_peer(heard)  # noqa: B023
            if self._dealer is not None:
                watch[self._dealer] = lambda: self._hear_dealer(heard, port)  # noqa: B023
            cost = None
            try:
                cost = party.run(_HOST, port, self._peer.timeout_sec, watch)
            except PortInUseError:
                pass
            except PartyError as error:
                raise self._blame(error, heard, port) from None
            self._peer.send(_DONE if cost else _AGAIN)
            if "peer" not in heard and "lost" not in heard:
                self._hear_peer(heard, end_party=False)
            if "lost" in heard:
                raise heard["lost"]
            if cost is None or heard["peer"] != _DONE:
                continue
            if self._dealer is None:
                return cost, 0
            if "dealer" not in heard:
                self._hear_dealer(heard, port, end_party=False)
            if "error" in heard["dealer"]:
                raise self._failure(heard["dealer"]["error"], "dealer")
            return cost, int(heard["dealer"]["sent_bytes"]) // 2  # it serves both servers alike
        raise self._failure("found no free ports")

    def _agree_on_ports(self, number: int) -> int:
        """A base port that server 0 finds and whose own port server 1 finds free too; the dealer is told."""
        for _ in range(_ATTEMPTS):
            own = free_ports(self._shape.parties) if self.index == 0 else 0
            port = own + int.from_bytes(self._peer.exchange(own.to_bytes(4, "little")), "little")
            fits = self.index == 0 or is_free(port + 1)  # party i listens on the base port + i
            if self._peer.exchange(bytes([fits])) == b"\1" and fits:
                if self._dealer is not None and self.index == 0:
                    self._dealer.send_message(self._dealer_order(number, port))
                return port
        raise self._failure("found no free ports")

    def _dealer_order(self, number: int, port: int) -> dict[str, Any]:
        folders = {name: self._settings[name] for name in ("home", "cache", "scratch")}
        program = {"program": self._program, "parameters": asdict(self._shape.parameters)}
        return {"round": number, "port": port, **program, "length": self._shape.length, **folders}

    def _hear_peer(self, heard: dict[str, Any], end_party: bool = True) -> None:
        """How the other server's party ended. Where that server is lost, the own party's end may say why."""
        try:
            heard["peer"] = self._peer.receive()
        except PeerLostError as error:
            heard["lost"] = error
            return
        if end_party and heard["peer"] != _DONE:
            raise PortInUseError("the other server's port is in use")

    def _hear_dealer(self, heard: dict[str, Any], port: int, end_party: bool = True) -> None:
        """What the dealer says when its party has ended; it may still answer an attempt on other ports."""
        assert self._dealer is not None
        reply = self._dealer.receive_message()
        while reply["port"] != port:
            reply = self._dealer.receive_message()
        heard["dealer"] = reply
        if end_party and reply.get("port_in_use"):
            raise PortInUseError(reply["error"])
        if end_party and reply.get("own"):
            raise self._failure(reply["error"], "dealer", reply["stalled"])

    def _blame(self, error: PartyError, heard: dict[str, Any], port: int) -> ProtocolError:
        """Who is at fault when the own party failed: itself, the other server's, or the dealer's, which says so."""
        if error.blamed == "own":
            return self._failure(str(error), stalled=error.stalled)
        if self._dealer is not None:
            if "dealer" not in heard and ready([self._dealer], _HEARING_SEC):
                self._hear_dealer(heard, port, end_party=False)
            reply = heard.get("dealer", {})
            if reply.get("own") or (not reply and error.blamed == "2"):
                reason = reply.get("error", f"its party was lost: {error}")
                return self._failure(reason, "dealer", reply.get("stalled", error.stalled))
        return self._failure(f"its party was lost: {error}", f"server {1 - self.index}", error.stalled)

    def _failure(self, reason: str, peer: str = "", stalled: bool = False) -> ProtocolError:
        kind = PeerTimeoutError if stalled else PeerLostError
        return kind(peer or f"server {self.index}", self._position.phase, self._position.round, f"MP-SPDZ: {reason}")


def _abandon() -> None:
    raise PartyError("nobody waits for the result any more")


if __name__ == "__main__":
    main(MpSpdzServer)
