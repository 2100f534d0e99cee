"""The dealer process: makes both servers' correlated randomness for each round.

Parties: the dealer and two servers. It colludes with neither and sees no message between them; from a server it
receives a round number and counts. See `preprocessing` for what it sends. Run: `python -m` this module.
"""

from __future__ import annotations

import selectors

from orchestrator.engines.embedded.channel import Channel, Position, accept
from orchestrator.engines.embedded.preprocessing import Demand, deal
from orchestrator.engines.embedded.process import begin
from orchestrator.errors import PeerLostError

__all__ = ["main"]


def serve(servers: dict[str, Channel], position: Position) -> None:
    """Answer requests until a server's connection closes. A round's batch is made at its first request."""
    batches: dict[int, dict[str, bytes]] = {}
    with selectors.DefaultSelector() as selector:
        for name, channel in servers.items():
            selector.register(channel, selectors.EVENT_READ, name)
        while True:
            for key, _ in selector.select():
                name, channel = key.data, servers[key.data]
                try:
                    request = channel.receive_message()
                except PeerLostError:
                    return
                position.round = request["round"]
                if position.round not in batches:
                    first, second = deal(Demand(*request["demand"]))
                    batches[position.round] = {"server 0": first, "server 1": second}
                channel.send(batches[position.round].pop(name))
                if not batches[position.round]:
                    del batches[position.round]


def main() -> None:
    assignment, listener = begin({})
    position = Position("preprocessing")
    servers: dict[str, Channel] = {}
    while len(servers) < 2:
        missing = {"server 0", "server 1"} - servers.keys()
        channel = accept(listener, missing, assignment.token, position, assignment.timeout_sec)
        servers[channel.peer] = channel
    listener.close()
    serve(servers, position)


if __name__ == "__main__":
    main()
