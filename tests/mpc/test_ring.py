import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.mpc.prg import Prg
from orchestrator.mpc.ring import (
    MASK128,
    from_bytes128,
    pack_bits,
    reduce64,
    signed128,
    to_bytes128,
    truncate,
    unpack_bits,
)
from tests.support import add128

ELEMENTS = st.lists(st.integers(0, MASK128) | st.sampled_from([0, 1, 2**127, MASK128]), max_size=20)


@given(ELEMENTS)
def test_bytes_round_trip(values):
    data = to_bytes128(values)
    assert len(data) == 16 * len(values)
    assert from_bytes128(data) == values


@given(st.lists(st.integers(-(2**127), 2**127 - 1), max_size=20))
def test_signed(values):
    assert signed128([value & MASK128 for value in values]) == values


@given(st.lists(st.tuples(st.integers(0, MASK128), st.integers(0, MASK128)), min_size=1, max_size=20))
def test_shares_modulo_2_128_reduce_to_shares_modulo_2_64(pairs):
    first, second = zip(*pairs, strict=True)
    assert list(reduce64(first) + reduce64(second)) == [(a + b) % 2**64 for a, b in pairs]


@given(st.lists(st.integers(0, 1), max_size=40))
def test_bits_are_the_digits_of_one_integer(bits):
    packed = sum(bit << i for i, bit in enumerate(bits))
    assert list(unpack_bits(packed, len(bits))) == bits
    assert pack_bits(unpack_bits(packed, len(bits))) == packed


@given(st.integers(-(2**74), 2**74), st.integers(0, 64))
def test_truncation_is_off_by_less_than_one_unit(x, bits):
    first = Prg().ring128(20)
    second = [x - own for own in first]  # any representative will do
    for result in signed128(add128(truncate(first, bits, 0), truncate(second, bits, 1))):
        assert result in {x >> bits, -(-x >> bits)}


def every_truncation(x, bits, ring_bits):
    """The results of truncating each of the 2^ring_bits sharings of x."""
    first = range(2**ring_bits)
    sides = truncate(first, bits, 0, ring_bits), truncate([x - own for own in first], bits, 1, ring_bits)
    return [own + other for own, other in zip(*sides, strict=True)]


RING_BITS = 11
SIZE, HALF = 2**RING_BITS, 2 ** (RING_BITS - 1)


@pytest.mark.parametrize("bits", [1, 4, RING_BITS - 1])
@pytest.mark.parametrize("x", [0, 1, -1, 2, -2, 7, 100, -100, 555, HALF - 1, 1 - HALF, -HALF])
def test_exactly_as_many_truncations_fail_as_stated(x, bits):
    """Over all masks of a small ring: none at x = 0, one at |x| = 1, ..., always off by SIZE / 2^bits towards 0.

    With that taken out every result is the floor or the ceiling, and their mean is x / 2^bits.
    """
    right = {y % SIZE: y for y in (x >> bits, -(-x >> bits))}
    results = [result % SIZE for result in every_truncation(x, bits, RING_BITS)]
    wrong = [result for result in results if result not in right]
    assert len(wrong) == abs(x)
    off = SIZE >> bits if x > 0 else -SIZE >> bits
    mended = [right[(result + off) % SIZE] for result in wrong]
    assert (sum(mended) + sum(right[result] for result in results if result in right)) * 2**bits == x * SIZE


def test_truncation_in_the_ring_of_128_bits_fails_as_often():
    """At |x| = 2^122 a sharing wraps with probability |x| / 2^128 = 1/64."""
    count, x = 20_000, 2**122
    first = Prg().ring128(count)
    results = signed128(add128(truncate(first, 32, 0), truncate([x - own for own in first], 32, 1)))
    wrong = sum(abs(result - (x >> 32)) > 1 for result in results)
    assert abs(wrong / count - 1 / 64) < 5 * (1 / 64 / count) ** 0.5
