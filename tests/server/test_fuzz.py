"""Mutated uploads, orders and messages of the other server, in one process: only typed refusals, in bounded memory.

Mutations come from seeded generators, so that a failure repeats. What is let through is checked against what the bytes
themselves show, independently of the code that reads them.
"""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter

import msgpack
import numpy as np
import pytest

from mpc_programs.rules import RoundParameters
from orchestrator.errors import DisagreementError
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.mpc.offline.correlations import Batch, Demand, deal
from orchestrator.mpc.offline.generation import generate
from orchestrator.mpc.offline.oblivious_transfer import OtExtension
from orchestrator.mpc.shared_arithmetic import SharedArithmetic
from orchestrator.mpc.shares import VectorShare
from orchestrator.server.aggregation import absorb, aggregate, demand
from orchestrator.server.base import run_with
from orchestrator.server.main import next_order
from orchestrator.transport.channel import Channel, Position
from orchestrator.wire.envelope import SEAL_BYTES, Keypair, seal
from orchestrator.wire.message import HEADER_BYTES, Header, pack
from orchestrator.wire.orders import Order
from orchestrator.wire.upload import Layout, share_update, unpack_upload
from tests.server.test_reception import ROUND, RUN, Pair
from tests.wire.test_orders import ORDERS

FORMAT = VectorFormat(25, 32, 6)
F2GNN = RoundParameters("f2gnn", 4, ratio_max=64.0)
PERSONAL = RoundParameters("fedpub", 3, embedding=4)
D = 9


def mutate(rng, data, other):
    """Flipped bits, cut, extended, spliced with another message, overwritten, or exchanged for it."""
    data, kind = bytearray(data), rng.randrange(9)
    where = rng.randrange(len(data) + 1)
    if kind <= 2 and data:
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 3:
        del data[where:]
    elif kind == 4:
        data[where:where] = rng.randbytes(rng.randrange(1, 40))
    elif kind == 5:
        data = data[:where] + other[where:]
    elif kind == 6:
        end = min(len(data), where + rng.randrange(1, 40))
        data[where:end] = rng.randbytes(end - where)
    elif kind == 7:
        data = bytearray(other)
    else:
        data = bytearray(rng.randbytes(len(data)))
    return bytes(data)


class Open:
    """In place of a key pair: the envelope is its message, behind as many bytes as a seal has."""

    def open(self, envelope):
        return envelope[SEAL_BYTES:]


def places_of(layout, server):
    """Where each field of one server's message is."""
    start, places = HEADER_BYTES, {}
    for name, length in layout.fields(server).items():
        places[name] = slice(start, start + length)
        start += length
    return places


COMMON = ("tag", "reply_key")
"""What both servers must hold alike."""


def own_fields_changed(rng, data, places):
    """A message whose header and common fields are as they were: any such bytes are shares of something."""
    changed = bytearray(data)
    name = rng.choice([name for name in places if name not in COMMON])
    changed[places[name]] = rng.randbytes(places[name].stop - places[name].start)
    return bytes(changed)


@pytest.mark.parametrize(
    ("program", "parameters", "places"),
    [
        ("assisted", F2GNN, 36_000),
        ("scalar-first", F2GNN, 8_000),
        ("faithful", F2GNN, 8_000),
        ("assisted", PERSONAL, 1_000),
    ],
)
def test_mutated_uploads_are_refused_or_are_shares_of_something(program, parameters, places):
    """In all more than 10^5 of them. What both servers take is aggregated, whatever it is."""
    rng, size, seen = random.Random(places), 500, Counter()
    layout = Layout.of_round(parameters, program, D, False)
    headers, key = [Header(RUN, ROUND, 0, 0, server) for server in (0, 1)], Keypair().public_key * layout.answered
    scores, update = [0.5] * layout.scores, np.zeros(D, np.uint64)
    bodies = [[part[HEADER_BYTES:] for part in share_update(update, scores, headers, layout, key)] for _ in range(2)]
    where = [places_of(layout, server) for server in (0, 1)]
    for batch in range(places // size):
        pair, expected = Pair(layout), []
        for reception in pair.receptions:
            reception._keypair = Open()
        for slot in range(size):
            parts, good, inside = [], [], rng.random() < 0.2
            for server in (0, 1):
                good.append(pack(Header(RUN, ROUND, slot, slot, server), {"all": bodies[0][server]}, "upload"))
                near = Header(RUN, ROUND + rng.randrange(2), slot, slot + rng.randrange(2), server)
                other = pack(near, {"all": bodies[1][server]}, rng.choice(("upload", "upload", "upload", "answer")))
                if inside:
                    parts.append(own_fields_changed(rng, good[server], where[server]))
                else:
                    parts.append(mutate(rng, good[server], other))
                seen["mutated"] += parts[server] != good[server]
            pair.take(slot, slot, [bytes(SEAL_BYTES) + part for part in parts])
            whole = all(
                len(part) == len(one) and part[:HEADER_BYTES] == one[:HEADER_BYTES]
                for part, one in zip(parts, good, strict=True)
            )
            shared = [name for name in COMMON if name in where[0]]
            if whole and all(parts[0][where[0][name]] == parts[1][where[1][name]] for name in shared):
                expected.append(slot)
        agreed = pair.settle([(slot, slot) for slot in range(size)])
        assert [list(uploads) for uploads in agreed] == [expected] * 2
        assert [sorted(refused) for refused in pair.refused()] == [sorted(set(range(size)) - set(expected))] * 2
        seen["agreed"] += len(expected)
        if batch % 4 == 0:
            _aggregate(program, parameters, agreed, expected[: parameters.cohort])
    assert seen["agreed"] > places / 6  # the inside is reached
    assert seen["mutated"] > 1.9 * places
    _COUNTED[program, parameters.rule] = seen["mutated"]


_COUNTED: dict[tuple[str, str], int] = {}


def test_these_were_a_hundred_thousand():
    if len(_COUNTED) < 4:
        pytest.skip("counts what the other tests of this file did before")
    assert sum(_COUNTED.values()) >= 100_000


def _sides(program, parameters, agreed, slots):
    """Both servers' coroutines of a round of these uploads."""
    needed = demand(parameters, D, program)
    sources = [Batch.from_dealer(needed, k, message) for k, message in enumerate(deal(needed))]
    shape, sides = (parameters.cohort, D) if parameters.personal else (D,), []
    for k in (0, 1):
        start, uploads = VectorShare(np.zeros(shape, np.uint64), FORMAT.model_bits, k), []
        for slot in slots:
            start, upload = absorb(start, agreed[k][slot])
            uploads.append(upload)
        sides.append(aggregate(SharedArithmetic(k, sources[k]), parameters, FORMAT, uploads, start, program))
    return sides


def _aggregate(program, parameters, agreed, slots):
    assert len(slots) == parameters.cohort
    result = play(*_sides(program, parameters, agreed, slots), lambda payload: payload)
    assert result.values.shape[-1] == D


class Swap(Channel):
    """The other server, run in this process; what it says is changed on its way."""

    def __init__(self, other, change):
        self.peer, self.position = "server 1", Position("online", 7)
        self._other, self._change, self._said = other, change, other.send(None)

    def exchange(self, payload):
        said = self._said
        try:
            self._said = self._other.send(payload)
        except StopIteration:
            self._said = b""
        return self._change(said)


def play(first, second, change):
    """Server 0's result where server 1's messages are changed."""
    return run_with(first, Swap(second, change))


def damage(rng, calm=0.7):
    """Changes some messages; of those every second one keeps its length."""

    def change(payload):
        if rng.random() < calm:
            return payload
        changed = mutate(rng, payload, bytes(payload[::-1]))
        return changed if rng.random() < 0.5 else (changed + bytes(len(payload)))[: len(payload)]

    return change


def _refused_or_done(make, count):
    """How many of the runs ended in a typed refusal; whatever else they raise is a failure."""
    refusals = 0
    for _ in range(count):
        try:
            make()
        except DisagreementError as error:
            assert error.peer == "server 1"
            refusals += 1
    return refusals


@pytest.mark.parametrize(
    ("program", "parameters", "runs"),
    [("assisted", F2GNN, 150), ("scalar-first", F2GNN, 150), ("faithful", F2GNN, 60), ("assisted", PERSONAL, 150)],
)
def test_whatever_the_other_server_says_in_a_round_is_typed(program, parameters, runs):
    rng = random.Random(runs)
    layout, key = Layout.of_round(parameters, program, D, False), Keypair().public_key
    agreed = [{}, {}]
    for slot in range(parameters.cohort):
        headers = [Header(RUN, ROUND, slot, slot, server) for server in (0, 1)]
        own_key = key if layout.answered else b""
        packed = share_update(np.zeros(D, np.uint64), [0.5] * layout.scores, headers, layout, own_key)
        for k in (0, 1):
            agreed[k][slot] = unpack_upload(packed[k], headers[k], layout)
    slots = list(range(parameters.cohort))
    refusals = _refused_or_done(lambda: play(*_sides(program, parameters, agreed, slots), damage(rng, calm=0.9)), runs)
    assert 0 < refusals < runs


def test_whatever_the_other_server_says_in_oblivious_transfer_is_typed():
    rng = random.Random(1)
    refusals = _refused_or_done(lambda: play(OtExtension.create(), OtExtension.create(), damage(rng, calm=0.3)), 6)
    assert refusals
    both = play_both(OtExtension.create(), OtExtension.create())
    needed = Demand(3, 17, 5, 1, 4)
    refusals = _refused_or_done(
        lambda: play(*(generate(side, k, needed) for k, side in enumerate(both)), damage(rng)), 100
    )
    assert 0 < refusals < 100


def play_both(first, second):
    from mpc_programs.lockstep import run_pair

    results, *_ = run_pair(first, second)
    return results


def test_whatever_the_other_server_says_in_a_settlement_is_typed():
    """A message of the right length is what the channel lets through; it may make this server drop what is good."""
    rng, dropped = random.Random(2), 0
    layout = Layout("scalar-first", 3, 1)
    pair = Pair(layout)
    places = [(slot, slot) for slot in range(3)]
    envelopes = [pair.sealed(slot, slot) for slot in range(3)]

    class Changed(Channel):
        def __init__(self):
            self.peer, self.position = "server 1", Position("settlement", ROUND)

        def exchange(self, payload):
            return (mutate(rng, payload, payload[::-1]) + bytes(len(payload)))[: len(payload)]

    def once():
        nonlocal dropped
        fresh = Pair(layout)
        reception = fresh.receptions[0]
        reception._keypair = pair.keypairs[0]
        for slot in range(3):
            reception.take(RUN, ROUND, (slot, slot), envelopes[slot][0], layout)
        agreed = reception.settle(ROUND, places, Changed())
        assert agreed.keys() | reception.refused.keys() == {0, 1, 2}
        dropped += len(reception.refused)

    refusals = _refused_or_done(once, 500)
    assert 0 < refusals < 500 and dropped


def test_sealed_and_unsealed_garbage_is_refused_with_a_reason():
    """Through real envelopes: what is sealed well reaches the inside, what is not ends at the seal."""
    rng, pair = random.Random(3), Pair(Layout("assisted", D, 3))
    good, slot = pair.sealed(0, 0), 0
    for _ in range(400):
        slot += 1
        inside = [pair.keypairs[k].open(good[k]) for k in (0, 1)]
        sealed = [seal(mutate(rng, inside[k], inside[1 - k]), pair.keypairs[k].public_key) for k in (0, 1)]
        pair.take(slot, slot, sealed)
        slot += 1
        pair.take(slot, slot, [mutate(rng, good[k], good[1 - k]) for k in (0, 1)])
    for refused in pair.refused():
        assert list(refused) == list(range(1, slot + 1))  # at least the slot is another one


class Told(Channel):
    """A connection on which one message has come."""

    def __init__(self, data):
        self.peer, self.position, self._data = "coordinator", Position("upload", 3), data

    def wait(self):
        pass

    def receive(self, longest):
        assert len(self._data) <= longest
        return self._data


def test_mutated_orders_are_orders_or_are_refused():
    rng, seen = random.Random(4), Counter()
    packed = [msgpack.packb(order.message()) for order in ORDERS]
    for _ in range(20_000):
        k, other = rng.randrange(len(packed)), rng.randrange(len(packed))
        try:
            order = next_order(Told(mutate(rng, packed[k], packed[other])), 1 << 20)
        except DisagreementError as error:
            assert error.peer == "coordinator" and "\n" not in str(error)
            seen["refused"] += 1
        else:
            assert isinstance(order, Order)
            seen["read"] += 1
    assert seen["refused"] > 5_000 and seen["read"] > 500


def test_memory_stays_bounded_whatever_comes():
    """40 MB of empty maps once took gigabytes. An upload of another length takes nothing, and an order in which
    maps stand for bytes no more than a multiple of the longest order."""
    rng, pair = random.Random(5), Pair(Layout("assisted", 1000, 3))
    good, flood, longest = pair.sealed(0, 0), b"\x80" * 40_000_000, 50_000
    maps = {"type": "upload", "round": 1, "slot": 0, "client": 0, "envelope": [{}] * (longest - 100)}
    tracemalloc.start()
    try:
        for slot in range(1, 51):
            pair.take(slot, slot, (flood, flood))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
        tracemalloc.reset_peak()
        with pytest.raises(DisagreementError):
            next_order(Told(msgpack.packb(maps)), longest)
        for slot in range(51, 251):
            pair.take(slot, slot, [mutate(rng, part, part) for part in good])
        assert tracemalloc.get_traced_memory()[1] < 200 * longest
    finally:
        tracemalloc.stop()
