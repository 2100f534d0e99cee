"""The dealer process: makes both servers' correlated randomness for each round.

Parties: the dealer and two servers. It colludes with neither and sees no message between them; from a server it
receives a round number and counts. See `mpc.offline.correlations` for what it sends. Run: `python -m` this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from orchestrator.errors import DisagreementError, PeerLostError, ProtocolError
from orchestrator.mpc.offline.correlations import Demand, deal
from orchestrator.transport.bootstrap import begin
from orchestrator.transport.channel import LONGEST_MESSAGE, Channel, Position, ready
from orchestrator.transport.door import accept

__all__ = ["main"]

_LONGEST_REQUEST = 1 << 10  # a round and five counts


def serve(servers: dict[str, Channel], position: Position) -> None:
    """Answer requests until a server's connection closes. A batch is made at its first request."""
    batches: dict[tuple[int, Demand], dict[str, bytes]] = {}
    while True:
        for channel in ready(servers.values()):
            try:
                key = number, demand = _read(channel)
            except PeerLostError:
                return
            position.enter("preprocessing", number)
            if key not in batches:
                first, second = deal(demand)
                batches[key] = {"server 0": first, "server 1": second}
            if channel.peer not in batches[key]:
                raise channel.error(DisagreementError, f"asked twice for what it has of round {number}")
            # Once: what is computed twice under the same masks shows how its inputs differ.
            channel.send(batches[key].pop(channel.peer))
            if not batches[key]:
                del batches[key]


def _read(channel: Channel) -> tuple[int, Demand]:
    """A server's request: the round, and how much it needs. Raises DisagreementError for what is none."""
    request = channel.receive_message(_LONGEST_REQUEST)
    number, counts = request.get("round"), request.get("demand")
    counts = counts if isinstance(counts, list) else []
    whole = all(type(value) is int and value >= 0 for value in (number, *counts))
    if not isinstance(number, int) or len(counts) != len(fields(Demand)) or not whole:
        raise channel.error(DisagreementError, "asked for something else than a round and counts")
    demand = Demand(*counts)
    if demand.message_bytes(1) > LONGEST_MESSAGE:
        raise channel.error(DisagreementError, f"asked for {demand}, which no message holds")
    return number, demand


def main(follow: Callable[[dict[str, Channel], Position], None] = serve) -> None:
    """Meet both servers, then do what `follow` says until a connection closes."""
    assignment, identity, listener = begin({})
    position = Position()
    both = ("server 0", "server 1")
    servers = accept(listener, both, identity, assignment.session, position, assignment.startup_timeout_sec)
    listener.close()
    for channel in servers.values():
        channel.end_startup(assignment.timeout_sec)
    try:
        follow(servers, position)
    except ProtocolError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
