"""Two channels that are connected to each other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestrator.transport.channel import Channel, Position, accept, connect, listen
from orchestrator.transport.tls import ROLES, Identity


@pytest.fixture(scope="session")
def identities(certificates):
    return {role: Identity.load(certificates, role) for role in ROLES}


@pytest.fixture
def connected(identities):
    """``connected(position, timeout_sec, through)``: the channels of server 0 and of server 1 to each other.

    ``through`` turns the address of server 1 into one that leads there.
    """
    channels = []

    def build(position, timeout_sec, through=lambda address: address):
        with listen("127.0.0.1", 0) as listener, ThreadPoolExecutor() as pool:
            right = pool.submit(accept, listener, {"server 0"}, identities["server 1"], b"s", Position(), 20.0)
            address = through(listener.getsockname())
            left = connect(address, identities["server 0"], b"s", "server 1", Position(), 20.0)
            sides = (left, right.result()["server 0"])
        # The handshake may take its time; only the channels' own timeouts are short.
        channels.extend(Channel(side._socket, side.peer, position, timeout_sec) for side in sides)
        return tuple(channels[-2:])

    yield build
    for channel in channels:
        channel.close()
