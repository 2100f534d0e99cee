"""What a server and the dealer have in common as processes: how they are started and how they report.

The parent writes one JSON line to standard input (role, address to listen on, session, folder of certificates,
timeouts) and reads one from standard output: the port, or why there is none. Everything else goes over sockets; when
the parent's connection closes, the process ends.
"""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from orchestrator.errors import ConfigError
from orchestrator.transport.channel import listen
from orchestrator.transport.tls import Identity

__all__ = ["Assignment", "begin"]


@dataclass(frozen=True)
class Assignment:
    """What the parent asks of a new process.

    Attributes:
        startup_timeout_sec, timeout_sec: as `TwoServerEngine` takes them.
    """

    role: str
    host: str
    port: int
    session: bytes
    certificates: Path
    startup_timeout_sec: float
    timeout_sec: float

    def to_line(self) -> bytes:
        texts = {"session": self.session.hex(), "certificates": str(self.certificates)}
        return (json.dumps({**vars(self), **texts}) + "\n").encode()

    @staticmethod
    def from_line(line: str) -> Assignment:
        fields = json.loads(line)
        session, certificates = bytes.fromhex(fields["session"]), Path(fields["certificates"])
        return Assignment(**{**fields, "session": session, "certificates": certificates})


def begin(ready: dict[str, Any]) -> tuple[Assignment, Identity, socket.socket]:
    """Read assignment and certificates, listen, announce the port and the fields of `ready`; exits where that fails."""
    assignment = Assignment.from_line(sys.stdin.readline())
    try:
        identity = Identity.load(assignment.certificates, assignment.role)
        listener = listen(assignment.host, assignment.port)
    except ConfigError as error:
        _give_up(str(error))
    except OSError as error:
        _give_up(
            f"engine.ports: port {assignment.port} of {assignment.role} cannot be used "
            f"({error.strerror or error}); choose another one or leave engine.ports empty"
        )
    print(json.dumps({"port": listener.getsockname()[1], **ready}), flush=True)
    return assignment, identity, listener


def _give_up(reason: str) -> NoReturn:
    print(json.dumps({"error": reason}), flush=True)
    raise SystemExit(1)
