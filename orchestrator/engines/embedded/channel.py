"""Length-prefixed messages over a socket, with a deadline for each and counters of what crossed it.

A channel never blocks for longer than its timeout. Whatever goes wrong becomes a `ProtocolError` that names the peer
and the phase and round in which this side is. Confidentiality and authenticity are the socket's matter.
"""

from __future__ import annotations

import hmac
import select
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

import msgpack

from orchestrator.errors import DisagreementError, PeerLostError, PeerTimeoutError

__all__ = ["Channel", "Position", "accept", "connect", "listen"]

_HEADER = struct.Struct("<I")
_CHUNK = 1 << 16
_LONGEST_MESSAGE = (1 << 32) - 1


@dataclass
class Position:
    """Where this process is; shared by its channels so that errors can say so."""

    phase: str = "start"
    round: int = 0


class Channel:
    """One connection to a named peer."""

    def __init__(self, connection: socket.socket, peer: str, position: Position, timeout_sec: float) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(timeout_sec)
        self._socket = connection
        self._position = position
        self._timeout_sec = timeout_sec
        self.peer = peer
        self.sent_bytes = 0
        self.received_bytes = 0
        self.exchanges = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, payload: bytes) -> None:
        """Send one message of at most 4 GiB."""
        if len(payload) > _LONGEST_MESSAGE:
            raise ValueError(f"a message of {len(payload)} bytes is longer than 4 GiB")
        self._write(_HEADER.pack(len(payload)), time.monotonic() + self._timeout_sec)
        self._write(payload, time.monotonic() + self._timeout_sec)

    def receive(self) -> bytes:
        """Receive one message; waits at most the timeout."""
        deadline = time.monotonic() + self._timeout_sec
        (length,) = _HEADER.unpack(self._read(_HEADER.size, deadline))
        return self._read(length, deadline)

    def wait(self) -> None:
        """Wait without limit until something arrives or the connection closes."""
        select.select([self._socket], [], [])

    def exchange(self, payload: bytes) -> bytes:
        """Send a payload and receive the peer's of the same length, at the same time: one round.

        Both sides alternate between sending and receiving 64 KiB, so that neither can fill the other's buffers.

        Raises:
            DisagreementError: the peer announces another length, so it runs another program.
        """
        deadline = time.monotonic() + self._timeout_sec
        header = _HEADER.pack(len(payload))
        self._write(header + payload[:_CHUNK], deadline)
        (length,) = _HEADER.unpack(self._read(_HEADER.size, deadline))
        if length != len(payload):
            raise DisagreementError(
                self.peer,
                self._position.phase,
                self._position.round,
                f"sent a message of {length} bytes where {len(payload)} were expected",
            )
        received = [self._read(min(length, _CHUNK), deadline)]
        for start in range(_CHUNK, length, _CHUNK):
            self._write(payload[start : start + _CHUNK], deadline)
            received.append(self._read(min(length - start, _CHUNK), deadline))
        self.exchanges += 1
        return b"".join(received)

    def send_message(self, message: dict[str, Any]) -> None:
        """Send a structured message (MessagePack)."""
        self.send(msgpack.packb(message))

    def receive_message(self) -> dict[str, Any]:
        """Receive a structured message. Raises DisagreementError if it is malformed."""
        data = self.receive()
        try:
            message = msgpack.unpackb(data)
        except (ValueError, msgpack.UnpackException):
            message = None
        if not isinstance(message, dict):
            raise self.error(DisagreementError, "sent a malformed message")
        return message

    def error(self, kind: type, reason: str) -> Exception:
        """A protocol error about this peer, here and now."""
        return kind(self.peer, self._position.phase, self._position.round, reason)

    def _write(self, data: bytes, deadline: float) -> None:
        try:
            self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))
            self._socket.sendall(data)
        except TimeoutError:
            raise self.error(PeerTimeoutError, f"took no data for {self._timeout_sec:g} s") from None
        except OSError as error:
            raise self.error(PeerLostError, f"connection lost ({error.strerror or error})") from None
        self.sent_bytes += len(data)

    def _read(self, count: int, deadline: float) -> bytes:
        parts, missing = [], count
        while missing:
            try:
                self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))
                part = self._socket.recv(min(missing, 1 << 20))
            except TimeoutError:
                raise self.error(PeerTimeoutError, f"silent for {self._timeout_sec:g} s") from None
            except OSError as error:
                raise self.error(PeerLostError, f"connection lost ({error.strerror or error})") from None
            if not part:
                raise self.error(PeerLostError, "closed the connection")
            parts.append(part)
            missing -= len(part)
        self.received_bytes += count
        return parts[0] if len(parts) == 1 else b"".join(parts)


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
    address: tuple[str, int], role: str, token: bytes, peer: str, position: Position, timeout_sec: float
) -> Channel:
    """Connect to a peer and introduce this side by its role and the session's token."""
    try:
        connection = socket.create_connection(address, timeout=timeout_sec)
    except OSError as error:
        reason = f"no connection to {address[0]}:{address[1]} ({error.strerror or error})"
        raise PeerLostError(peer, position.phase, position.round, reason) from None
    channel = Channel(connection, peer, position, timeout_sec)
    channel.send_message({"role": role, "token": token})
    return channel


def accept(
    listener: socket.socket, expected: set[str], token: bytes, position: Position, timeout_sec: float
) -> Channel:
    """Accept the next connection of one of the expected roles; strangers without the token are turned away.

    Raises:
        PeerTimeoutError: none of them came in time.
    """
    deadline = time.monotonic() + timeout_sec
    while True:
        listener.settimeout(max(deadline - time.monotonic(), 1e-3))
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            raise PeerTimeoutError(
                " and ".join(sorted(expected)), position.phase, position.round, f"did not connect in {timeout_sec:g} s"
            ) from None
        channel = Channel(connection, "a newcomer", position, min(timeout_sec, 5.0))
        try:
            hello = channel.receive_message()
            role, shown = hello.get("role"), hello.get("token")
        except (PeerLostError, PeerTimeoutError, DisagreementError):
            channel.close()
            continue
        if role not in expected or not isinstance(shown, bytes) or not hmac.compare_digest(shown, token):
            channel.close()
            continue
        return Channel(connection, role, position, timeout_sec)
