"""One request a connection to a site's worker: four bytes of length, the request; the same of the reply; the end.

Parties: a site's worker, and whoever of the same user hands it requests. Channel: a Unix socket of mode 0600 in the
site's own folder; the operating system lets nobody else connect. What the requests say is not believed because of that.

This module is imported by processes that live for one message, and imports nothing that takes long.
"""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path

__all__ = ["LONGEST", "ask", "receive", "send"]

LONGEST = 1 << 30
"""Bytes of a request or a reply."""

_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 20


def ask(path: Path | str, request: bytes, timeout_sec: float) -> bytes:
    """A worker's reply to one request.

    Args:
        path: of its socket.
        timeout_sec: for all of it, training included.

    Raises:
        TimeoutError: there is none in time.
        OSError: nobody is there, or the connection ended before the reply did.
    """
    deadline = time.monotonic() + timeout_sec
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_left(deadline))
        connection.connect(str(path))
        send(connection, request, deadline)
        return receive(connection, deadline)


def send(connection: socket.socket, message: bytes, deadline: float) -> None:
    """Raises OSError, TimeoutError where it is not taken until the deadline, and ValueError for too long a message."""
    if len(message) > LONGEST:
        raise ValueError(f"a message of {len(message)} bytes; expected at most {LONGEST}")
    view = memoryview(_LENGTH.pack(len(message)) + message)
    while view:
        connection.settimeout(_left(deadline))
        view = view[connection.send(view[:_CHUNK]) :]


def receive(connection: socket.socket, deadline: float, slowest: float = float("inf")) -> bytes:
    """One message. A longer one than there may be is refused before any of it is read.

    Args:
        slowest: bytes a second; once the length is known, the deadline is so much later.

    Raises:
        OSError: the connection ended, or the message is too long.
        TimeoutError: it is not here until the deadline.
    """
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, deadline))
    if length > LONGEST:
        raise OSError(f"a message of {length} bytes; expected at most {LONGEST}")
    return _exactly(connection, length, deadline + length / slowest)


def _exactly(connection: socket.socket, count: int, deadline: float) -> bytes:
    """So many bytes; memory grows with what has arrived, not with what was announced."""
    received = bytearray()
    while len(received) < count:
        connection.settimeout(_left(deadline))
        part = connection.recv(min(_CHUNK, count - len(received)))
        if not part:
            raise ConnectionResetError("the connection ended early")
        received += part
    return bytes(received)


def _left(deadline: float) -> float:
    """Seconds, more than none: a socket takes 0 for not blocking."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left
