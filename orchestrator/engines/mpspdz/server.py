"""One aggregation server that computes with MP-SPDZ, as a process: `python -m` this module.

Parties, adversary: as in the embedded engine's `program`; in addition MP-SPDZ's own, semi-honest with one corruption
(`semi2k`), or with a dealer that colludes with neither server (`dealer-ring`). This process opens its envelopes and
hands its shares to a party of its own as that party's share file, so that no private input costs communication, and
reads its share of the result back. With `assisted` the parties compute the factors s_i only, and the servers open
e_i = s_i - a_i between themselves. Channel: the parties' connections are TLS with the installation's certificates; the
servers' own is mutual TLS (`tls`). What is opened inside MP-SPDZ is masked by its protocols.
"""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.engines.embedded.arithmetic import SharedArithmetic
from orchestrator.engines.embedded.channel import Channel
from orchestrator.engines.embedded.preprocessing import Tally
from orchestrator.engines.embedded.program import scaled_sum
from orchestrator.engines.embedded.server import Server, main, run_with
from orchestrator.engines.mpspdz.compiler import Shape, compile_program
from orchestrator.engines.mpspdz.doctor import free_port
from orchestrator.engines.mpspdz.installation import PARTIES, Installation
from orchestrator.engines.mpspdz.output import PartyCost
from orchestrator.engines.mpspdz.party import Party, PartyError
from orchestrator.engines.mpspdz.persistence import integers, read_shares, words, write_shares
from orchestrator.errors import ConfigError, DisagreementError, PeerLostError, ProtocolError
from orchestrator.sharing.fixed_point import SCALAR_BITS
from orchestrator.sharing.ring import truncate
from orchestrator.sharing.shares import ScalarShare, VectorShare
from orchestrator.sharing.upload import Upload

__all__ = ["MpSpdzServer"]

_HOST = "127.0.0.1"
_ATTEMPTS = 20
_BLAMED = re.compile(
    r"because party (\d+) encountered|because (another) party|most likely due to a problem on the (other) side"
)


class MpSpdzServer(Server):
    """Computes a round by a party of MP-SPDZ, started for it."""

    def setup(self, order: dict[str, Any], peer: Channel, supply: Channel) -> None:
        super().setup(order, peer, supply)
        settings = order["engine"]
        self._installation = Installation(Path(settings["home"]))
        self._cache = Path(settings["cache"])
        self._shape = Shape(self._program, settings["protocol"], self._parameters, len(self._model.values))
        self._dealer_order = {
            "program": self._program,
            "parameters": order["parameters"],
            "length": self._shape.length,
            "home": settings["home"],
            "cache": settings["cache"],
        }

    def compute(self, number: int, cohort: list[int], uploads: list[Upload]) -> tuple[VectorShare, dict[str, Any]]:
        started, sent, exchanges = time.perf_counter(), self._peer.sent_bytes, self._peer.exchanges
        self._position.enter("handshake", number)
        self._agree({"round": number, "cohort": cohort})
        own_seconds = time.perf_counter() - started
        inputs, outputs = self._inputs(uploads), self._output_count()
        try:
            compiled = compile_program(self._installation, self._shape, self._cache)
            with Party(self._installation, self._shape, compiled, self.index) as party:
                write_shares(party.shares, inputs)
                port = self._free_port(number)
                self._position.enter("online", number)
                cost = self._run_party(party, port, number)
                shares = read_shares(party.shares, self._shape.ring_bits, len(inputs), outputs)
        except (ConfigError, ValueError, OSError) as error:
            reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
            raise self._failure(reason) from None
        dealt, resumed = self._dealt_bytes(), time.perf_counter()
        result = self._result(shares, uploads)
        ended = time.perf_counter()
        online_seconds = own_seconds + cost.online_seconds + ended - resumed
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
        ring, fraction = self._shape.ring_bits, self._shape.fraction_bits
        columns = [value for column in zip(*(upload.scalars for upload in uploads), strict=True) for value in column]
        parts = [words(truncate(columns, SCALAR_BITS - fraction, self.index), ring)]
        for upload in uploads:
            if self._program == "scalar-first":  # what two shares exceed 2^64 by stays a multiple of it
                parts.append(np.stack([upload.update, np.zeros_like(upload.update)], axis=1))
            elif self._program == "faithful":
                parts.append(words(truncate(upload.update, self._vectors.update_bits - fraction, self.index), ring))
        return np.concatenate(parts)

    def _output_count(self) -> int:
        return self._parameters.cohort if self._program == "assisted" else len(self._model.values)

    def _result(self, shares: np.ndarray, uploads: list[Upload]) -> VectorShare:
        if self._program == "assisted":
            factors = ScalarShare(integers(shares), SCALAR_BITS, self.index)
            ops = SharedArithmetic(self.index, Tally())  # the sum takes nothing from preprocessing
            return run_with(scaled_sum(ops, self._vectors, factors, uploads, self._start), self._peer)
        scale = self._shape.fraction_bits
        if self._program == "scalar-first":
            scale += self._vectors.update_bits
        total = shares[:, 0] << np.uint64(self._vectors.model_bits - scale)
        return VectorShare(self._start.values - total, self._vectors.model_bits, self.index)

    def _free_port(self, number: int) -> int:
        """A base port that server 0 finds and whose own port server 1 finds free too."""
        for _ in range(_ATTEMPTS):
            own = free_port(PARTIES[self._shape.protocol]) if self.index == 0 else 0
            port = own + int.from_bytes(self._peer.exchange(own.to_bytes(4, "little")), "little")
            fits = self.index == 0 or _is_free(port + 1)
            if self._peer.exchange(bytes([fits])) == b"\x01" and fits:
                if self._shape.protocol == "dealer-ring" and self.index == 0:
                    self._supply.send_message({**self._dealer_order, "round": number, "port": port})
                return port
        raise self._failure("found no free ports")

    def _run_party(self, party: Party, port: int, number: int) -> PartyCost:
        try:
            return party.run(_HOST, port, self._peer.timeout_sec, self._orchestrator)
        except PartyError as error:
            blamed = _BLAMED.search(str(error))
            if blamed is None:
                raise self._failure(str(error)) from None
            role = f"server {1 - self.index}" if blamed.group(1) in (None, "0", "1") else "dealer"
            raise PeerLostError(role, "online", number, f"its party was lost: {error}") from None

    def _dealt_bytes(self) -> int:
        """What the dealer sent to each server; it says so itself when its party has ended."""
        if self._shape.protocol != "dealer-ring":
            return 0
        message = self._supply.receive_message()
        if "error" in message:
            raise self._supply.error(DisagreementError, str(message["error"]))
        return int(message["sent_bytes"]) // 2

    def _failure(self, reason: str) -> ProtocolError:
        return PeerLostError(f"server {self.index}", self._position.phase, self._position.round, f"MP-SPDZ: {reason}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


if __name__ == "__main__":
    main(MpSpdzServer)
