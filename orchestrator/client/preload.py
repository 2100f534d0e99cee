"""What the process from which clients are forked imports before there is any; nobody else imports this.

A client that cannot even read what it is to host, as when the coordinator is killed meanwhile, ends in one line that
says where, and not what: an exception's text may hold the client's data.
"""

from __future__ import annotations

import sys
from types import TracebackType

import orchestrator.methods.fedavg  # noqa: F401 - with torch, once for all clients
from orchestrator.client.host import where

__all__: list[str] = []


def _in_one_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not isinstance(error, EOFError):  # the coordinator has gone
        print(f"safegnn: a client process ended: {where(error)}", file=sys.stderr)


sys.excepthook = _in_one_line
