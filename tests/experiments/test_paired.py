"""Differences paired by seed are those of a paired t-test."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.experiments.paired import Paired

VALUES = st.lists(st.tuples(*2 * [st.floats(0, 1)]), min_size=2, max_size=9)


@given(VALUES)
def test_differences_are_paired_by_seed_as_scipys_t_test_has_them(pairs):
    values, baseline = zip(*pairs, strict=True)
    found = Paired.of(values, baseline)
    assert found.mean == pytest.approx(np.mean(values) - np.mean(baseline), abs=1e-12)
    if np.std(np.subtract(values, baseline)) > 1e-9:
        oracle = stats.ttest_rel(values, baseline).confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high), abs=1e-9)
    else:
        assert found.low == pytest.approx(found.high, abs=1e-6)


def test_one_seed_has_no_interval_and_an_undefined_value_no_difference():
    assert Paired.of([0.5], [0.25]) == (0.25, None, None) and str(Paired.of([0.5], [0.25])) == "+0.2500"
    assert Paired.of([0.5, None], [0.25, 0.5]) == (None, None, None)
    assert str(Paired.of([0.5, None], [0.25, 0.5])) == "undefined"
