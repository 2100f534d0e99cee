"""An aggregator as a long-running service: one port, several runs one after another and at a time.

Parties: this organisation, the other one that aggregates, a coordinator, and whoever else finds the port. Adversary: as
in `session` and `orchestrator.server.aggregation`; strangers are turned away in the handshake, and hold nobody up.
Channels: mutual TLS 1.3, everybody by the certificate in the roster.

The coordinator opens a session by connecting; server 0 connects to server 1 twice, for the rounds and for what is made
ahead. A session is a thread with a server of its own: its keys, shares, masks and pools are in no file and end with it.
What goes wrong in one is told to its coordinator and ends that session alone.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from threadpoolctl import threadpool_limits

from orchestrator.aggregator.log import Status, Told
from orchestrator.aggregator.session import Agreed, judge
from orchestrator.agreement.aggregator_file import AggregatorFile
from orchestrator.agreement.identity import OwnKey, verify
from orchestrator.agreement.roster import Roster
from orchestrator.agreement.terms import sign_offer
from orchestrator.errors import ConfigError, ConsentError, DisagreementError, PeerTimeoutError, ProtocolError
from orchestrator.server.embedded import EmbeddedServer
from orchestrator.server.main import next_order, report, serve
from orchestrator.transport.channel import STARTUP, Channel, Position, listen
from orchestrator.transport.door import Door, connect
from orchestrator.wire.envelope import UPLOAD, Keypair
from orchestrator.wire.orders import Propose, Setup

__all__ = ["Service"]

_LONGEST_PROPOSAL = 1 << 21
_ENDING = "is being shut down"


@dataclass
class _Session:
    """One session's door inside the house: where connections that are its own are left for it."""

    number: bytes
    arrived: queue.SimpleQueue[ssl.SSLSocket] = field(default_factory=queue.SimpleQueue)
    thread: threading.Thread | None = None

    @property
    def name(self) -> str:
        """For the log."""
        return self.number.hex()[:12]


class Service:
    """One aggregator; `run` until it is told to end."""

    def __init__(
        self, file: AggregatorFile, own: OwnKey, roster: Roster, told: Told | None = None, version: str = ""
    ) -> None:
        """
        Args:
            file: its own settings.
            own: its key.
            roster: of the consortium; says which of the two servers it is.
            told: the log.
            version: of the software, for whoever asks for its health.

        Raises:
            ConfigError: the roster has no aggregator of this key.
        """
        role = roster.role_named(own.name)
        if role not in ("server 0", "server 1"):
            raise ConfigError(f"{own.name} is {role} in the roster {roster.name}, no aggregator")
        self._index, self._file, self._own, self._roster = int(role[-1]), file, own, roster
        self._identity = roster.tls(own, role)
        self._told, self.status = told or Told(), Status(version)
        self._sessions: dict[bytes, _Session] = {}
        self._released: Counter[str] = Counter()  # by digest of terms
        self._taken: dict[str, Counter[int]] = {}  # by the same, in how many releases each client was
        self._lock = threading.Lock()
        self._stop, self._stopping = socket.socketpair()
        self._awaited = ("coordinator",) if self._index == 0 else ("coordinator", "server 0")

    def stop(self) -> None:
        """End: no run is taken any more, and those that there are end before their next order. From any thread."""
        with suppress(OSError):
            self._stop.shutdown(socket.SHUT_WR)  # readable for ever, by every session

    def run(self, ready: Callable[[int], None] = lambda port: None) -> None:
        """Take runs until `stop`.

        Args:
            ready: called with the port once connections are taken.

        Raises:
            ConfigError: an address cannot be listened at.
        """
        threadpool_limits(1)  # idle threads of the matrix product would spin on the cores of other sessions
        with self._listening("listen", self._file.listen, lambda at: listen(*at)) as listener:
            self._listening("status", self._file.status, self.status.serve)
            door = Door(listener, self._identity, None, self._objection, self._admit)
            self._told("ready", role=f"server {self._index}", port=listener.getsockname()[1])
            ready(listener.getsockname()[1])
            refusal = ""
            while not door.attend(None, self._stopping):
                if door.refusal != refusal:
                    refusal = door.refusal
                    self.status.turned_away.inc()
                    self._told("turned away", who=refusal.removeprefix("; turned away "))
            self.status.ending = True
            door.close()
        self._told("ending", sessions=len(self._sessions))
        deadline = time.monotonic() + 2 * self._file.timeouts.silence_sec
        for session in list(self._sessions.values()):
            if session.thread is not None:
                session.thread.join(max(0.0, deadline - time.monotonic()))
        self.status.close()
        self._told("ended", sessions=len(self._sessions))

    def _listening(self, name: str, address: tuple[str, int], at: Callable[[tuple[str, int]], Any]) -> Any:
        try:
            return at(address)
        except OSError as error:
            host, port = address
            raise ConfigError(
                f"{name} = {host}:{port}: cannot be listened at ({error.strerror or error}); choose another address, "
                "or end what is there"
            ) from None

    def _objection(self, role: str, number: bytes | None) -> str:
        """See `Door`; in its thread."""
        if role not in self._awaited:
            wanted = " or ".join(self._awaited)
            return f"shows the certificate of {role} where that of {wanted} belongs"
        if number is None:
            return ""
        with self._lock:
            known = number in self._sessions
            if role == "coordinator":
                if known:
                    return "opens a session that is there already"
                if len(self._sessions) >= self._file.most_runs:
                    return f"asks for a run more than most_runs = {self._file.most_runs} at a time"
                return ""
        return "" if known else "comes to a session that its coordinator has not opened, or that has ended"

    def _admit(self, connection: ssl.SSLSocket, role: str, number: bytes) -> None:
        """See `Door`; in its thread."""
        with self._lock:
            if role == "coordinator":
                session = self._sessions[number] = _Session(number)
                session.thread = threading.Thread(
                    target=self._follow, args=(session, connection), name=session.name, daemon=True
                )
                session.thread.start()
            elif number in self._sessions:
                self._sessions[number].arrived.put(connection)
            else:
                connection.close()  # the session ended while its peer introduced itself

    def _follow(self, session: _Session, connection: ssl.SSLSocket) -> None:
        """A session's thread: whatever happens in it, it ends with its server and connections closed."""
        position = Position()
        startup = self._file.timeouts.startup_sec
        coordinator = Channel(connection, "coordinator", position, startup, STARTUP)
        self.status.runs.inc()
        how = "closed"
        facts: dict[str, Any] = {}
        server: EmbeddedServer | None = None
        try:
            proposed = self._proposal(coordinator)
            keypair = Keypair()
            agreed = self._agree(session, coordinator, proposed, keypair)
            server = EmbeddedServer(self._index, keypair, coordinator, position, self._signed_by)
            meet = _Meeting(self, session, position).of
            waiting = self._waiting(coordinator, position)
            releasing = self._releasing(agreed, coordinator)
            serve(server, coordinator, meet, self._file.timeouts.silence_sec, waiting, agreed.fault, releasing)
        except ConsentError as error:
            how, facts = "refused", {"reason": str(error)}
            self.status.refused.inc()
            with suppress(ProtocolError):
                coordinator.send_message({"type": "refused", "reason": str(error)})
        except ProtocolError as error:
            how = "failed"
            facts = {"peer": error.peer, "phase": error.phase, "round": error.round, "reason": error.reason}
            report(coordinator, error)
        except Exception as error:  # a fault of ours must not take the other sessions along, nor tell what it is about
            how, reason = "failed", f"internal fault: {type(error).__name__}"
            facts = {"reason": reason}
            report(coordinator, ProtocolError(f"server {self._index}", position.phase, position.round, reason))
        finally:
            if server is not None:
                server.close()
            coordinator.close()
            with self._lock:
                del self._sessions[session.number]
            with suppress(queue.Empty):
                while True:
                    session.arrived.get_nowait().close()
            self.status.runs.dec()
            self.status.ended.labels(how).inc()
            self._told("session ended", session=session.name, how=how, **facts)

    def _proposal(self, coordinator: Channel) -> Propose:
        self._waiting(coordinator, coordinator.position)()
        order = next_order(coordinator, _LONGEST_PROPOSAL)
        if not isinstance(order, Propose):
            raise coordinator.error(DisagreementError, f"gave the order '{order.kind}' before it proposed a run")
        return order

    def _agree(self, session: _Session, coordinator: Channel, proposed: Propose, keypair: Keypair) -> Agreed:
        """Judge the terms, and answer with the signed key."""
        agreed = judge(proposed, self._roster, self._file.policy)
        signature = sign_offer(self._own, self._index, proposed.run, proposed.terms, keypair.public_key)
        coordinator.send_message({"type": "offer", "public_key": keypair.public_key, "signature": signature})
        self._told(
            "session begun",
            session=session.name,
            terms=agreed.terms.digest[:12],
            run=agreed.terms.run,
            sum=agreed.terms.sum,
            rounds=agreed.terms.rounds,
            rule=agreed.plan.rule.rule,
            noise_multiplier=agreed.plan.noise.multiplier,
        )
        return agreed

    def _signed_by(self, client: int, message: bytes, signature: bytes) -> bool:
        """Whether a site of the roster signed this upload."""
        sites = self._roster.sites
        return client < len(sites) and verify(sites[client].certificate, UPLOAD, message, signature)

    def _waiting(self, coordinator: Channel, position: Position) -> Callable[[], None]:
        """Waits for an order, but neither beyond the end of the service nor for ever."""

        def wait() -> None:
            limit = self._file.timeouts.idle_sec
            came = coordinator.wait(limit, self._stopping)
            if self._stopping in came:
                raise ProtocolError(f"server {self._index}", position.phase, position.round, _ENDING)
            if not came:
                raise coordinator.error(PeerTimeoutError, f"gave no order for {limit:g} s (timeouts.idle_sec)")

        return wait

    def _releasing(self, agreed: Agreed, coordinator: Channel) -> Callable[[int, dict[str, Any]], None]:
        """Counts a round before its result leaves, in whichever of several sessions on the same terms it was made."""

        def release(number: int, reply: dict[str, Any]) -> None:
            released = reply["type"] == "result"
            if released:
                with self._lock:
                    digest = agreed.terms.digest
                    taken = self._taken.setdefault(digest, Counter())
                    if not (fault := agreed.fault_of_release(self._released[digest], taken)):
                        self._released[digest] += 1
                        taken.update(agreed.cohort)
                if fault:
                    raise coordinator.error(DisagreementError, fault)
                self.status.rounds.inc()
                self.status.seconds.observe(reply["online_seconds"])
            self.status.left_out.inc(len(reply["left_out"]))
            self._told(
                "round",
                terms=agreed.terms.digest[:12],
                round=number,
                released=released,
                left_out=len(reply["left_out"]),
                online_ms=round(1e3 * reply.get("online_seconds", 0.0), 3),
            )

        return release


@dataclass(frozen=True)
class _Meeting:
    """How a session's server gets its two connections to the other one."""

    service: Service
    session: _Session
    position: Position

    def of(self, order: Setup) -> tuple[Channel, Channel]:
        """The address is the roster's, whatever the coordinator says."""
        return self._other(self.position), self._other(Position())

    def _other(self, position: Position) -> Channel:
        service, startup = self.service, self.service._file.timeouts.startup_sec
        if service._index == 0:
            address = service._roster.aggregators[1].address
            assert address is not None  # a roster gives every aggregator one
            return connect(address, service._identity, self.session.number, "server 1", position, startup)
        try:
            connection = self.session.arrived.get(timeout=startup)
        except queue.Empty:
            reason = f"did not connect in {startup:g} s ({STARTUP})"
            raise PeerTimeoutError("server 0", "handshake", position.round, reason) from None
        return Channel(connection, "server 0", position, startup, STARTUP)


def run_until_signalled(service: Service) -> None:
    """Run, and end on SIGTERM or SIGINT: rounds that are being computed are finished, others are aborted."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    os.umask(0o077)
    service.run()
