"""Length-prefixed messages over mutual TLS, with a deadline for each and counters of what crossed it.

A channel never blocks for longer than its timeout: that of the start-up first, that of a phase from `end_startup` on.
Whatever goes wrong becomes a `ProtocolError` that names the peer and the phase and round in which this side is. Who the
peer is, privacy and authenticity: see `tls`. A new connection also compares the session's number. It is no secret:
certificates outlive a session, and the number keeps apart a process of another session that holds the same ones and was
found on a port that it should have left.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgpack

from orchestrator.errors import DisagreementError, PeerLostError, PeerTimeoutError, ProtocolError
from orchestrator.transport.tls import Identity, explain, peer_role

__all__ = [
    "LONGEST_MESSAGE",
    "STARTUP",
    "Channel",
    "Position",
    "accept",
    "await_events",
    "connect",
    "listen",
    "ready",
]

STARTUP, _SILENCE = "engine.startup_timeout_sec", "engine.timeout_sec"
"""The settings that a timeout follows; errors name the one that was in force."""


_HEADER = struct.Struct("<I")
_RECORD = 1 << 14  # TLS delivers at most this much at a time
_CHUNK = 1 << 16
LONGEST_MESSAGE = (1 << 32) - 1
_LONGEST_INTRODUCTION = 1 << 12
_MOST_FIELDS, _MOST_ITEMS = 64, 1 << 20  # of a map and of a list in a structured message
_WAITING_ROOM = 32
_MALFORMED = "sent a malformed message"

_Result = TypeVar("_Result")
_Introduction = Generator[int, None, str]
"""Yields what it waits for next, `EVENT_READ` or `EVENT_WRITE`, and returns the peer's role."""


@dataclass
class Position:
    """Where this process, or a thread of it, is; shared by its channels so that errors can say so."""

    phase: str = "start"
    round: int = 0

    def enter(self, phase: str, round: int) -> None:
        self.phase, self.round = phase, round


class Channel:
    """One connection to a named peer."""

    def __init__(
        self,
        connection: ssl.SSLSocket,
        peer: str,
        position: Position,
        timeout_sec: float,
        setting: str = _SILENCE,
    ) -> None:
        """Args: timeout_sec: for each message; setting: where that comes from, for errors."""
        # A round is one short message each way, which Nagle's algorithm would hold back.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self.position = position
        self.timeout_sec, self.setting = timeout_sec, setting
        self.peer = peer
        self.sent_bytes = 0
        self.received_bytes = 0
        self.exchanges = 0

    def end_startup(self, timeout_sec: float) -> None:
        """Both sides are ready: from now on a message may take this long."""
        self.timeout_sec, self.setting = timeout_sec, _SILENCE

    def fileno(self) -> int:
        return self._socket.fileno()

    def pending(self) -> int:
        """How many bytes have been decrypted and wait inside TLS, where the operating system does not see them."""
        return self._socket.pending()

    def close(self) -> None:
        self._socket.close()

    def send(self, payload: bytes) -> None:
        """Send one message of at most 4 GiB."""
        if len(payload) > LONGEST_MESSAGE:
            raise ValueError(f"a message of {len(payload)} bytes is longer than 4 GiB")
        deadline = time.monotonic() + self.timeout_sec
        self._write(_HEADER.pack(len(payload)) + payload[:_CHUNK], deadline)
        if len(payload) > _CHUNK:
            self._write(memoryview(payload)[_CHUNK:], deadline)

    def receive(self, longest: int = LONGEST_MESSAGE) -> bytes:
        """Receive one message; waits at most the timeout.

        Raises:
            DisagreementError: the peer announces more than `longest` bytes, of which none is read.
        """
        deadline = time.monotonic() + self.timeout_sec
        (length,) = _HEADER.unpack(self._read(_HEADER.size, deadline))
        if length > longest:
            raise self.error(DisagreementError, f"sent a message of {length} bytes where {longest} are the most")
        return self._read(length, deadline)

    def wait(self) -> None:
        """Wait without limit until something arrives or the connection closes."""
        ready([self])

    def exchange(self, payload: bytes) -> bytes:
        """Send a payload and receive the peer's of the same length, at the same time: one round.

        Both sides alternate between sending and receiving 64 KiB, so that neither can fill the other's buffers.

        Raises:
            DisagreementError: the peer announces another length, so it runs another program.
        """
        deadline = time.monotonic() + self.timeout_sec
        first = _HEADER.size + min(len(payload), _CHUNK)
        self._write(_HEADER.pack(len(payload)) + payload[:_CHUNK], deadline)
        begin = self._read(_HEADER.size, deadline, most=first)  # a short message arrives in one read
        (length,) = _HEADER.unpack_from(begin)
        if length != len(payload):
            raise DisagreementError(
                self.peer,
                self.position.phase,
                self.position.round,
                f"sent a message of {length} bytes where {len(payload)} were expected",
            )
        received = [begin[_HEADER.size :], self._read(first - len(begin), deadline)]
        for start in range(_CHUNK, length, _CHUNK):
            self._write(payload[start : start + _CHUNK], deadline)
            received.append(self._read(min(length - start, _CHUNK), deadline))
        self.exchanges += 1
        return b"".join(received)

    def send_message(self, message: dict[str, Any]) -> None:
        """Send a structured message (MessagePack)."""
        self.send(msgpack.packb(message))

    def receive_message(self, longest: int = LONGEST_MESSAGE) -> dict[str, Any]:
        """Receive a structured message. Raises DisagreementError if it is malformed, or longer than it can be."""
        message = _parse(self.receive(longest))
        if message is None:
            raise self.error(DisagreementError, _MALFORMED)
        return message

    def error(self, kind: type[ProtocolError], reason: str) -> ProtocolError:
        """A protocol error about this peer, here and now."""
        return kind(self.peer, self.position.phase, self.position.round, reason)

    def _write(self, data: bytes | memoryview, deadline: float) -> None:
        try:
            self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))  # 0 would mean: do not wait
            self._socket.sendall(data)
        except TimeoutError:
            raise self.error(PeerTimeoutError, f"took no data for {self.timeout_sec:g} s ({self.setting})") from None
        except OSError as error:
            raise self.error(*_cause(error)) from None
        self.sent_bytes += len(data)

    def _read(self, least: int, deadline: float, most: int | None = None) -> bytes:
        """At least `least` bytes, and what has come with them, up to `most`."""
        parts, count, most = [], 0, most or least
        while count < least:
            try:
                self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))
                part = self._socket.recv(min(most - count, _RECORD))
            except TimeoutError:
                raise self.error(PeerTimeoutError, f"silent for {self.timeout_sec:g} s ({self.setting})") from None
            except OSError as error:
                raise self.error(*_cause(error)) from None
            if not part:
                raise self.error(PeerLostError, "closed the connection")
            parts.append(part)
            count += len(part)
        self.received_bytes += count
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _parse(data: bytes) -> dict[str, Any] | None:
    """A structured message; None if it is none."""
    try:
        most = min(len(data), _MOST_ITEMS)
        message = msgpack.unpackb(data, max_map_len=_MOST_FIELDS, max_array_len=most, max_ext_len=0)
    except (ValueError, msgpack.UnpackException):
        return None
    return message if isinstance(message, dict) else None


def _cause(error: OSError) -> tuple[type[ProtocolError], str]:
    """What the failure of a connection means; a peer that ends without a farewell is lost, not in disagreement."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return PeerLostError, "connection lost (closed by the peer)"
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLSyscallError):
        return DisagreementError, explain(error)
    return PeerLostError, f"connection lost ({error.strerror or error})"


def await_events(events: Mapping[Any, int], timeout_sec: float | None) -> list[Any]:
    """Wait until what is waited for happens on one of these open files; returns those, or none after the time."""
    with selectors.DefaultSelector() as selector:  # select() itself takes no descriptor above 1,023
        for file, event in events.items():
            selector.register(file, event)
        return [key.fileobj for key, _ in selector.select(timeout_sec)]


def ready(channels: Collection[Channel], timeout_sec: float | None = None) -> list[Channel]:
    """Wait until one of the channels has something to receive or is closed; return those, or none after the time."""
    decrypted = [channel for channel in channels if channel.pending()]
    return decrypted or await_events(dict.fromkeys(channels, selectors.EVENT_READ), timeout_sec)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError if the port is in use."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


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
        _finish(_introduce(secured, {peer}, session, peer, position.round), secured, deadline)
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

    Newcomers introduce themselves side by side and without a limit of their own, so that those who say nothing, or stop
    in the middle, hold nobody up. Of more than 32 the one that has been silent longest is turned away.

    Args:
        timeout_sec: for all of them together, and until `end_startup` for each message.

    Raises:
        PeerTimeoutError: one of them did not come in time; says whom this side turned away last.
    """
    deadline = time.monotonic() + timeout_sec
    admitted: dict[str, Channel] = {}
    missing, refusal = set(expected), ""
    newcomers: dict[ssl.SSLSocket, tuple[_Introduction, int]] = {}  # and what each waits for; the last heard is last
    listener.setblocking(False)
    try:
        while missing:
            remaining = deadline - time.monotonic()
            awaited = {connection: event for connection, (_, event) in newcomers.items()}
            events = await_events({listener: selectors.EVENT_READ, **awaited}, max(remaining, 0))
            if remaining < 0 or not events:
                who = " and ".join(sorted(missing))
                unfinished = f"; newcomers who did not introduce themselves: {len(newcomers)}" if newcomers else ""
                reason = f"did not connect in {timeout_sec:g} s ({STARTUP}){refusal}{unfinished}"
                raise PeerTimeoutError(who, "handshake", position.round, reason)
            for connection in events:
                if connection is listener:
                    with suppress(BlockingIOError, ConnectionError, ssl.SSLError):  # the newcomer has gone again
                        plain, (host, *_) = listener.accept()
                        connection = identity.secure(plain, server_side=True)
                        name = f"a newcomer from {host}"
                        introduction = _introduce(connection, missing, session, name, position.round)
                        newcomers[connection] = introduction, selectors.EVENT_READ
                    continue
                introduction, _ = newcomers.pop(connection)
                try:
                    newcomers[connection] = introduction, next(introduction)
                except StopIteration as end:
                    missing.remove(end.value)
                    admitted[end.value] = Channel(connection, end.value, position, timeout_sec, STARTUP)
                except ProtocolError as error:
                    connection.close()
                    refusal = f"; turned away {error.peer}: {error.reason}"
            while len(newcomers) > _WAITING_ROOM:
                silent = next(iter(newcomers))
                del newcomers[silent]
                silent.close()
    except BaseException:
        for channel in admitted.values():
            channel.close()
        raise
    finally:
        for connection in newcomers:
            connection.close()
    return admitted


def _introduce(
    connection: ssl.SSLSocket, expected: Collection[str], session: bytes, name: str, round: int
) -> _Introduction:
    """Shake hands and compare sessions; returns the peer's role.

    The side that accepts speaks first: in TLS 1.3 the other one may have been refused without knowing it yet, and would
    not hear why if it sent something into the closed connection. It also speaks last, when it has admitted the peer:
    who connects a second time, for another channel, does so when the first has its place.

    Args:
        connection: new, and not blocking.
        expected: the roles that may be there; may shrink meanwhile.
        name: of the peer, as long as it has no role.

    Raises:
        ProtocolError: one side objects to the other one, or the connection failed.
    """

    def refuse(kind: type[ProtocolError], reason: str) -> ProtocolError:
        return kind(name, "handshake", round, reason)

    def say() -> str:
        """This side's session and its objection, if any. A connection without room for so few bytes has failed."""
        wanted = " or ".join(sorted(expected)) or "nobody"
        objection = "" if role in expected else f"shows the certificate of {role} where that of {wanted} belongs"
        payload = msgpack.packb({"session": session, "objection": objection})
        connection.send(_HEADER.pack(len(payload)) + payload)
        return objection

    def hear() -> Generator[int, None, dict[str, Any]]:
        (length,) = _HEADER.unpack((yield from receive(_HEADER.size)))
        message = _parse((yield from receive(length))) if length <= _LONGEST_INTRODUCTION else None
        if message is None:
            raise refuse(DisagreementError, _MALFORMED)
        return message

    def receive(count: int) -> Generator[int, None, bytes]:
        data = b""
        while len(data) < count:
            part = yield from _patiently(partial(connection.recv, count - len(data)))
            if not part:
                raise refuse(PeerLostError, "closed the connection")
            data += part
        return data

    def compare(objection: str, answer: dict[str, Any]) -> None:
        if objection:
            raise refuse(DisagreementError, objection)
        if answer.get("objection"):
            raise refuse(DisagreementError, f"refuses this side, which {answer['objection']}")
        if answer.get("session") != session:
            raise refuse(DisagreementError, "belongs to another session; end processes that were left behind")

    try:
        yield from _patiently(connection.do_handshake)
        role = peer_role(connection)
        if connection.server_side:
            objection = say()
            answer = yield from hear()
            compare(objection, answer)
            compare(say(), answer)
        else:
            answer = yield from hear()
            compare(say(), answer)
            compare("", (yield from hear()))
    except OSError as error:
        raise refuse(*_cause(error)) from None
    return role


def _patiently(act: Callable[[], _Result]) -> Generator[int, None, _Result]:
    """Do what does not block again and again until it is done; yields what it waits for."""
    while True:
        try:
            return act()
        except ssl.SSLWantReadError:
            yield selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            yield selectors.EVENT_WRITE


def _finish(introduction: _Introduction, connection: ssl.SSLSocket, deadline: float) -> str:
    """Follow one introduction to its end. Raises TimeoutError, and what it raises; closes the connection then."""
    try:
        while True:
            if not await_events({connection: next(introduction)}, max(deadline - time.monotonic(), 0)):
                raise TimeoutError
    except StopIteration as end:
        return end.value
    except BaseException:
        connection.close()
        raise
