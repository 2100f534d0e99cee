"""How a connection begins: TLS, then both sides say which session they are of, and whether they object to the other.

The session's number is no secret: certificates outlive a session, and the number keeps apart a process of another
session that holds the same ones and was found on a port that it should have left. A service, which takes part in many
sessions, has none of its own: it hears the newcomer's, and says whether it knows it.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections.abc import Callable, Collection, Generator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgpack

from orchestrator.errors import DisagreementError, PeerLostError, PeerTimeoutError, ProtocolError
from orchestrator.transport.channel import (
    HEADER,
    MALFORMED,
    STARTUP,
    Channel,
    Position,
    await_events,
    parse_message,
    what_failed,
)
from orchestrator.transport.tls import Identity

__all__ = ["SESSION_BYTES", "Door", "accept", "connect"]

SESSION_BYTES = 16
"""Of the number of a session that a service hears of."""

_LONGEST_INTRODUCTION = 1 << 12
_WAITING_ROOM = 32

_Result = TypeVar("_Result")
_Introduction = Generator[int, None, tuple[str, bytes]]
"""Yields what it waits for next, `EVENT_READ` or `EVENT_WRITE`, and returns the peer's role and session."""

_Objecting = Callable[[str, bytes | None], str]
"""Of a role, and of its session once that is known, why it has no place here; empty where it has one."""


class Door:
    """Newcomers at a listening socket: they introduce themselves side by side, and who has a place is let in.

    None has a time limit of its own, so that those who say nothing, or stop in the middle, hold nobody up. Of more than
    32 the one that has been silent longest is turned away.

    Attributes:
        refusal: whom it turned away last, and why.
    """

    def __init__(
        self,
        listener: socket.socket,
        identity: Identity,
        session: bytes | None,
        objecting: _Objecting,
        admit: Callable[[ssl.SSLSocket, str, bytes], None],
        round: int = 0,
    ) -> None:
        """
        Args:
            session: whose newcomers are let in; None: of any, as `objecting` says.
            admit: takes who is let in, with its role and session.
            round: for errors.
        """
        self._listener, self._identity, self._session = listener, identity, session
        self._objecting, self._admit, self._round = objecting, admit, round
        self._newcomers: dict[ssl.SSLSocket, tuple[_Introduction, int]] = {}  # and what each waits for; last heard last
        self.refusal = ""
        listener.setblocking(False)

    @property
    def waiting(self) -> int:
        """How many have not introduced themselves."""
        return len(self._newcomers)

    def attend(self, timeout_sec: float | None, *others: Any) -> list[Any] | None:
        """Wait until somebody does something, and go on with whom it is; None where nobody does in this time.

        Args:
            others: files that are watched for something to read; returns those that have it.
        """
        awaited: dict[Any, int] = {connection: event for connection, (_, event) in self._newcomers.items()}
        watched = dict.fromkeys((self._listener, *others), selectors.EVENT_READ)
        events = await_events({**watched, **awaited}, timeout_sec)
        for connection in events:
            if connection is self._listener:
                self._take_in()
            elif connection in self._newcomers:
                self._go_on(connection)
        while len(self._newcomers) > _WAITING_ROOM:
            silent = next(iter(self._newcomers))
            del self._newcomers[silent]
            silent.close()
        return [file for file in events if file in others] if events else None

    def close(self) -> None:
        """Turn away who has not introduced itself; the listening socket stays."""
        for connection in self._newcomers:
            connection.close()
        self._newcomers.clear()

    def _take_in(self) -> None:
        with suppress(BlockingIOError, ConnectionError, ssl.SSLError):  # the newcomer has gone again
            plain, (host, *_) = self._listener.accept()
            connection = self._identity.secure(plain, server_side=True)
            name = f"a newcomer from {host}"
            introduction = _introduce(connection, self._identity, self._objecting, self._session, name, self._round)
            self._newcomers[connection] = introduction, selectors.EVENT_READ

    def _go_on(self, connection: ssl.SSLSocket) -> None:
        introduction, _ = self._newcomers.pop(connection)
        try:
            self._newcomers[connection] = introduction, next(introduction)
        except StopIteration as end:
            self._admit(connection, *end.value)
        except ProtocolError as error:
            connection.close()
            self.refusal = f"; turned away {error.peer}: {error.reason}"


def connect(
    address: tuple[str, int], identity: Identity, session: bytes, peer: str, position: Position, timeout_sec: float
) -> Channel:
    """Connect to the peer of this role in this session.

    Args:
        timeout_sec: for the whole introduction, and until `end_startup` for each message.

    Raises:
        DisagreementError: somebody else is there, or it refuses this side.
        PeerLostError, PeerTimeoutError: nobody is there, or it does not answer.
    """
    deadline = time.monotonic() + timeout_sec
    try:
        connection = socket.create_connection(address, timeout=timeout_sec)
        secured = identity.secure(connection, server_side=False)
    except OSError as error:
        reason = f"no connection to {address[0]}:{address[1]} ({error.strerror or error})"
        raise PeerLostError(peer, "handshake", position.round, reason) from None
    try:
        objecting = partial(_unexpected, {peer})
        _finish(_introduce(secured, identity, objecting, session, peer, position.round), secured, deadline)
    except TimeoutError:
        reason = f"silent for {timeout_sec:g} s ({STARTUP})"
        raise PeerTimeoutError(peer, "handshake", position.round, reason) from None
    return Channel(secured, peer, position, timeout_sec, STARTUP)


def accept(
    listener: socket.socket,
    expected: Collection[str],
    identity: Identity,
    session: bytes,
    position: Position,
    timeout_sec: float,
) -> dict[str, Channel]:
    """Accept one connection of each of the expected roles; everybody else is turned away, and told why.

    Args:
        timeout_sec: for all of them together, and until `end_startup` for each message.

    Raises:
        PeerTimeoutError: one of them did not come in time; says whom this side turned away last.
    """
    deadline = time.monotonic() + timeout_sec
    admitted: dict[str, Channel] = {}
    missing = set(expected)

    def admit(connection: ssl.SSLSocket, role: str, _: bytes) -> None:
        missing.remove(role)
        admitted[role] = Channel(connection, role, position, timeout_sec, STARTUP)

    door = Door(listener, identity, session, partial(_unexpected, missing), admit, position.round)
    try:
        while missing:
            remaining = deadline - time.monotonic()
            if door.attend(max(remaining, 0)) is None or remaining < 0:
                who = " and ".join(sorted(missing))
                unfinished = f"; newcomers who did not introduce themselves: {door.waiting}" if door.waiting else ""
                reason = f"did not connect in {timeout_sec:g} s ({STARTUP}){door.refusal}{unfinished}"
                raise PeerTimeoutError(who, "handshake", position.round, reason)
    except BaseException:
        for channel in admitted.values():
            channel.close()
        raise
    finally:
        door.close()
    return admitted


def _unexpected(expected: Collection[str], role: str, session: bytes | None) -> str:
    """The objection to whoever has none of the expected roles, which may become fewer meanwhile."""
    wanted = " or ".join(sorted(expected)) or "nobody"
    return "" if role in expected else f"shows the certificate of {role} where that of {wanted} belongs"


def _introduce(
    connection: ssl.SSLSocket,
    identity: Identity,
    objecting: _Objecting,
    session: bytes | None,
    name: str,
    round: int,
) -> _Introduction:
    """Shake hands and compare sessions; returns the peer's role, and its session.

    The side that accepts speaks first: in TLS 1.3 the other one may have been refused without knowing it yet, and would
    not hear why if it sent something into the closed connection. It also speaks last, when it has admitted the peer:
    who connects a second time, for another channel, does so when the first has its place.

    Args:
        connection: new, and not blocking.
        session: this side's; None: of a service, which has none.
        name: of the peer, as long as it has no role.

    Raises:
        ProtocolError: one side objects to the other one, or the connection failed.
    """

    def refuse(kind: type[ProtocolError], reason: str) -> ProtocolError:
        return kind(name, "handshake", round, reason)

    def say(theirs: bytes | None = None) -> str:
        """This side's session and its objection, if any. A connection without room for so few bytes has failed."""
        objection = objecting(role, theirs)
        payload = msgpack.packb({"session": session or theirs or b"", "objection": objection})
        connection.send(HEADER.pack(len(payload)) + payload)
        return objection

    def hear() -> Generator[int, None, dict[str, Any]]:
        (length,) = HEADER.unpack((yield from receive(HEADER.size)))
        message = parse_message((yield from receive(length))) if length <= _LONGEST_INTRODUCTION else None
        if message is None:
            raise refuse(DisagreementError, MALFORMED)
        return message

    def receive(count: int) -> Generator[int, None, bytes]:
        data = b""
        while len(data) < count:
            part = yield from _patiently(partial(connection.recv, count - len(data)))
            if not part:
                raise refuse(PeerLostError, "closed the connection")
            data += part
        return data

    def compare(objection: str, answer: dict[str, Any], *allowed: bytes | None) -> None:
        if objection:
            raise refuse(DisagreementError, objection)
        if answer.get("objection"):
            raise refuse(DisagreementError, f"refuses this side, which {answer['objection']}")
        if answer.get("session") not in allowed:
            raise refuse(DisagreementError, "belongs to another session; end processes that were left behind")

    try:
        yield from _patiently(connection.do_handshake)
        role = identity.peer_role(connection)
        if connection.server_side:
            objection = say()
            answer = yield from hear()
            theirs = answer.get("session")
            if session is None and (not isinstance(theirs, bytes) or len(theirs) != SESSION_BYTES):
                raise refuse(DisagreementError, MALFORMED)
            compare(objection, answer, theirs if session is None else session)
            compare(say(theirs), answer, theirs)
        else:
            answer = yield from hear()
            compare(say(), answer, session, b"")  # a service hears first of which session this is
            compare("", (yield from hear()), theirs := session)
    except OSError as error:
        raise refuse(*what_failed(error, identity.explain)) from None
    return role, theirs or b""


def _patiently(act: Callable[[], _Result]) -> Generator[int, None, _Result]:
    """Do what does not block again and again until it is done; yields what it waits for."""
    while True:
        try:
            return act()
        except ssl.SSLWantReadError:
            yield selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            yield selectors.EVENT_WRITE


def _finish(introduction: _Introduction, connection: ssl.SSLSocket, deadline: float) -> None:
    """Follow one introduction to its end. Raises TimeoutError, and what it raises; closes the connection then."""
    try:
        while True:
            if not await_events({connection: next(introduction)}, max(deadline - time.monotonic(), 0)):
                raise TimeoutError
    except StopIteration:
        return
    except BaseException:
        connection.close()
        raise
