"""The one text of the arithmetic, on float64 and on shares, against plain NumPy."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mpc_programs.arithmetic import CLAMP, clip_factors, divide, exp, maximum, softmax, thresholds
from mpc_programs.lockstep import run_locally
from orchestrator.mpc.float64 import Float64
from tests.support import compute, share

ULP = 2.0**-32


def both(protocol, values):
    """float64 result, shared result, rounds."""
    x = np.asarray(values, dtype=float)
    plain = run_locally(protocol(Float64(), x))
    secret, rounds = compute(protocol, share(x))
    return plain, secret, rounds


def softmax_oracle(x):
    e = np.exp(x - np.max(x))
    return e / e.sum()


def vectors(low, high, most=6):
    return st.lists(st.floats(low, high), min_size=1, max_size=most).map(np.array)


INTERVALS = [(0.0, 1.0), (-0.5, 0.5), (-0.51, 0.5), (-2.0, 2.0), (-CLAMP, 0.0), (1.0, 1.0), (-1.25, 1.25), (1.5, 4.0)]


@pytest.mark.parametrize(("low", "high"), INTERVALS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_exp(low, high, data):
    x = data.draw(vectors(low, high) | st.just(np.array([low, high])))
    plain, secret, rounds = both(lambda ops, v: exp(ops, v, low, high), x)
    squarings = max(0, math.ceil(math.log2(max(high - low, 1e-9) / 2.5)))
    assert rounds == (3 if high - low <= 1 else 4 + squarings)
    assert np.abs(plain / np.exp(x) - 1).max() < 5e-11 * 2**squarings
    assert np.abs(secret - np.exp(x)).max() < 2**squarings * 12 * ULP * max(1.0, math.exp(high))


def division_rounds(low, high):
    """From the closed form T_n(t) = cosh(n acosh t), not from the recurrence that the program uses."""
    wide = high > 16 * low
    t0 = (high + low) / max(high - low, 1e-12)
    steps = next(
        k for k in range(60) if 1 / math.cosh(min(700, 2**k * math.acosh(t0))) <= 2.0 ** (-17 if wide else -33)
    )
    return steps + 3 * wide


DIVISORS = [(0.5, 1.0), (1.0, 3.0), (1.0, 30.0), (1.0, 1000.0), (1.0, 2000.0), (0.4, 6.4), (2.0, 2.0)]


@pytest.mark.parametrize(("low", "high"), DIVISORS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_divide(low, high, data):
    d = data.draw(vectors(low, high) | st.just(np.array([low, high])))
    x = np.array(data.draw(st.lists(st.floats(-2, 2), min_size=len(d), max_size=len(d))))
    plain = run_locally(divide(Float64(), x, d, low, high))
    secret, rounds = compute(lambda ops, a, b: divide(ops, a, b, low, high), share(x), share(d))
    assert rounds == division_rounds(low, high)
    assert np.abs(plain - x / d).max() < 2 * 2.0**-32 * max(1.0, 1 / low)
    factor = 8 * (1 if high > 16 * low else rounds + 2)
    assert np.abs(secret - x / d).max() < factor * 2 * max(1.0, 1 / low) * ULP


def test_divide_by_one_number():
    x = np.array([1.0, 2.0, 3.0])
    for low, high in ((1.0, 8.0), (1.0, 100.0)):
        secret, _ = compute(lambda ops, a, b, r=(low, high): divide(ops, a, b, *r), share(x), share([6.0]))
        assert np.abs(secret - x / 6).max() < 1e-7


def test_divide_many_by_few():
    """Element i by divisor i mod k, on both sides of where Newton's iteration takes over."""
    by, x = np.array([1.0, 3.5, 8.0]), np.linspace(-1, 1, 12)
    for high in (8.0, 100.0):
        plain = run_locally(divide(Float64(), x, by, 1.0, high))
        secret, _ = compute(lambda ops, a, b, high=high: divide(ops, a, b, 1.0, high), share(x), share(by))
        for result in (plain, secret):
            assert np.abs(result - x / np.tile(by, 4)).max() < 8 * 10 * ULP


@settings(max_examples=40, deadline=None)
@given(x=st.lists(st.floats(-1000, 1000) | st.sampled_from([0.0, 1.0, -1000.0, 1000.0]), min_size=1, max_size=12))
@example(x=[5.0] * 7)
def test_maximum(x):
    x = np.array(x)
    plain, secret, _ = both(maximum, x)
    assert plain == [x.max()]
    assert abs(secret[0] - x.max()) <= ULP


@pytest.mark.parametrize("q", [2, 3, 32, 33, 70])
def test_maximum_in_groups(q):
    x = np.random.default_rng(q).normal(size=q).round(1)  # with ties
    _, secret, rounds = both(maximum, x)
    size = q if q <= 32 else math.ceil(math.sqrt(q))
    one_level = 7 + math.ceil(math.log2(size - 1) if size > 2 else 0) + 2
    assert rounds <= (one_level if q <= 32 else 2 * one_level)
    assert abs(secret[0] - x.max()) <= ULP


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.25, 2.7), (0.0, 2.0), (0.0, 1e5), (-50.0, 50.0)])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_softmax(low, high, data):
    x = data.draw(vectors(low, high) | st.just(np.array([low, high])) | st.just(np.full(5, high)))
    plain, secret, _ = both(lambda ops, v: softmax(ops, v, low, high), x)
    assert np.abs(plain - softmax_oracle(x)).max() < 2.0**-28
    assert np.abs(secret - softmax_oracle(x)).max() < (64 + len(x)) * ULP


@pytest.mark.parametrize("q", [100, 1000])
def test_softmax_of_many_where_one_dominates(q):
    """The sum is then at the low end of its interval, where the reciprocal is least accurate."""
    x = np.zeros(q)
    x[q // 2] = 1e5
    for values in (x, np.linspace(0, 1e5, q)):
        _, secret, _ = both(lambda ops, v: softmax(ops, v, 0.0, 1e5), values)
        assert np.abs(secret - softmax_oracle(values)).max() < (64 + q) * ULP


@pytest.mark.parametrize("largest", [0.5, 1.0, 6.4, 1000.0, 2.0**20])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_clip(largest, data):
    edges = [0.0, largest, min(1.0, largest), min(2.0, largest), math.nextafter(min(1.0, largest), 0)]
    x = data.draw(st.lists(st.floats(0, largest) | st.sampled_from(edges), min_size=1, max_size=6).map(np.array))
    plain, secret, rounds = both(lambda ops, v: clip_factors(ops, v, largest), x)
    expected = 1 / np.maximum(x, 1)
    assert rounds == 7 + 1 + 1 + division_rounds(0.5, 1.0)
    assert np.abs(plain - expected).max() < 2.0**-32
    assert np.abs(secret - expected).max() < 24 * ULP


def test_thresholds_cover_the_cap():
    for largest in (0.1, 1.0, 1.5, 2.0, 6.4, 1000.0):
        assert 2.0 ** thresholds(largest) >= largest
