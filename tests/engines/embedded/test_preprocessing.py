import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engines.embedded.preprocessing import Batch, Demand, deal
from orchestrator.sharing.ring import MASK128

COUNTS = st.integers(0, 40)


@given(COUNTS, COUNTS, COUNTS)
def test_correlations_hold(triples, bit_triples, bits):
    demand = Demand(triples, bit_triples, bits)
    first, second = (Batch.from_dealer(demand, k, message) for k, message in enumerate(deal(demand)))
    a, b, c = (x + y & MASK128 for x, y in zip(first.triples(triples), second.triples(triples), strict=True))
    assert (a * b & MASK128 == c).all()
    pairs = zip(first.bit_triples(bit_triples), second.bit_triples(bit_triples), strict=True)
    a, b, c = (x ^ y for x, y in pairs)
    assert (a & b == c).all()
    (r0, s0), (r1, s1) = first.bits(bits), second.bits(bits)
    assert (s0 + s1 & MASK128 == (r0 ^ r1).astype(object)).all()


def test_batches_are_fresh():
    demand = Demand(4, 0, 0)
    batches = [Batch.from_dealer(demand, 0, deal(demand)[0]).triples(4)[0] for _ in range(2)]
    assert not (batches[0] == batches[1]).any()


def test_no_correlation_is_handed_out_twice():
    demand = Demand(4, 8, 2)
    batch = Batch.from_dealer(demand, 0, deal(demand)[0])
    whole = Batch.from_dealer(demand, 0, b"".join([]) or deal(demand)[0])
    first, second = batch.triples(2)[0], batch.triples(2)[0]
    assert not (first == second).any()
    with pytest.raises(RuntimeError, match="triples"):
        batch.triples(1)
    whole.bits(2)
    with pytest.raises(RuntimeError, match="bits"):
        whole.bits(1)


def test_messages_have_the_stated_size_and_others_are_refused():
    demand = Demand(3, 20, 5)
    first, second = deal(demand)
    assert len(first) == 16
    assert len(second) == 16 + 16 * 3 + 3 + 16 * 5
    for owner, message in ((0, first + b"x"), (1, second[:-1]), (1, first)):
        with pytest.raises(ValueError, match="bytes, expected"):
            Batch.from_dealer(demand, owner, message)


def test_each_side_alone_is_uniform():
    demand = Demand(2000, 0, 0)
    for owner, message in enumerate(deal(demand)):
        for column in Batch.from_dealer(demand, owner, message).triples(2000):
            top = np.array([int(value) >> 127 for value in column])
            assert abs(top.mean() - 0.5) < 5 * 0.5 / np.sqrt(2000)


@given(st.integers(0, 4), st.integers(1, 30))
def test_scaled_vectors(count, length):
    demand = Demand(2, 3, 1, count, length)
    sides = [Batch.from_dealer(demand, k, message) for k, message in enumerate(deal(demand))]
    (f0, m0, w0), (f1, m1, w1) = (side.vectors(count, length) for side in sides)
    assert ((f0 + f1)[:, None] * (m0 + m1) == w0 + w1).all()
