"""The dealer of `dealer-ring` as a process: `python -m` this module.

Parties: the dealer, party 2, and the two servers' parties 0 and 1. The dealer gives correlated randomness to both; it
receives no share and no opening, and must collude with neither server. It runs a party whenever server 0 asks for one,
and tells both servers what that party sent. Channel: MP-SPDZ's own TLS, and mutual TLS with the servers.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpc_programs.rules import RoundParameters
from orchestrator.errors import ConfigError, DisagreementError, PeerLostError
from orchestrator.mpspdz.compiler import compile_program
from orchestrator.mpspdz.installation import Installation
from orchestrator.mpspdz.party import Party, PartyError, PortInUseError
from orchestrator.mpspdz.shape import Shape
from orchestrator.server.dealer import main
from orchestrator.transport.channel import Channel, Position

__all__ = ["serve"]

_HOST = "127.0.0.1"
_LONGEST_ORDER = 1 << 14  # three paths and some numbers


def serve(servers: dict[str, Channel], position: Position) -> None:
    """Run a party whenever server 0 says so, until its connection closes."""
    first = servers["server 0"]
    while True:
        first.wait()
        try:
            order = _read(first)
            position.enter("online", order.round)
            reply = {"port": order.port, **_run(order, first)}
            for channel in servers.values():
                channel.send_message(reply)
        except PeerLostError:
            return


@dataclass(frozen=True)
class _Order:
    """What server 0 asks for: a party for this round, on these ports, that runs this program; and where things are."""

    round: int
    port: int
    shape: Shape
    home: Path
    cache: Path
    scratch: Path


def _read(first: Channel) -> _Order:
    """Server 0's order. Raises DisagreementError for what is none."""
    order = first.receive_message(_LONGEST_ORDER)
    try:
        shape = Shape(order["program"], "dealer-ring", RoundParameters(**order["parameters"]), order["length"])
        numbers = operator.index(order["round"]), operator.index(order["port"])
        return _Order(*numbers, shape, *(Path(order[name]) for name in ("home", "cache", "scratch")))
    except (KeyError, TypeError, ValueError, ArithmeticError, ConfigError) as error:
        raise first.error(DisagreementError, f"gave an order that is none: {error}") from None


def _run(order: _Order, first: Channel) -> dict[str, Any]:
    """What the dealer's party sent; or what went wrong, and whether that was its own fault."""
    installation = Installation(order.home)
    try:
        compiled = compile_program(installation, order.shape, order.cache)
        with Party(installation, order.shape, compiled, 2, order.scratch) as party:
            cost = party.run(_HOST, order.port, first.timeout_sec, {first: _abandon})
    except PartyError as error:
        return {
            "error": f"its party {error}",
            "own": error.blamed == "own",
            "stalled": error.stalled,
            "port_in_use": isinstance(error, PortInUseError),
        }
    except (ConfigError, OSError) as error:
        return {"error": str(error), "own": True, "stalled": False}
    return {"sent_bytes": cost.online_bytes + cost.preprocessing_bytes}


def _abandon() -> None:
    """Server 0 orders another run, or has gone."""
    raise PartyError("nobody waits for the result any more", blamed="other")


if __name__ == "__main__":
    main(serve)
