import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.mpc.offline.correlations import Batch, Demand, deal
from tests.support import check_bit_triples, check_random_bits, check_triples

COUNTS = st.integers(0, 40)


@given(COUNTS, COUNTS, COUNTS)
def test_correlations_hold(triples, bit_triples, bits):
    demand = Demand(triples, bit_triples, bits)
    first, second = (Batch.from_dealer(demand, k, message) for k, message in enumerate(deal(demand)))
    check_triples(first.triples(triples), second.triples(triples))
    check_bit_triples(first.bit_triples(bit_triples), second.bit_triples(bit_triples))
    check_random_bits(first.bits(bits), second.bits(bits))


def test_batches_are_fresh():
    demand = Demand(4, 0, 0)
    batches = [Batch.from_dealer(demand, 0, deal(demand)[0]).triples(4)[0] for _ in range(2)]
    assert not set(batches[0]) & set(batches[1])


def test_no_correlation_is_handed_out_twice():
    demand = Demand(4, 8, 2)
    batch = Batch.from_dealer(demand, 0, deal(demand)[0])
    whole = Batch.from_dealer(demand, 0, b"".join([]) or deal(demand)[0])
    first, second = batch.triples(2)[0], batch.triples(2)[0]
    assert not set(first) & set(second)
    with pytest.raises(RuntimeError, match="triples"):
        batch.triples(1)
    whole.bits(2)
    with pytest.raises(RuntimeError, match="bits"):
        whole.bits(1)


def test_bits_are_taken_from_front_to_back():
    demand = Demand(0, 300, 70)
    message = deal(demand)[0]
    whole, parts = (Batch.from_dealer(demand, 0, message) for _ in range(2))
    taken = [parts.bit_triples(count) for count in (1, 0, 8, 291)]
    for k, column in enumerate(whole.bit_triples(300)):
        assert column == taken[0][k] | taken[2][k] << 1 | taken[3][k] << 9
    (first, numbers), (second, others) = parts.bits(3), parts.bits(67)
    assert whole.bits(70) == (first | second << 3, numbers + others)


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
            top = np.array([value >> 127 for value in column])
            assert abs(top.mean() - 0.5) < 5 * 0.5 / np.sqrt(2000)


@given(st.integers(0, 4), st.integers(1, 30))
def test_scaled_vectors(count, length):
    demand = Demand(2, 3, 1, count, length)
    sides = [Batch.from_dealer(demand, k, message) for k, message in enumerate(deal(demand))]
    (f0, m0, w0), (f1, m1, w1) = (side.vectors(count, length) for side in sides)
    assert ((f0 + f1)[:, None] * (m0 + m1) == w0 + w1).all()
