"""A server's correlations from the other server and from a dealer are used alike."""

from __future__ import annotations

import threading

import pytest

from orchestrator.errors import DisagreementError
from orchestrator.mpc.offline.correlations import Demand, deal
from orchestrator.server.providers import DealerProvider, TransferProvider, provider_of
from orchestrator.transport.channel import Position
from tests.support import check_triples

DEMAND = Demand(4, 3, 2)


class Supply:
    """A channel to another provider in this process, or to a dealer that answers with what it was given."""

    def __init__(self, peer, answers=()):
        self.peer, self.position, self.other = peer, Position(), None
        self.sent_bytes = self.received_bytes = 0
        self.asked, self.answers, self.waiting = [], list(answers), []
        self.arrived = threading.Condition()

    def exchange(self, message):
        with self.other.arrived:
            self.other.waiting.append(message)
            self.other.arrived.notify()
        self.sent_bytes += len(message)
        with self.arrived:
            assert self.arrived.wait_for(lambda: self.waiting, 30)
            return self.waiting.pop(0)

    def send_message(self, message):
        self.asked.append(message)

    def receive(self, length):
        message = self.answers.pop(0)
        self.received_bytes += len(message)
        return message

    def error(self, kind, reason):
        return kind(self.peer, self.position.phase, self.position.round, reason)


def test_two_servers_make_theirs_together():
    supplies = [Supply(f"server {1 - k}") for k in range(2)]
    supplies[0].other, supplies[1].other = supplies[1], supplies[0]
    batches, costs = [None, None], [0, 0]

    def serve(k):
        provider = provider_of(supplies[k], k)
        assert isinstance(provider, TransferProvider)
        before = provider.bytes
        batches[k] = provider.make(1, DEMAND)
        costs[k] = provider.bytes - before

    threads = [threading.Thread(target=serve, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(batch.demand == DEMAND for batch in batches)
    check_triples(*(batch.triples(DEMAND.triples) for batch in batches))
    assert all(cost > 0 for cost in costs) and supplies[0].sent_bytes > costs[0]  # the start is not a round's


def test_a_dealer_is_told_a_round_and_counts_and_nothing_else():
    messages = deal(DEMAND)
    supplies = [Supply("dealer", [message]) for message in messages]
    providers = [provider_of(supply, k) for k, supply in enumerate(supplies)]
    assert all(isinstance(provider, DealerProvider) for provider in providers)
    check_triples(*(provider.make(7, DEMAND).triples(DEMAND.triples) for provider in providers))
    assert supplies[0].asked == supplies[1].asked == [{"round": 7, "demand": (4, 3, 2, 0, 0)}]
    assert [provider.bytes for provider in providers] == [len(message) for message in messages]


def test_a_dealers_message_that_is_none_names_the_dealer():
    [message, _] = deal(DEMAND)
    provider = provider_of(Supply("dealer", [message + b"\0"]), 0)
    with pytest.raises(DisagreementError, match="dealer"):
        provider.make(1, DEMAND)
