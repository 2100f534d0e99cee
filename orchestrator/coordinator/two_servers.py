"""Two servers as the coordinator sees them: two or three processes, sealed envelopes in, a released model out.

The coordinator carries ciphertexts and reconstructs the noisy model from two noisy shares; it sees no other share.
Under a personal rule it sees none: it carries ciphertexts to the clients as well.
All processes run on one machine. Every connection is mutual TLS 1.3 with a certificate for each role, see `tls`.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import orchestrator.errors as errors
from mpc_programs.programs import PROGRAMS
from mpc_programs.verification import LARGEST_LENGTH
from orchestrator.agreement.announcement import announcement
from orchestrator.agreement.round_plan import RoundPlan, Terms
from orchestrator.client.opening import OpeningDecoder
from orchestrator.client.sealing import SealingEncoder
from orchestrator.coordinator.engine import Aggregation, Engine, RoundCost, too_few
from orchestrator.coordinator.launch import OwnServers
from orchestrator.coordinator.servers import Servers
from orchestrator.errors import ConfigError, DisagreementError, PeerLostError, PeerTimeoutError, ProtocolError
from orchestrator.mpc.fixed_point import COUNT_BITS
from orchestrator.mpc.openings import release
from orchestrator.mpc.shares import VectorShare
from orchestrator.server.reception import hearsay
from orchestrator.transport.channel import Channel, Position, ready
from orchestrator.wire.orders import Aggregate, Order, Prepare, Settle, Setup, Submit
from orchestrator.wire.upload import Layout

__all__ = ["TwoServerEngine"]

_WAITING_BYTES = 1 << 22
"""When uploads of so many bytes wait at both servers together, these agree on them and absorb them."""

_CHECKED_TOGETHER = 4
"""Times as many where uploads are checked, as a check takes ten exchanges for any number of them."""


class TwoServerEngine(Engine):
    """Two server processes on this machine, and a dealer process where asked for; what they run is the subclass's."""

    def __init__(
        self,
        plan: RoundPlan,
        modules: dict[str, str],
        settings: dict[str, str],
        *,
        startup_timeout_sec: float = 120.0,
        timeout_sec: float = 60.0,
        ports: tuple[int, int, int] | None = None,
        certificates: Path | None = None,
        commands: dict[str, list[str]] | None = None,
        servers: Servers | None = None,
    ) -> None:
        """
        Args:
            plan: of the rounds.
            modules: the roles, and which module each one's process runs.
            settings: what else the servers must know, and must hold alike.
            startup_timeout_sec: longest start: of all processes until they listen, then of each connection and message
                until both servers are ready.
            timeout_sec: longest silence of a peer in a round.
            ports: for server 0, server 1 and the dealer; None takes free ones.
            certificates: a folder of `create_certificates`; None makes certificates for the session and keeps none.
            commands: how to start a role's process, for tests that need one to fail.
            servers: where they come from; None: they are processes on this machine, which the above is about.

        Raises:
            ConfigError: the noise does not fit the vector format, a personal rule is not computed in this way, or a
                certificate is not fit for use.
        """
        self.plan, self._parameters, self._vectors = plan, plan.rule, plan.vectors
        self._program, self._settings = plan.program, settings
        self._usual = plan.terms
        self._usual.check(self._parameters)
        if self._parameters.personal and not PROGRAMS[plan.program].personal:
            able = ", ".join(name for name, program in PROGRAMS.items() if program.personal)
            raise ConfigError(f"engine.program = {plan.program}: {self._parameters.rule} is computed by {able} only")
        self._startup_timeout_sec, self._timeout_sec = startup_timeout_sec, timeout_sec
        self._servers = servers or OwnServers(
            modules, commands or {}, ports, certificates, startup_timeout_sec, timeout_sec
        )
        self._channels: dict[str, Channel] = {}
        self._position = Position()
        self._encoder: SealingEncoder | None = None
        self._decoder: OpeningDecoder | None = None
        self._announced = announcement(plan, self._parameters.cohort, self._usual)
        self._prepared = self._upload_bytes = self._waiting_bytes = 0
        self._unsettled: list[tuple[int, int]] = []
        self._left_out: dict[int, str] = {}

    @property
    def encoder(self) -> SealingEncoder:
        if self._encoder is None:
            raise RuntimeError("the engine has not been started")
        return self._encoder

    @property
    def decoder(self) -> OpeningDecoder:
        if self._decoder is None:
            raise RuntimeError("the engine has not been started")
        return self._decoder

    @property
    def pids(self) -> Mapping[str, int]:
        """Process ids by role."""
        return self._servers.pids

    def start(self, parameters: np.ndarray) -> None:
        """Start the processes and give both servers the public model, float64 (d,).

        Starting again, after a round that failed, replaces them by new ones: masks that may have been opened are gone
        with the processes that held them, and envelopes sealed for the old ones fit nowhere.
        """
        self.close()
        if self._parameters.bound is not None and len(parameters) > LARGEST_LENGTH:
            raise ConfigError(
                f"federation.clients = untrusted: nothing is proven for {len(parameters)} parameters, more than "
                f"{LARGEST_LENGTH}"
            )
        self._position = Position("start", 0)
        self._prepared = 0
        self._announced = announcement(self.plan, self._parameters.cohort, self._usual)
        run = secrets.token_bytes(16)
        model = self._vectors.encode_model(parameters).astype("<u8").tobytes()
        self._length, settings = len(parameters), self._session_settings(len(parameters))
        try:
            met = self._servers.meet(run, self._position)
            self._channels = met.channels
            # Only now: a server that has its orders connects to the other one, which must know its coordinator first.
            plan = self.plan
            public = (
                plan.digest,
                self._announced,
                plan.min_cohort,
                self._vectors,
                plan.accumulates,
                list(plan.bands),
                settings,
                model,
            )
            order = Setup(run, self._program, *public, met.peer, met.dealer)
            for channel in self._channels.values():
                channel.send_message(order.message())
            self._collect("ready")
            for channel in self._channels.values():
                channel.end_startup(self._timeout_sec)
        except BaseException:
            self.close()
            raise
        self._encoder = SealingEncoder(
            run,
            met.public_keys,
            self._parameters,
            self._vectors,
            self._usual.clip_norm,
            self._program,
            confine=self.plan.noise.multiplier > 0,
            counted=self._usual.count_stddev is not None,
            noise_stddev=self._usual.client_stddev,
            offer=met.offer,
        )
        self._decoder = OpeningDecoder(run, self._vectors, len(parameters))

    def _session_settings(self, length: int) -> dict[str, Any]:
        """What the servers must know and hold alike, once for each start; what it makes, `close` removes.

        Args:
            length: d, the number of model parameters.
        """
        return self._settings

    def prepare(self, round: int, size: int, terms: Terms | None = None) -> None:
        terms = terms or self._usual
        self._vectors.check_noise(terms.noise_stddev)
        terms.check(self._parameters)
        self._announced = announcement(self.plan, size, terms)
        self._send(Prepare(round, self._announced))
        self._encoder = replace(
            self.encoder,
            parameters=self._announced.parameters,
            clip_norm=terms.clip_norm,
            counted=terms.count_stddev is not None,
            noise_stddev=terms.client_stddev,
        )
        self._prepared = round

    @property
    def layout(self) -> Layout:
        """What an upload of the round that was prepared last holds; valid after `start`."""
        counted = self._announced.count_stddev is not None
        signed = self._servers.signed
        return Layout.of_round(self._announced.parameters, self._program, self._length, counted, signed)

    def submit(self, round: int, slot: int, client: int, upload: tuple[bytes, bytes]) -> None:
        """As every engine. What has another length than an upload of this round goes to no server."""
        self._position.enter("upload", round)
        layout = self.layout
        expected = [layout.envelope_bytes(server) for server in (0, 1)]
        parts = upload if isinstance(upload, tuple) else ()
        if [len(part) if isinstance(part, bytes) else None for part in parts] != expected:
            self._left_out[slot] = f"its upload is not two envelopes of {expected[0]} and {expected[1]} bytes"
            return
        for channel, envelope in zip(self._channels.values(), upload, strict=True):
            self._send(Submit(round, slot, client, envelope), channel)
        self._upload_bytes += sum(expected)
        self._waiting_bytes += sum(expected)
        self._unsettled.append((slot, client))
        together = 1 if self._parameters.bound is None else _CHECKED_TOGETHER
        if self._waiting_bytes > together * _WAITING_BYTES and self._prepared == round:
            self._send(Settle(round, self._unsettled))
            self._unsettled, self._waiting_bytes = [], 0

    def aggregate(self, round: int, cohort: Sequence[int]) -> Aggregation:
        if self._prepared != round:
            self.prepare(round, len(cohort))
        self._position.enter("aggregation", round)
        self._send(Aggregate(round, list(cohort)))
        replies = self._collect("result", "too few")
        both = [replies["server 0"], replies["server 1"]]
        left_out, uploaded = self._leave_out(both), self._upload_bytes
        self._unsettled, self._waiting_bytes, self._upload_bytes = [], 0, 0
        if both[0]["type"] == "too few":
            raise too_few(round, cohort, left_out, self.plan.min_cohort)
        parameters = within = answers = None
        if self._parameters.personal:
            answers = self._answers(both)
            download_bytes = sum(len(part) for answer in answers.values() for part in answer) // max(1, len(answers))
        else:
            shares = _shares(both, "share", self._vectors.model_bits)
            opened = release(*shares, reason="the noisy model is the round's public result")
            parameters = self._vectors.decode_model(opened)
            download_bytes = sum(len(reply["share"]) for reply in both)
        if "count" in both[0]:
            counted = release(
                *_shares(both, "count", COUNT_BITS), reason="the clip bound follows the noisy number of norms within it"
            )
            within = math.ldexp(int(counted.view(np.int64)[0]), -COUNT_BITS)
        cost = RoundCost(
            online_seconds=max(reply["online_seconds"] for reply in both),
            online_bytes=(both[0]["online_bytes"], both[1]["online_bytes"]),
            rounds=both[0]["rounds"],
            preprocessing_seconds=max(reply["preprocessing_seconds"] for reply in both),
            preprocessing_bytes=(both[0]["preprocessing_bytes"], both[1]["preprocessing_bytes"]),
            waited_seconds=max(reply["waited_seconds"] for reply in both),
            startup_seconds=max(reply["startup_seconds"] for reply in both),
            upload_bytes=uploaded // max(1, len(cohort)),
            download_bytes=download_bytes,
        )
        return Aggregation(parameters, cost, within, answers, left_out=left_out)

    def _leave_out(self, both: Sequence[dict[str, Any]]) -> dict[int, str]:
        """By slot, why clients are left out: what was noticed here, or at the server that noticed it.

        Raises:
            DisagreementError: the servers do not leave out the same clients.
        """
        first, second = (dict(map(tuple, reply["left_out"])) for reply in both)
        if both[0]["type"] != both[1]["type"] or first.keys() != second.keys():
            raise self._channels["server 1"].error(DisagreementError, "leaves out other clients than server 0")
        own, self._left_out = self._left_out, {}
        # Of two reasons the one that says more than that the other server refused.
        theirs = {slot: min(first[slot], second[slot], key=hearsay) for slot in sorted(first)}
        return {slot: own.get(slot, reason) for slot, reason in theirs.items()}

    def _answers(self, both: Sequence[dict[str, Any]]) -> dict[int, tuple[bytes, bytes]]:
        """Both servers' envelopes by slot."""
        first, second = (dict(map(tuple, reply["answers"])) for reply in both)
        if first.keys() != second.keys():
            raise self._channels["server 1"].error(DisagreementError, "answered other clients than server 0")
        return {slot: (first[slot], second[slot]) for slot in first}

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self._servers.close()
        self._upload_bytes = self._waiting_bytes = 0
        self._unsettled, self._left_out = [], {}

    def _send(self, order: Order, *to: Channel) -> None:
        """Give an order, to both servers unless one is named; where a server has gone, hear first who said why."""
        message = order.message()
        for channel in to or self._channels.values():
            try:
                channel.send_message(message)
            except PeerLostError:
                self._collect("nothing")
                raise

    def _collect(self, *wanted: str) -> dict[str, dict[str, Any]]:
        """One reply of a wanted type from both servers, or the error that explains why there is none."""
        replies: dict[str, dict[str, Any]] = {}
        failures: dict[str, ProtocolError] = {}
        awaited = dict(self._channels)
        # Twice what a server waits for others, so that it can say whom it waited for.
        limit = 2 * max((channel.timeout_sec for channel in awaited.values()), default=0.0)
        deadline = time.monotonic() + limit
        while awaited:
            # After a first failure, hear what the other server has to say already: it may name the root cause.
            heard = ready(awaited.values(), 0.5 if failures else max(0.0, deadline - time.monotonic()))
            if not heard:
                if not failures:
                    silent = next(iter(awaited.values()))
                    raise silent.error(PeerTimeoutError, f"silent for {limit:g} s (twice {silent.setting})")
                break
            deadline = time.monotonic() + limit
            for channel in heard:
                role = channel.peer
                try:
                    message = channel.receive_message()
                except PeerLostError:
                    failures[role] = channel.error(PeerLostError, self._servers.obituary(role))
                    del awaited[role]
                    continue
                kind = message.get("type")
                if kind == "error":
                    failures[role] = _error(message)
                elif kind in wanted:
                    replies[role] = message
                else:
                    raise channel.error(DisagreementError, f"answered {kind!r} where {wanted[0]!r} was expected")
                del awaited[role]
        if failures:
            # The root cause is a failure whose culprit did not itself report somebody else.
            blamed_only = [error for error in failures.values() if error.peer not in failures]
            self_inflicted = [error for role, error in failures.items() if error.peer == role]
            raise (blamed_only or self_inflicted or list(failures.values()))[0]
        return replies


def _shares(replies: Sequence[dict[str, Any]], name: str, scale_bits: int) -> list[VectorShare]:
    """Both servers' shares of one result."""
    return [VectorShare(np.frombuffer(reply[name], dtype="<u8"), scale_bits, k) for k, reply in enumerate(replies)]


def _error(message: dict[str, Any]) -> ProtocolError:
    kind = getattr(errors, str(message.get("kind")), ProtocolError)
    return kind(message["peer"], message["phase"], message["round"], message["reason"])
