"""The dealer process: makes both servers' correlated randomness for each round.

Parties: the dealer and two servers. It colludes with neither and sees no message between them; from a server it
receives a round number and counts. See `preprocessing` for what it sends. Run: `python -m` this module.
"""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.errors import PeerLostError
from orchestrator.mpc.offline.correlations import Demand, deal
from orchestrator.transport.bootstrap import begin
from orchestrator.transport.channel import Channel, Position, accept, ready

__all__ = ["main"]


def serve(servers: dict[str, Channel], position: Position) -> None:
    """Answer requests until a server's connection closes. A batch is made at its first request."""
    batches: dict[tuple[int, Demand], dict[str, bytes]] = {}
    while True:
        for channel in ready(servers.values()):
            try:
                request = channel.receive_message()
            except PeerLostError:
                return
            key = number, demand = request["round"], Demand(*request["demand"])
            position.enter("preprocessing", number)
            if key not in batches:
                first, second = deal(demand)
                batches[key] = {"server 0": first, "server 1": second}
            channel.send(batches[key].pop(channel.peer))
            if not batches[key]:
                del batches[key]


def main(follow: Callable[[dict[str, Channel], Position], None] = serve) -> None:
    """Meet both servers, then do what `follow` says until a connection closes."""
    assignment, identity, listener = begin({})
    position = Position()
    both = ("server 0", "server 1")
    servers = accept(listener, both, identity, assignment.session, position, assignment.startup_timeout_sec)
    listener.close()
    for channel in servers.values():
        channel.end_startup(assignment.timeout_sec)
    follow(servers, position)


if __name__ == "__main__":
    main()
