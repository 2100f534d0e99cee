"""What an attack's rates prove: never more than there is, and nearly all of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from orchestrator.privacy.lower_bound import Guesses, Rates, composed_epsilon
from orchestrator.privacy.plan import PrivacyPlan


def rates_of(mu: float, trials: int, confidence: float = 0.95) -> Rates:
    """As many hits and alarms as are expected of the distance mu, with the threshold between."""
    return Rates(round(trials * norm.cdf(mu / 2)), trials, round(trials * norm.cdf(-mu / 2)), trials, confidence)


@given(st.integers(1, 300), st.data(), st.sampled_from([0.5, 0.95, 0.999]))
def test_clopper_and_pearsons_bounds_are_where_the_binomials_tails_end(trials, data, confidence):
    hits, alarms = (data.draw(st.integers(0, trials)) for _ in range(2))
    rates, tail = Rates(hits, trials, alarms, trials, confidence), (1 - confidence) / 2
    assert binom.sf(hits - 1, trials, rates.power) == pytest.approx(tail if hits else 1.0, rel=1e-6)
    assert binom.cdf(alarms, trials, rates.alarm) == pytest.approx(tail if alarms < trials else 1.0, rel=1e-6)
    assert 0 <= rates.power <= hits / trials and alarms / trials <= rates.alarm <= 1 and rates.mu >= 0


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_with_many_trials_the_distance_is_found_and_never_exceeded(mu):
    found = [rates_of(mu, trials).mu for trials in (30, 1000, 10**7)]
    assert found == sorted(found) and 0.99 * mu < found[-1] < mu


def test_of_one_release_epsilon_is_what_the_rates_say():
    rates = rates_of(2.0, 1000)
    expected = math.log((rates.power - 1e-3) / rates.alarm), math.log((1 - rates.alarm - 1e-3) / (1 - rates.power))
    assert composed_epsilon(rates, 1, 1.0, 1e-3) == pytest.approx(max(expected), rel=1e-9)


@pytest.mark.parametrize(("sampler", "cohort"), [("poisson", 30), ("poisson", 3), ("fixed", 3)])
@pytest.mark.parametrize("rounds", [1, 20, 400])
def test_what_is_proven_of_a_run_is_below_what_is_stated_and_not_far(sampler, cohort, rounds):
    plan = PrivacyPlan(sampler, 30, cohort, 1.0, 1e-3, "pld", noise="split")
    found, stated = composed_epsilon(rates_of(1.0, 10**6), rounds, cohort / 30, 1e-3), plan.epsilon(rounds)
    assert 0 < found < stated
    assert found > 0.4 * stated or rounds == 1


def test_more_rounds_prove_more_and_rates_that_do_not_differ_nothing():
    rates = rates_of(0.5, 5000)
    found = [composed_epsilon(rates, rounds, 1.0, 1e-5) for rounds in (1, 10, 100, 1000, 10**7)]
    assert found == sorted(found) and np.isfinite(found).all() and found[0] < found[2] < found[3]
    for same in (Rates(5, 10, 5, 10), Rates(0, 10, 10, 10)):
        assert same.mu == 0.0 == composed_epsilon(same, 100, 1.0, 1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 2.0])
def test_right_guesses_of_randomised_response_are_as_likely_as_is_said(epsilon):
    """Which is attained without delta: every coin is told truly with probability e^epsilon / (1 + e^epsilon)."""
    m, truth = 12, 1 / (1 + math.exp(-epsilon))
    for right in range(m + 1):
        exact = sum(math.comb(m, k) * truth**k * (1 - truth) ** (m - k) for k in range(right, m + 1))
        assert Guesses(m, m, right).chance(epsilon, 0.0) == pytest.approx(exact)


def test_what_tells_everything_with_probability_delta_is_allowed_for():
    """(0, delta): all guesses are right more often than by chance."""
    m, delta = 30, 1e-3
    true = delta + (1 - delta) * 2.0**-m
    assert true <= Guesses(m, m, m).chance(0.0, delta) <= 3.1 * true
    assert Guesses(m, m, m).chance(0.0, 0.0) < true
    # and half of them known by all: of each coin with probability delta
    told = sum(math.comb(m, k) * 0.5**m for k in range(25, m + 1))
    assert Guesses(m, m, 25).chance(0.0, delta) > told


def test_the_bound_from_guesses_holds_as_often_as_it_says_and_comes_near():
    rng, epsilon, m = np.random.default_rng(3), 1.5, 400
    found = np.array(
        [Guesses(m, m, int(right), 0.9).epsilon(0.0) for right in rng.binomial(m, 1 / (1 + math.exp(-epsilon)), 40)]
    )
    assert (found > epsilon).mean() < 0.25 and 1.1 < np.median(found) < epsilon
    assert Guesses(m, m, m // 2).epsilon(1e-5) == 0.0
    all_right = Guesses(m, m, m, 0.95).epsilon(0.0)
    assert (1 / (1 + math.exp(-all_right))) ** m == pytest.approx(0.05, rel=0.05)
    assert Guesses(m, m, 300).epsilon(1e-4) < Guesses(m, m, 300).epsilon(0.0)
