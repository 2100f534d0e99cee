"""Each protocol against its definition, with the rounds that its docstring states."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpc_programs.lockstep import run, run_pair
from orchestrator.engines.embedded.arithmetic import SharedArithmetic
from orchestrator.engines.embedded.preprocessing import Batch, Demand, Tally, deal
from tests.support import compute, reveal, share, share_bits

ULP = 2.0**-32
BITS = st.lists(st.integers(0, 1), min_size=1, max_size=24)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(-15, 15), st.floats(-15, 15)), min_size=1, max_size=8))
def test_multiply(pairs):
    x, y = np.array(pairs).T
    product, rounds = compute(lambda ops, a, b: ops.multiply(a, b), share(x), share(y))
    assert rounds == 1
    assert np.abs(product - x * y).max() <= ULP * (1 + np.abs(x).max() + np.abs(y).max())


def test_multiply_at_the_edge_of_its_domain():
    """Products below 2^74 before truncation, 2^10 after it."""
    for x, y in ((1023.0, 1.0), (-31.9, 31.9), (2.0**10 - ULP, -1.0), (0.0, 5.0)):
        product, _ = compute(lambda ops, a, b: ops.multiply(a, b), share([x] * 200), share([y] * 200))
        assert np.abs(product - x * y).max() <= 2 * ULP + (abs(x) + abs(y)) * ULP


EDGES = [0.0, ULP, -ULP, 1.0, -1.0, 2.0**30 - 1, -(2.0**30) + 1]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-(2**30), 2**30) | st.sampled_from(EDGES), st.sampled_from(EDGES)), min_size=1, max_size=8
    )
)
def test_less(pairs):
    x, y = np.array(pairs).T
    bits, rounds = compute(lambda ops, a, b: ops.less(a, b), share(x), share(y))
    assert rounds == 7
    assert list(bits) == [round(a / ULP) < round(b / ULP) for a, b in pairs]


def test_less_than_public_constants():
    x = np.array([-1.0, 0.0, 0.5, 1.0, 1.0 + ULP])
    bits, _ = compute(lambda ops, a: ops.less(a, [1.0] * 5), share(x))
    assert list(bits) == [1, 1, 1, 0, 0]


@given(BITS)
def test_numbers(bits):
    numbers, rounds = compute(lambda ops, b: ops.numbers(b), share_bits(bits))
    assert rounds == 1
    assert list(numbers) == bits


@given(st.integers(1, 4), st.integers(1, 9), st.randoms())
def test_all(groups, size, random):
    bits = [random.choice([0, 1, 1, 1]) for _ in range(groups * size)]
    result, rounds = compute(lambda ops, b: ops.all(b, groups), share_bits(bits))
    assert rounds == (size - 1).bit_length()
    assert list(result) == [int(all(bits[g * size : (g + 1) * size])) for g in range(groups)]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=20))
def test_and(pairs):
    x, y = (list(side) for side in zip(*pairs, strict=True))
    result, rounds = compute(lambda ops, a, b: ops.and_(a, b), share_bits(x), share_bits(y))
    assert rounds == 1
    assert list(result) == [a & b for a, b in pairs]


def test_local_operations():
    first, second = SharedArithmetic(0, Tally()), SharedArithmetic(1, Tally())
    x, bits = share([1.0, 2.0, 3.0, 4.0]), share_bits([0, 1])

    def local(operation, pair):
        return reveal([operation(ops, part) for ops, part in zip((first, second), pair, strict=True)])

    assert list(local(lambda ops, v: ops.sums(v, 2), x)) == [3.0, 7.0]
    assert list(local(lambda ops, v: ops.take(v, [3, 0, 0]), x)) == [4.0, 1.0, 1.0]
    assert list(local(lambda ops, v: ops.concat([v[2:], v[:1]]), x)) == [3.0, 4.0, 1.0]
    assert list(local(lambda ops, b: ops.negate(b), bits)) == [1, 0]
    assert list(reveal([ops.constants([0.5, -2.0]) for ops in (first, second)])) == [0.5, -2.0]


def test_scales_do_not_mix():
    ops = SharedArithmetic(0, Tally())
    x = share([1.0])[0]
    integer = run(ops.numbers(share_bits([1])[0]), lambda payload: payload)
    with pytest.raises(TypeError, match="different scales"):
        ops.concat([x, integer])
    with pytest.raises(TypeError, match="integers"):
        ops.weigh(x, [1.0])


def test_a_program_that_takes_more_than_was_prepared_stops():
    messages = deal(Demand(1, 0, 0))
    pairs = share([1.0, 2.0])
    sides = [
        SharedArithmetic(k, Batch.from_dealer(Demand(1, 0, 0), k, messages[k])).multiply(pairs[k], pairs[k])
        for k in (0, 1)
    ]
    with pytest.raises(RuntimeError, match="more triples than were prepared"):
        run_pair(*sides)
    sides[1].close()
