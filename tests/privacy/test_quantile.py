"""The adaptive clip bound finds its quantile, also through noise, and never leaves what the arithmetic can carry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.privacy.noise import discrete_gaussian
from orchestrator.privacy.quantile import next_clip_norm

WIDE = (1e-6, 64.0)


def follow(norms, rounds, target=0.5, learning_rate=0.2, stddev=0.0, start=10.0, cohort=100, seed=0):
    """The bounds of all rounds, for cohorts drawn from fixed norms; stddev: of the noise of the count."""
    rng = np.random.default_rng(seed)
    noise = discrete_gaussian(rounds, round(stddev * 2**20)) * 2.0**-20
    bounds = [start]
    for added in noise:
        chosen = rng.choice(norms, size=cohort, replace=False)
        within = (chosen <= bounds[-1]).sum() + added
        bounds.append(next_clip_norm(bounds[-1], within, cohort, target, learning_rate, WIDE))
    return np.array(bounds)


NORMS = np.exp(np.random.default_rng(1).normal(-1.0, 0.7, size=1000))


@pytest.mark.parametrize("target", [0.3, 0.5, 0.9])
@pytest.mark.parametrize("start", [0.01, 10.0])
def test_it_converges_to_the_target_quantile_of_fixed_norms(target, start):
    bounds = follow(NORMS, 400, target, start=start)
    assert bounds[-50:].mean() == pytest.approx(np.quantile(NORMS, target), rel=0.05)


@pytest.mark.parametrize("target", [0.3, 0.5, 0.9])
def test_it_converges_through_noise(target):
    """Noise of ten clients' weight in a cohort of a hundred, in every round."""
    bounds = follow(NORMS, 300, target, stddev=10 * 2**0.5)
    share = (NORMS[:, None] <= bounds[-150:]).mean(axis=0)
    assert share.mean() == pytest.approx(target, abs=0.05)
    assert share.std() > 1e-3  # it keeps moving


def test_it_stays_where_the_share_is_the_target():
    assert next_clip_norm(0.7, 30.0, 60, 0.5, 0.2, WIDE) == 0.7


@given(st.floats(1e-6, 64.0), st.floats(-1e9, 1e9), st.integers(1, 1000), st.floats(0.01, 0.99), st.floats(0.01, 10.0))
def test_it_never_leaves_its_limits_and_more_within_means_less(clip_norm, within, expected, target, rate):
    following = next_clip_norm(clip_norm, within, expected, target, rate, WIDE)
    assert WIDE[0] <= following <= WIDE[1]
    assert next_clip_norm(clip_norm, within + 1, expected, target, rate, WIDE) <= following
