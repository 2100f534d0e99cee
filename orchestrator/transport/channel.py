"""Length-prefixed messages over mutual TLS, with a deadline for each and counters of what crossed it.

A channel never blocks for longer than its timeout: that of the start-up first, that of a phase from `end_startup` on.
Whatever goes wrong becomes a `ProtocolError` that names the peer and the phase and round in which this side is. Who the
peer is, privacy and authenticity: see `tls`; how a connection begins: `door`.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgpack

from orchestrator.errors import DisagreementError, PeerLostError, PeerTimeoutError, ProtocolError
from orchestrator.transport.tls import explain

__all__ = [
    "HEADER",
    "LONGEST_MESSAGE",
    "MALFORMED",
    "STARTUP",
    "Channel",
    "Position",
    "await_events",
    "listen",
    "parse_message",
    "ready",
    "what_failed",
]

STARTUP, _SILENCE = "engine.startup_timeout_sec", "engine.timeout_sec"
"""The settings that a timeout follows; errors name the one that was in force."""


HEADER = struct.Struct("<I")
_RECORD = 1 << 14  # TLS delivers at most this much at a time
_CHUNK = 1 << 16
LONGEST_MESSAGE = (1 << 32) - 1
_MOST_FIELDS, _MOST_ITEMS = 64, 1 << 20  # of a map and of a list in a structured message
MALFORMED = "sent a malformed message"


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
        self._write(HEADER.pack(len(payload)) + payload[:_CHUNK], deadline)
        if len(payload) > _CHUNK:
            self._write(memoryview(payload)[_CHUNK:], deadline)

    def receive(self, longest: int = LONGEST_MESSAGE) -> bytes:
        """Receive one message; waits at most the timeout.

        Raises:
            DisagreementError: the peer announces more than `longest` bytes, of which none is read.
        """
        deadline = time.monotonic() + self.timeout_sec
        (length,) = HEADER.unpack(self._read(HEADER.size, deadline))
        if length > longest:
            raise self.error(DisagreementError, f"sent a message of {length} bytes where {longest} are the most")
        return self._read(length, deadline)

    def wait(self, timeout_sec: float | None = None, *others: Any) -> list[Any]:
        """Wait until something arrives, the connection closes, or one of other open files has something to read.

        Returns which of these it was, this channel or others; none after the time. None: no limit.
        """
        if self.pending():
            return [self]
        return await_events(dict.fromkeys((self, *others), selectors.EVENT_READ), timeout_sec)

    def exchange(self, payload: bytes) -> bytes:
        """Send a payload and receive the peer's of the same length, at the same time: one round.

        Both sides alternate between sending and receiving 64 KiB, so that neither can fill the other's buffers.

        Raises:
            DisagreementError: the peer announces another length, so it runs another program.
        """
        deadline = time.monotonic() + self.timeout_sec
        first = HEADER.size + min(len(payload), _CHUNK)
        self._write(HEADER.pack(len(payload)) + payload[:_CHUNK], deadline)
        begin = self._read(HEADER.size, deadline, most=first)  # a short message arrives in one read
        (length,) = HEADER.unpack_from(begin)
        if length != len(payload):
            raise DisagreementError(
                self.peer,
                self.position.phase,
                self.position.round,
                f"sent a message of {length} bytes where {len(payload)} were expected",
            )
        received = [begin[HEADER.size :], self._read(first - len(begin), deadline)]
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
        message = parse_message(self.receive(longest))
        if message is None:
            raise self.error(DisagreementError, MALFORMED)
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
            raise self.error(*what_failed(error)) from None
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
                raise self.error(*what_failed(error)) from None
            if not part:
                raise self.error(PeerLostError, "closed the connection")
            parts.append(part)
            count += len(part)
        self.received_bytes += count
        return parts[0] if len(parts) == 1 else b"".join(parts)


def parse_message(data: bytes) -> dict[str, Any] | None:
    """A structured message; None if it is none."""
    try:
        most = min(len(data), _MOST_ITEMS)
        message = msgpack.unpackb(data, max_map_len=_MOST_FIELDS, max_array_len=most, max_ext_len=0)
    except (ValueError, msgpack.UnpackException):
        return None
    return message if isinstance(message, dict) else None


def what_failed(error: OSError, explain: Callable[[ssl.SSLError], str] = explain) -> tuple[type[ProtocolError], str]:
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
