"""Each protocol against its definition, with the rounds that its docstring states."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mpc_programs.lockstep import run, run_pair
from orchestrator.mpc.offline.correlations import Batch, Demand, Tally, deal
from orchestrator.mpc.shared_arithmetic import SharedArithmetic
from tests.support import compute, reveal, share, share_bits, share_units

ULP = 2.0**-32
BITS = st.lists(st.integers(0, 1), min_size=1, max_size=24)


async def multiply(ops, x, y):
    [product] = await ops.multiply((x, y))
    return product


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(-15, 15), st.floats(-15, 15)), min_size=1, max_size=8))
def test_multiply(pairs):
    x, y = np.array(pairs).T
    product, rounds = compute(lambda ops, a, b: multiply(ops, a, b), share(x), share(y))
    assert rounds == 1
    assert np.abs(product - x * y).max() <= ULP * (1 + np.abs(x).max() + np.abs(y).max())


def test_several_products_share_a_round():
    async def powers(ops, x, y):
        x2, xy = await ops.multiply((x, x), (x[:1], y))
        return ops.concat([x2, xy])

    result, rounds = compute(powers, share([2.0, 3.0]), share([-4.0]))
    assert rounds == 1
    assert result == pytest.approx([4.0, 9.0, -8.0], abs=2 * ULP)


def test_multiply_at_the_edge_of_its_domain():
    """Products below 2^74 before truncation, 2^10 after it."""
    for x, y in ((1023.0, 1.0), (-31.9, 31.9), (2.0**10 - ULP, -1.0), (0.0, 5.0)):
        product, _ = compute(lambda ops, a, b: multiply(ops, a, b), share([x] * 200), share([y] * 200))
        assert np.abs(product - x * y).max() <= 2 * ULP + (abs(x) + abs(y)) * ULP


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-10, 10), st.floats(-30, 30)), min_size=1, max_size=4),
    st.floats(-1000, 1000),
    st.sampled_from([1.0, 2.0**-4, 2.0**-16, 2.0**-40]),
)
@example(terms=[(5.0, 0.0)], constant=-1.0, size=1.0)  # nothing secret is left
def test_combine(terms, constant, size):
    """One rounding; constants that are all small are encoded with up to 9 more bits."""
    x, c = np.array(terms).T
    c = c * size

    async def combine(ops, values):
        parts = [(values[k : k + 1], c[k]) for k in range(len(c))]
        return ops.combine(parts, constant)

    result, rounds = compute(combine, share(x))
    extra = min(9, max(0, -math.frexp(np.abs(c).max())[1]))
    assert rounds == 0
    given_error = 0.5 * np.abs(c).sum()  # of encoding x
    float_error = 2.0**-52 * (abs(constant) + np.abs(c * x).sum()) / ULP
    error = abs(result[0] - (constant + (c * x).sum())) / ULP
    assert error <= 1 + 2.0 ** -(extra + 1) * (np.abs(x) + ULP).sum() + given_error + 4 * float_error


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 4), st.integers(1, 200), st.integers(0, 2**32))
def test_inner(groups, size, seed):
    """One unit however long the sums are, beside the factors' encoding."""
    x, y = np.random.default_rng(seed).uniform(-1, 1, size=(2, groups * size)) / np.sqrt(size)
    result, rounds = compute(lambda ops, a, b: ops.inner(a, b, groups), share(x), share(y))
    assert rounds == 1
    given_error = 0.5 * (np.abs(x) + np.abs(y) + ULP).reshape(-1, groups).sum(axis=0)
    assert (np.abs(result - (x * y).reshape(-1, groups).sum(axis=0)) / ULP <= 1 + given_error + 1e-3).all()


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


@given(st.lists(st.sampled_from([2**63 - 1, -(2**63), 0, 1, -1]) | st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_less_over_all_of_its_domain(units):
    """Differences up to 2^31, which is 2^63 units: every carry up to the sign bit counts."""
    bits, _ = compute(lambda ops, a: ops.less(a, 0.0), share_units(units))
    assert list(bits) == [value < 0 for value in units]


def test_every_position_of_the_adder_carries():
    """2^k - 2^j and its negative, for all positions of the ring's 64 bits."""
    units = [sign * (2**k - 2**j) for k in range(64) for j in range(k) for sign in (1, -1)]
    bits, _ = compute(lambda ops, a: ops.less(a, 0.0), share_units(units))
    assert list(bits) == [value < 0 for value in units]


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
    assert list(result) == [int(all(bits[g::groups])) for g in range(groups)]


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

    assert list(local(lambda ops, v: ops.sums(v, 2), x)) == [4.0, 6.0]
    assert list(local(lambda ops, v: ops.take(v, [3, 0, 0]), x)) == [4.0, 1.0, 1.0]
    assert list(local(lambda ops, v: ops.concat([v[2:], v[:1]]), x)) == [3.0, 4.0, 1.0]
    assert list(local(lambda ops, b: ops.negate(b), bits)) == [1, 0]
    assert list(local(lambda ops, b: ops.take(b, [1, 1, 0, 1]), bits)) == [1, 1, 0, 1]
    assert list(local(lambda ops, b: ops.concat([b, b, b]), bits)) == [0, 1, 0, 1, 0, 1]
    assert list(reveal([ops.constants([0.5, -2.0]) for ops in (first, second)])) == [0.5, -2.0]


def test_scales_do_not_mix():
    ops = SharedArithmetic(0, Tally())
    x = share([1.0])[0]
    integer = run(ops.numbers(share_bits([1])[0]), lambda payload: payload)
    with pytest.raises(TypeError, match="different scales"):
        ops.concat([x, integer])
    with pytest.raises(TypeError, match="integers"):
        ops.weigh(x, [1.0])
    with pytest.raises(TypeError, match="combine shares of scale 0"):
        ops.combine([(x, 0.5), (integer, 0.5)])
    for pairs in ([(x, share([1.0, 2.0])[0])], [(x, x), (x, integer)]):
        with pytest.raises(TypeError, match="differ"):
            ops.multiply(*pairs).send(None)
    with pytest.raises(TypeError, match="differ"):
        ops.inner(x, share([1.0, 2.0])[0], 1).send(None)


def test_a_program_that_takes_more_than_was_prepared_stops():
    messages = deal(Demand(1, 0, 0))
    pairs = share([1.0, 2.0])
    sides = [
        SharedArithmetic(k, Batch.from_dealer(Demand(1, 0, 0), k, messages[k])).multiply((pairs[k], pairs[k]))
        for k in (0, 1)
    ]
    with pytest.raises(RuntimeError, match="more triples than were prepared"):
        run_pair(*sides)
    sides[1].close()
