"""Ports for the parties of one run: MP-SPDZ takes a base, and party i listens on base + i."""

from __future__ import annotations

import secrets
import socket

__all__ = ["free_ports", "is_free"]

_LOW, _HIGH = 10_000, 32_000
"""Below what systems give to outgoing connections, so that none of those takes a port before a party does."""

_TRIES = 200


def is_free(port: int) -> bool:
    """Whether a process may listen there now; another one may come first."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as MP-SPDZ does: closed connections linger
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> int:
    """A base such that `count` ports from it on are free now.

    Raises:
        OSError: none was found.
    """
    for _ in range(_TRIES):
        base = _LOW + secrets.randbelow(_HIGH - _LOW)
        if all(is_free(port) for port in range(base, base + count)):
            return base
    raise OSError(f"no {count} free ports in a row from {_LOW} to {_HIGH}")
