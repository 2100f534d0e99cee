"""The dealer's requests: what it answers, and that it refuses by name what is none."""

from __future__ import annotations

import threading
from dataclasses import astuple

import msgpack
import pytest

from orchestrator.errors import DisagreementError
from orchestrator.mpc.offline.correlations import Batch, Demand
from orchestrator.server.dealer import main, serve
from orchestrator.transport.channel import Position
from tests.support import check_triples

DEMAND = Demand(3, 5, 2, 1, 4)


@pytest.fixture
def servers(connected):
    """The dealer's channels by role, and the servers' own ends."""
    position, pairs = Position("preprocessing", 0), {}
    for role in ("server 0", "server 1"):
        own, dealers = connected(position, 20.0)
        dealers.peer = role
        pairs[role] = (dealers, own)
    return {role: pair[0] for role, pair in pairs.items()}, [pair[1] for pair in pairs.values()]


def test_both_servers_get_halves_of_one_batch(servers):
    channels, own = servers
    dealer = threading.Thread(target=serve, args=(channels, Position()))
    dealer.start()
    for number in (1, 2):
        batches = []
        for k, channel in enumerate(own):
            channel.send_message({"round": number, "demand": astuple(DEMAND)})
            batches.append(Batch.from_dealer(DEMAND, k, channel.receive(DEMAND.message_bytes(k))))
        check_triples(*(batch.triples(3) for batch in batches))
    own[0].close()
    dealer.join()


GOOD = {"round": 1, "demand": list(astuple(DEMAND))}


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({}, "asked for something else"),
        ({"round": 1}, "asked for something else"),
        (GOOD | {"round": -1}, "asked for something else"),
        (GOOD | {"round": "1"}, "asked for something else"),
        (GOOD | {"round": None}, "asked for something else"),
        (GOOD | {"demand": [1, 2, 3, 4]}, "asked for something else"),
        (GOOD | {"demand": [1, 2, 3, 4, 5, 6]}, "asked for something else"),
        (GOOD | {"demand": [1, 2, 3, 4, -5]}, "asked for something else"),
        (GOOD | {"demand": [1, 2, 3, 4, 5.0]}, "asked for something else"),
        (GOOD | {"demand": [1, 2, 3, 4, True]}, "asked for something else"),
        (GOOD | {"demand": "12345"}, "asked for something else"),
        (GOOD | {"demand": {"triples": 1}}, "asked for something else"),
        (GOOD | {"demand": [2**28, 0, 0, 0, 0]}, "which no message holds"),
        (GOOD | {"demand": [0, 0, 0, 2**20, 2**20]}, "which no message holds"),
        (GOOD | {"more": bytes(2000)}, r"sent a message of \d+ bytes where 1024 are the most"),
        ([1, 2], "sent a malformed message"),
    ],
)
def test_what_is_no_request_is_refused_and_names_the_server(servers, request_, reason):
    channels, own = servers
    own[1].send(msgpack.packb(request_))
    with pytest.raises(DisagreementError, match=reason) as caught:
        serve(channels, Position())
    assert caught.value.peer == "server 1"


def test_a_batch_is_given_to_each_server_once(servers):
    channels, own = servers
    for _ in range(2):
        own[0].send_message(GOOD)
    with pytest.raises(DisagreementError, match="server 0: asked twice for what it has of round 1"):
        serve(channels, Position())


def test_a_refusal_is_the_processs_last_words(monkeypatch):
    from orchestrator.server import dealer

    class Assigned:
        session, startup_timeout_sec, timeout_sec = b"", 1.0, 1.0

    class Listener:
        def close(self):
            pass

    def refuse(servers, position):
        raise DisagreementError("server 1", "preprocessing", 3, "asked for something else")

    monkeypatch.setattr(dealer, "begin", lambda ready: (Assigned, None, Listener()))
    monkeypatch.setattr(dealer, "accept", lambda *_: {})
    with pytest.raises(SystemExit, match=r"^round 3, phase preprocessing: server 1: asked for something else$"):
        main(refuse)
