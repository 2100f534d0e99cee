"""A round's uploads at two receptions in one process: what is opened, what is agreed on, what is refused and why."""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest

from orchestrator.errors import DisagreementError
from orchestrator.server.reception import Reception, hearsay
from orchestrator.transport.channel import Channel, Position
from orchestrator.wire.envelope import Keypair, seal
from orchestrator.wire.message import HEADER_BYTES, Header
from orchestrator.wire.upload import DIGEST_BYTES, KEY_BYTES, TAG_BYTES, Layout, share_update

RUN, ROUND = bytes(range(16)), 3
LAYOUT = Layout("assisted", 5, 2, factors=3, answered=True)


class Peer(Channel):
    """One end of an exchange in this process, which counts what it sends."""

    def __init__(self, name, outgoing, incoming):
        self.peer, self.position, self.sent = name, Position("settlement", ROUND), []
        self._out, self._in = outgoing, incoming

    def exchange(self, payload):
        self.sent.append(len(payload))
        self._out.put(payload)
        return self._in.get(timeout=20.0)


class Pair:
    """Both servers' receptions, and how clients reach them."""

    def __init__(self, layout=LAYOUT):
        self.layout, self.keypairs = layout, (Keypair(), Keypair())
        self.receptions = [Reception(k, keypair) for k, keypair in enumerate(self.keypairs)]
        first, second = queue.SimpleQueue(), queue.SimpleQueue()
        self.peers = Peer("server 1", first, second), Peer("server 0", second, first)

    def sealed(self, slot, client, key=None, change=lambda parts: parts):
        """An upload of the place; `change` takes and gives both servers' parts before they are sealed."""
        headers = [Header(RUN, ROUND, slot, client, server) for server in (0, 1)]
        own_key = (key or Keypair().public_key) if self.layout.answered else b""
        scores, update = [0.5] * self.layout.scores, np.arange(self.layout.parameters, dtype=np.uint64)
        parts = change(share_update(update, scores, headers, self.layout, own_key))
        return [seal(part, keypair.public_key) for part, keypair in zip(parts, self.keypairs, strict=True)]

    def take(self, slot, client, envelopes):
        for reception, envelope in zip(self.receptions, envelopes, strict=True):
            if envelope is not None:
                reception.take(RUN, ROUND, (slot, client), envelope, self.layout)

    def settle(self, first, second=None):
        """What both agree on by slot, server 0's and server 1's."""
        asked = first, first if second is None else second
        with ThreadPoolExecutor(2) as pool:
            sides = [
                pool.submit(reception.settle, ROUND, places, peer)
                for reception, places, peer in zip(self.receptions, asked, self.peers, strict=True)
            ]
            return [side.result() for side in sides]

    def refused(self):
        return [dict(reception.refused) for reception in self.receptions]


def test_what_both_hold_is_agreed_on_in_one_exchange_of_digests():
    pair = Pair()
    for slot in range(3):
        pair.take(slot, 10 + slot, pair.sealed(slot, 10 + slot))
    agreed = pair.settle([(slot, 10 + slot) for slot in range(3)])
    assert [list(uploads) for uploads in agreed] == [[0, 1, 2]] * 2
    for slot in range(3):
        assert agreed[0][slot].digest == agreed[1][slot].digest
    assert pair.refused() == [{}, {}]
    assert [peer.sent for peer in pair.peers] == [[DIGEST_BYTES * 4]] * 2


@pytest.mark.parametrize("change", [-1, 1, 40_000_000])
@pytest.mark.parametrize("server", [0, 1])
def test_an_envelope_of_another_length_is_refused_before_it_is_opened(monkeypatch, server, change):
    pair, opened, original = Pair(), [], Keypair.open
    monkeypatch.setattr(Keypair, "open", lambda self, *a: opened.append(self) or original(self, *a))
    good = pair.sealed(0, 10)
    bad = list(good)
    bad[server] = good[server][:-1] if change < 0 else good[server] + bytes(change)
    pair.take(0, 10, bad)
    assert opened == [pair.keypairs[1 - server]]
    expected = LAYOUT.envelope_bytes(server)
    assert pair.refused()[server] == {0: f"the envelope has {expected + change} bytes, expected {expected}"}


def test_the_first_upload_for_a_slot_counts():
    pair = Pair()
    first, later = pair.sealed(0, 10), pair.sealed(0, 10)
    pair.take(0, 10, first)
    for envelopes, client in ((later, 10), (pair.sealed(0, 11), 11), ([b"", b""], 10)):
        pair.take(0, client, envelopes)
    only = Pair()
    only.keypairs, only.receptions = pair.keypairs, [Reception(k, pair.keypairs[k]) for k in (0, 1)]
    only.take(0, 10, first)
    (agreed, _), (alone, _) = pair.settle([(0, 10)]), only.settle([(0, 10)])
    assert agreed[0].digest == alone[0].digest and pair.refused() == [{}, {}]
    pair.take(0, 10, [b"", b""])  # what comes after its place is settled changes nothing
    assert pair.refused() == [{}, {}]


def test_a_refused_upload_has_no_second_try():
    pair = Pair()
    pair.take(0, 10, [b"", b""])
    pair.take(0, 10, pair.sealed(0, 10))
    assert pair.settle([(0, 10)]) == [{}, {}]


def test_halves_of_two_uploads_of_one_client_and_place_are_refused():
    pair = Pair()
    key = Keypair().public_key
    first, second = pair.sealed(0, 10, key), pair.sealed(0, 10, key)
    pair.take(0, 10, (first[0], second[1]))
    assert pair.settle([(0, 10)]) == [{}, {}]
    assert pair.refused() == [{0: "the halves for both servers are not of one upload"}] * 2


FIELDS = {"tag": HEADER_BYTES, "reply_key": HEADER_BYTES + TAG_BYTES + 16}


@pytest.mark.parametrize(("field", "server"), list(product(FIELDS, (0, 1))))
def test_an_upload_that_shows_each_server_another_face_is_refused(field, server):
    def change(parts):
        parts = [bytearray(part) for part in parts]
        parts[server][FIELDS[field]] ^= 1
        return [bytes(part) for part in parts]

    pair = Pair()
    pair.take(0, 10, pair.sealed(0, 10, change=change))
    assert pair.settle([(0, 10)]) == [{}, {}]
    assert pair.refused() == [{0: "the halves for both servers are not of one upload"}] * 2


@pytest.mark.parametrize("server", [0, 1])
def test_what_one_server_refuses_the_other_one_drops(server):
    pair = Pair()
    envelopes = pair.sealed(0, 10)
    envelopes[server] = envelopes[server][:-1] + bytes([envelopes[server][-1] ^ 1])
    pair.take(0, 10, envelopes)
    pair.take(1, 11, pair.sealed(1, 11))
    agreed = pair.settle([(0, 10), (1, 11)])
    assert [list(uploads) for uploads in agreed] == [[1], [1]]
    reasons = [refused[0] for refused in pair.refused()]
    assert "damaged" in reasons[server] and hearsay(reasons[1 - server]) and not hearsay(reasons[server])


def test_nothing_arrived_at_one_or_both():
    pair = Pair()
    pair.take(0, 10, [pair.sealed(0, 10)[0], None])
    assert pair.settle([(0, 10), (1, 11)]) == [{}, {}]
    first, second = pair.refused()
    assert hearsay(first[0]) and second[0] == first[1] == second[1] == "nothing arrived"


def test_what_comes_after_its_place_was_settled_changes_nothing():
    pair = Pair()
    pair.settle([(0, 10)])
    pair.take(0, 10, [b"", pair.sealed(0, 10)[1]])
    assert pair.refused() == [{0: "nothing arrived"}] * 2


def test_both_refuse_the_same_slots_whatever_comes():
    """Any mix of good, damaged, torn and missing: both servers agree on one set, and refuse the rest."""
    pair = Pair(Layout("scalar-first", 3, 1))
    for slot, (one, two) in enumerate(product(("good", "bad", None), repeat=2)):
        envelopes = [
            {"good": envelope, "bad": b"", None: None}[how]
            for envelope, how in zip(pair.sealed(slot, 10 + slot), (one, two), strict=True)
        ]
        pair.take(slot, 10 + slot, envelopes)
    agreed = pair.settle([(slot, 10 + slot) for slot in range(9)])
    assert [list(uploads) for uploads in agreed] == [[0], [0]]
    assert [sorted(refused) for refused in pair.refused()] == [list(range(1, 9))] * 2


@pytest.mark.parametrize("key", [bytes(KEY_BYTES), b"\1" + bytes(KEY_BYTES - 1)])
def test_a_reply_key_of_small_order_is_refused_at_both(key):
    pair = Pair()
    pair.take(0, 10, pair.sealed(0, 10, key))
    assert pair.refused() == [{0: "its reply key is none"}] * 2
    assert pair.settle([(0, 10)]) == [{}, {}]


def test_servers_that_were_asked_about_other_places_disagree():
    pair = Pair()
    with pytest.raises(DisagreementError, match="was asked about other uploads"):
        pair.settle([(0, 10)], [(0, 11)])


@pytest.mark.parametrize("places", [[(0, 10), (0, 10)], [(0, 11)], [(2, 12)]])
def test_a_place_is_settled_once_and_for_the_client_whose_upload_came(places):
    pair = Pair()
    pair.take(0, 10, pair.sealed(0, 10))
    pair.settle([(2, 12)])
    with pytest.raises(ValueError, match="asked about slot"):
        pair.receptions[0].settle(ROUND, places, pair.peers[0])


def test_a_cohort_must_have_every_place_for_which_something_came():
    pair = Pair()
    pair.take(0, 10, pair.sealed(0, 10))
    pair.take(2, 12, [b"", b""])
    reception = pair.receptions[0]
    assert reception.open_places([10, 11, 12]) == [(0, 10), (1, 11), (2, 12)]
    for cohort in ([10, 11], [10, 11, 13], [12, 11, 10], []):
        with pytest.raises(ValueError, match="but uploads came for"):
            reception.open_places(cohort)
    pair.settle([(0, 10)])
    assert reception.open_places([10, 11, 12]) == [(1, 11), (2, 12)]
