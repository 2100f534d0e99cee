"""What a server and the dealer have in common as processes: how they are started and how they report.

The parent writes one JSON line to standard input (role, address to listen on, session token, timeout) and reads one
from standard output: the port, or why there is none. Everything else goes over sockets; when the parent's connection
closes, the process ends.
"""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import dataclass
from typing import Any

from orchestrator.engines.embedded.channel import listen

__all__ = ["Assignment", "begin"]


@dataclass(frozen=True)
class Assignment:
    """What the parent asks of a new process."""

    role: str
    host: str
    port: int
    token: bytes
    timeout_sec: float

    def to_line(self) -> bytes:
        fields = {"role": self.role, "host": self.host, "port": self.port, "timeout_sec": self.timeout_sec}
        return (json.dumps({**fields, "token": self.token.hex()}) + "\n").encode()

    @staticmethod
    def from_line(line: str) -> Assignment:
        fields = json.loads(line)
        return Assignment(**{**fields, "token": bytes.fromhex(fields["token"])})


def begin(ready: dict[str, Any]) -> tuple[Assignment, socket.socket]:
    """Read the assignment, listen, and announce the port with the fields of `ready`; exits where that fails."""
    assignment = Assignment.from_line(sys.stdin.readline())
    try:
        listener = listen(assignment.host, assignment.port)
    except OSError as error:
        print(json.dumps({"error": error.strerror or str(error), "port": assignment.port}), flush=True)
        raise SystemExit(1) from None
    print(json.dumps({"port": listener.getsockname()[1], **ready}), flush=True)
    return assignment, listener
