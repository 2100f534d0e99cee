"""Length-prefixed messages over mutual TLS, with a deadline for each and counters of what crossed it.

A channel never blocks for longer than its timeout. Whatever goes wrong becomes a `ProtocolError` that names the peer
and the phase and round in which this side is. Who the peer is, privacy and authenticity: see `tls`. A new connection
also compares the session's number. It is no secret: certificates outlive a session, and the number keeps apart a
process of another session that holds the same ones and was found on a port that it should have left.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgpack

from orchestrator.engines.embedded.tls import Identity, explain, peer_role
from orchestrator.errors import DisagreementError, PeerLostError, PeerTimeoutError, ProtocolError

__all__ = ["LONGEST_MESSAGE", "Channel", "Position", "accept", "connect", "listen", "ready"]

_HEADER = struct.Struct("<I")
_RECORD = 1 << 14  # TLS delivers at most this much at a time
_CHUNK = 1 << 16
LONGEST_MESSAGE = (1 << 32) - 1
_LONGEST_GREETING = 1 << 12
_MOST_FIELDS, _MOST_ITEMS = 64, 1 << 20  # of a map and of a list in a structured message
_ADMISSION_SEC = 5.0
_WAITING_ROOM = 32


@dataclass
class Position:
    """Where this process, or a thread of it, is; shared by its channels so that errors can say so."""

    phase: str = "start"
    round: int = 0

    def enter(self, phase: str, round: int) -> None:
        self.phase, self.round = phase, round


class Channel:
    """One connection to a named peer."""

    def __init__(self, connection: ssl.SSLSocket, peer: str, position: Position, timeout_sec: float) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self.position = position
        self.timeout_sec = timeout_sec
        self.peer = peer
        self.sent_bytes = 0
        self.received_bytes = 0
        self.exchanges = 0

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
        data = self.receive(longest)
        try:
            most = min(len(data), _MOST_ITEMS)
            message = msgpack.unpackb(data, max_map_len=_MOST_FIELDS, max_array_len=most, max_ext_len=0)
        except (ValueError, msgpack.UnpackException):
            message = None
        if not isinstance(message, dict):
            raise self.error(DisagreementError, "sent a malformed message")
        return message

    def error(self, kind: type[ProtocolError], reason: str) -> ProtocolError:
        """A protocol error about this peer, here and now."""
        return kind(self.peer, self.position.phase, self.position.round, reason)

    def _write(self, data: bytes | memoryview, deadline: float) -> None:
        try:
            self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))
            self._socket.sendall(data)
        except TimeoutError:
            raise self.error(PeerTimeoutError, f"took no data for {self.timeout_sec:g} s") from None
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
                raise self.error(PeerTimeoutError, f"silent for {self.timeout_sec:g} s") from None
            except OSError as error:
                raise self.error(*_cause(error)) from None
            if not part:
                raise self.error(PeerLostError, "closed the connection")
            parts.append(part)
            count += len(part)
        self.received_bytes += count
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _cause(error: OSError) -> tuple[type[ProtocolError], str]:
    """What the failure of a connection means; a peer that ends without a farewell is lost, not in disagreement."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return PeerLostError, "connection lost (closed by the peer)"
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLSyscallError):
        return DisagreementError, explain(error)
    return PeerLostError, f"connection lost ({error.strerror or error})"


def ready(channels: Collection[Channel], timeout_sec: float | None = None) -> list[Channel]:
    """Wait until one of the channels has something to receive or is closed; return those, or none after the time."""
    return [channel for channel in channels if channel.pending()] or select.select(channels, [], [], timeout_sec)[0]


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError if the port is in use."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(8)
    except OSError:
        listener.close()
        raise
    return listener


def connect(
    address: tuple[str, int], identity: Identity, session: bytes, peer: str, position: Position, timeout_sec: float
) -> Channel:
    """Connect to the peer of this role in this session.

    Raises:
        DisagreementError: somebody else is there, or it refuses this side.
        PeerLostError, PeerTimeoutError: nobody is there, or it does not answer.
    """
    try:
        connection = socket.create_connection(address, timeout=timeout_sec)
    except OSError as error:
        reason = f"no connection to {address[0]}:{address[1]} ({error.strerror or error})"
        raise PeerLostError(peer, "handshake", position.round, reason) from None
    secured, _ = _introduce(connection, identity, {peer}, session, peer, position, timeout_sec, server_side=False)
    return Channel(secured, peer, position, timeout_sec)


def accept(
    listener: socket.socket,
    expected: Collection[str],
    identity: Identity,
    session: bytes,
    position: Position,
    timeout_sec: float,
) -> dict[str, Channel]:
    """Accept one connection of each of the expected roles; everybody else is turned away, and told why.

    Newcomers wait aside until they speak, so that silent ones hold nobody up.

    Raises:
        PeerTimeoutError: one of them did not come in time; says whom this side turned away last.
    """
    deadline, limit = time.monotonic() + timeout_sec, min(timeout_sec, _ADMISSION_SEC)
    admitted: dict[str, Channel] = {}
    missing, newcomers = set(expected), dict[socket.socket, str]()
    refusal = ""
    listener.setblocking(False)
    try:
        while missing:
            remaining = deadline - time.monotonic()
            events, _, _ = select.select([listener, *newcomers], [], [], max(remaining, 0))
            if remaining < 0 or not events:
                who = " and ".join(sorted(missing))
                reason = f"did not connect in {timeout_sec:g} s{refusal}"
                raise PeerTimeoutError(who, "handshake", position.round, reason)
            for connection in events:
                if connection is listener:
                    with suppress(BlockingIOError, ConnectionError):  # the newcomer has gone again
                        connection, (host, *_) = listener.accept()
                        newcomers[connection] = f"a newcomer from {host}"
                    continue
                name = newcomers.pop(connection)
                try:
                    secured, role = _introduce(
                        connection, identity, missing, session, name, position, limit, server_side=True
                    )
                    admitted[role] = Channel(secured, role, position, timeout_sec)
                    missing.remove(role)
                except ProtocolError as error:
                    refusal = f"; turned away {error.peer}: {error.reason}"
            while len(newcomers) > _WAITING_ROOM:
                oldest = next(iter(newcomers))
                del newcomers[oldest]
                oldest.close()
    except BaseException:
        for channel in admitted.values():
            channel.close()
        raise
    finally:
        for connection in newcomers:
            connection.close()
    return admitted


def _introduce(
    connection: socket.socket,
    identity: Identity,
    expected: Collection[str],
    session: bytes,
    name: str,
    position: Position,
    timeout_sec: float,
    *,
    server_side: bool,
) -> tuple[ssl.SSLSocket, str]:
    """Shake hands and compare sessions; returns the secured connection and the peer's role.

    The side that accepts speaks first: in TLS 1.3 the other one may have been refused without knowing it yet, and would
    not hear why if it sent something into the closed connection.
    """
    here = Position("handshake", position.round)
    connection.settimeout(timeout_sec)
    try:
        secured = identity.secure(connection, server_side=server_side)
    except TimeoutError:
        raise PeerTimeoutError(name, here.phase, here.round, f"silent for {timeout_sec:g} s") from None
    except OSError as error:
        kind, reason = _cause(error)
        raise kind(name, here.phase, here.round, reason) from None
    channel = Channel(secured, name, here, timeout_sec)
    try:
        role, wanted = peer_role(secured), " or ".join(sorted(expected)) or "nobody"
        objection = "" if role in expected else f"shows the certificate of {role} where that of {wanted} belongs"
        if server_side:
            channel.send_message({"session": session, "objection": objection})
        answer = channel.receive_message(_LONGEST_GREETING)
        if not server_side:
            channel.send_message({"session": session, "objection": objection})
        if objection:
            raise channel.error(DisagreementError, objection)
        if answer.get("objection"):
            raise channel.error(DisagreementError, f"refuses this side, which {answer['objection']}")
        if answer.get("session") != session:
            raise channel.error(DisagreementError, "belongs to another session; end processes that were left behind")
    except BaseException:
        channel.close()
        raise
    return secured, role
