import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.sharing.prg import Prg
from orchestrator.sharing.ring import MASK128, from_bytes128, reduce64, signed128, to_bytes128, truncate128

ELEMENTS = st.lists(st.integers(0, MASK128) | st.sampled_from([0, 1, 2**127, MASK128]), max_size=20)


def as_ring(values):
    array = np.empty(len(values), dtype=object)
    array[:] = [int(value) & MASK128 for value in values]
    return array


@given(ELEMENTS)
def test_bytes_round_trip(values):
    array = as_ring(values)
    data = to_bytes128(array)
    assert len(data) == 16 * len(values)
    assert (from_bytes128(data) == array).all()


@given(st.lists(st.integers(-(2**127), 2**127 - 1), max_size=20))
def test_signed(values):
    assert list(signed128(as_ring(values))) == values


@given(st.lists(st.tuples(st.integers(0, MASK128), st.integers(0, MASK128)), min_size=1, max_size=20))
def test_shares_modulo_2_128_reduce_to_shares_modulo_2_64(pairs):
    first, second = as_ring([a for a, _ in pairs]), as_ring([b for _, b in pairs])
    expected = [(a + b) % 2**64 for a, b in pairs]
    assert list(reduce64(first) + reduce64(second)) == expected


def truncated(x, bits, count):
    """Results of truncating fresh sharings of x, as integers."""
    first = Prg().ring128(count)
    second = as_ring([x] * count) - first & MASK128
    return signed128(truncate128(first, bits, 0) + truncate128(second, bits, 1) & MASK128)


@given(st.integers(-(2**74), 2**74), st.integers(1, 64))
def test_truncation_is_off_by_less_than_one_unit(x, bits):
    floor = x >> bits
    assert all(int(result) - floor in (0, 1) for result in truncated(x, bits, 20))


def test_truncation_is_unbiased():
    """x / 2^4 = 0.3125 above a whole number: the mean must meet it, where floors on both sides would stay below 0."""
    x, count = 16 * 1000 + 5, 40_000
    mean = np.mean([float(result) for result in truncated(x, 4, count)])
    assert abs(mean - x / 16) < 5 * 0.5 / np.sqrt(count)


def test_truncation_fails_as_often_as_stated():
    """At |x| = 2^122 a sharing wraps with probability |x| / 2^128 = 1/64; at 2^74 that is below 2^-53."""
    count = 20_000
    wrong = sum(abs(int(result) - (2**122 >> 32)) > 1 for result in truncated(2**122, 32, count))
    assert abs(wrong / count - 1 / 64) < 5 * np.sqrt(1 / 64 / count)
