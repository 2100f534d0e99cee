"""Intervals of differences: published values, what holds for all counts, and how often they hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.evaluation.intervals import difference_interval, size_interval


@st.composite
def counts(draw):
    """Hits and totals of group 0 and group 1."""
    totals = draw(st.tuples(st.integers(1, 400), st.integers(1, 400)))
    return np.array([draw(st.integers(0, n)) for n in totals]), np.array(totals)


@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((0, 10), (0, 10), -0.2775, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0),
        ((10, 10), (0, 10), 0.6075, 1.0),
    ],
)
def test_published_values(first, second, low, high):
    """Newcombe 1998, table II, method 10."""
    (a, m), (b, n) = first, second
    assert difference_interval(np.array([b, a]), np.array([n, m])) == pytest.approx((low, high), abs=5e-5)


@given(counts())
def test_an_interval_holds_the_difference_and_is_never_a_point(drawn):
    hits, totals = drawn
    low, high = difference_interval(hits, totals)
    difference = hits[1] / totals[1] - hits[0] / totals[0]
    assert -1 <= low <= difference <= high <= 1 and high - low > 0.005
    least, most = size_interval(low, high)
    assert 0 <= least <= abs(difference) <= most <= 1
    assert least == 0 or low > 0 or high < 0


@given(counts(), st.integers(2, 20))
def test_an_interval_shrinks_with_nodes_and_grows_with_certainty(drawn, times):
    hits, totals = drawn
    width = np.diff(difference_interval(hits, totals))
    assert np.diff(difference_interval(times * hits, times * totals)) < width
    assert np.diff(difference_interval(hits, totals, error=0.01)) > width


@given(counts())
def test_the_groups_change_places(drawn):
    hits, totals = drawn
    low, high = difference_interval(hits, totals)
    assert difference_interval(hits[::-1], totals[::-1]) == pytest.approx((-high, -low), abs=1e-12)


@pytest.mark.parametrize(
    ("shares", "totals"), [((0.5, 0.5), (40, 60)), ((0.3, 0.45), (30, 80)), ((0.02, 0.1), (50, 20))]
)
def test_nineteen_of_twenty_intervals_hold_the_truth(shares, totals):
    rng = np.random.default_rng(5)
    totals = np.array(totals)[:, None]
    hits = rng.binomial(totals, np.array(shares)[:, None], (2, 20_000))
    truth = shares[1] - shares[0]
    low, high = difference_interval(hits, np.broadcast_to(totals, hits.shape))
    assert 0.94 < ((low <= truth) & (truth <= high)).mean() < 0.985
    least, most = size_interval(low, high)
    assert ((least <= abs(truth)) & (abs(truth) <= most)).mean() > 0.94
