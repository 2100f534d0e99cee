"""Length-prefixed messages over mutual TLS, with a limit to silence and counters of what crossed it.

A channel never blocks for longer than its timeout: that of the start-up first, that of a phase from `end_startup` on.
Whatever goes wrong becomes a `ProtocolError` that names the peer and the phase and round in which this side is. Who the
peer is, privacy and authenticity: see `tls`; how a connection begins: `door`.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
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
LONGEST_MESSAGE = (1 << 32) - 2
_BEAT = HEADER.pack((1 << 32) - 1)
"""In place of a message's length: there is no message, but somebody at work."""
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
        """Args: timeout_sec: longest silence; setting: where that comes from, for errors."""
        # A round is one short message each way, which Nagle's algorithm would hold back.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _keep_alive(connection)
        self._socket = connection
        self.position = position
        self.timeout_sec, self.setting = timeout_sec, setting
        self.peer = peer
        self.sent_bytes = 0
        self.received_bytes = 0
        self.exchanges = 0

    def end_startup(self, timeout_sec: float) -> None:
        """Both sides are ready: from now on this is the longest silence."""
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
        self._write(HEADER.pack(len(payload)) + payload[:_CHUNK])
        for start in range(_CHUNK, len(payload), _CHUNK):
            self._write(memoryview(payload)[start : start + _CHUNK])

    def beat(self) -> None:
        """Say that this side is at work, though it has nothing to say; the peer's patience begins anew."""
        self._write(_BEAT)

    def receive(self, longest: int = LONGEST_MESSAGE) -> bytes:
        """Receive one message; the silence before it, or within it, is at most the timeout.

        Raises:
            DisagreementError: the peer announces more than `longest` bytes, of which none is read.
        """
        while (header := self._read(HEADER.size)) == _BEAT:
            pass
        (length,) = HEADER.unpack(header)
        if length > longest:
            raise self.error(DisagreementError, f"sent a message of {length} bytes where {longest} are the most")
        return self._read(length)

    def wait(self, timeout_sec: float | None = None, *others: Any) -> list[Any]:
        """Wait until something arrives, the connection closes, or one of other open files has something to read.

        Returns which of these it was, this channel or others; none after the time. None: no limit.
        """
        if self.pending():
            return [self]
        return await_events(dict.fromkeys((self, *others), selectors.EVENT_READ), timeout_sec)

    def exchange(self, payload: bytes) -> bytes:
        """Send a payload and receive the peer's of the same length, at the same time: one round.

        Both directions move at once, whatever the length, so that neither side can fill the other's buffers, and a long
        message takes what the line takes, not a delay for each part of it.

        Raises:
            DisagreementError: the peer announces another length, so it runs another program.
        """
        first = HEADER.size + min(len(payload), _CHUNK)
        self._write(HEADER.pack(len(payload)) + payload[:_CHUNK])
        begin = self._read(HEADER.size, most=first)  # a short message arrives in one read
        while begin[: HEADER.size] == _BEAT:
            begin = begin[HEADER.size :]
            begin += self._read(max(0, HEADER.size - len(begin)), most=first - len(begin))
        (length,) = HEADER.unpack_from(begin)
        if length != len(payload):
            reason = f"sent a message of {length} bytes where {len(payload)} were expected"
            raise self.error(DisagreementError, reason)
        if length <= _CHUNK:
            received = begin[HEADER.size :] + self._read(first - len(begin))
        else:
            received = self._both_ways(memoryview(payload)[_CHUNK:], begin[HEADER.size :], length)
        self.exchanges += 1
        return received

    def _both_ways(self, rest: memoryview, begin: bytes, length: int) -> bytes:
        """Send the rest of a message while the peer's comes. Args: begin: of that; length: in all."""
        received = bytearray(length)
        view, got, sent = memoryview(received), len(begin), 0
        received[:got] = begin
        try:
            self._socket.setblocking(False)
            while got < length or sent < len(rest):
                moved, events = 0, 0
                try:
                    if sent < len(rest):
                        moved += (now := self._socket.send(rest[sent : sent + _CHUNK]))
                        sent += now
                except (ssl.SSLWantWriteError, ssl.SSLWantReadError) as want:
                    events |= _wanted(want)
                try:
                    if got < length:
                        moved += (now := self._socket.recv_into(view[got : got + _CHUNK]))
                        got += now
                        if not now:
                            raise self.error(PeerLostError, "closed the connection")
                except (ssl.SSLWantWriteError, ssl.SSLWantReadError) as want:
                    events |= _wanted(want)
                if not moved and not await_events({self: events}, self.timeout_sec):
                    raise self.error(PeerTimeoutError, f"silent for {self.timeout_sec:g} s ({self.setting})")
        except OSError as error:
            raise self.error(*what_failed(error)) from None
        self.sent_bytes += sent
        self.received_bytes += got - len(begin)
        return bytes(received)

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

    def _write(self, data: bytes | memoryview) -> None:
        """Of at most about a chunk: the peer takes all of it in time, or it is silent."""
        try:
            self._socket.settimeout(self.timeout_sec)
            self._socket.sendall(data)
        except TimeoutError:
            raise self.error(PeerTimeoutError, f"took no data for {self.timeout_sec:g} s ({self.setting})") from None
        except OSError as error:
            raise self.error(*what_failed(error)) from None
        self.sent_bytes += len(data)

    def _read(self, least: int, most: int | None = None) -> bytes:
        """At least `least` bytes, and what has come with them, up to `most`; each part in time."""
        parts, count, most = [], 0, most or least
        while count < least:
            try:
                self._socket.settimeout(self.timeout_sec)
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


def _wanted(want: ssl.SSLError) -> int:
    """What TLS waits for."""
    return selectors.EVENT_WRITE if isinstance(want, ssl.SSLWantWriteError) else selectors.EVENT_READ


def _keep_alive(connection: socket.socket) -> None:
    """Let a host that has gone without a word be noticed in about a minute, also where nobody is to say anything."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)


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
