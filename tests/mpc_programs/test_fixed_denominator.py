"""Weights whose denominators are fixed: on float64 and on shares, against the formulas of docs/privacy.md."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from mpc_programs.arithmetic import EXP_MAX
from mpc_programs.fixed_denominator import FixedDenominator
from mpc_programs.lockstep import run_locally
from mpc_programs.rules import RULES, RoundParameters, factors
from orchestrator.mpc.fixed_point import clip_error
from orchestrator.mpc.float64 import Float64
from orchestrator.server.aggregation import demand
from tests.support import compute, share

ULP = 2.0**-32


def oracle(m, lam, tau, width, balance, fairness):
    """docs/privacy.md, "Fixed denominators", in the order of its lines."""
    e_balance, e_fairness = max(math.e - 1, math.e / m), max((math.exp(width) - 1) / width, math.exp(width) / m)
    z = (lam / m + math.exp(1 / m)) / tau
    a, c = np.exp(balance) / (m * e_balance), np.exp(fairness) / (m * e_fairness)
    return np.exp((lam * a + np.exp(c)) / tau - z) / m


def on_float64(rule, balance, fairness):
    return run_locally(rule.weights(Float64(), np.asarray(balance, float), np.asarray(fairness, float)))


rules = st.builds(
    FixedDenominator, st.integers(1, 5000), st.floats(0, 64), st.floats(0.05, 20), st.floats(0.01, EXP_MAX)
)
clients = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5)


def scores_of(rule, clients):
    return np.array(clients).T * np.array([[1.0], [rule.fairness_max]])


def admissible(rule):
    """What the settings and `fixed_weight` let through."""
    return rule.exponents[1] <= EXP_MAX and (rule.lam + math.e) / rule.tau < 1024


@given(rules, clients)
@settings(deadline=None)
def test_on_float64_weights_are_the_formulas_and_depend_on_their_own_client_alone(rule, clients):
    assume(admissible(rule))
    balance, fairness = scores_of(rule, clients)
    together = on_float64(rule, balance, fairness)
    expected = oracle(rule.expected, rule.lam, rule.tau, rule.fairness_max, balance, fairness)
    # The polynomials of three exponentials, the last one squared up to nine times.
    assert np.abs(together - expected).max() <= 1e-7 * rule.largest_weight
    alone = [on_float64(rule, balance[k : k + 1], fairness[k : k + 1])[0] for k in range(len(clients))]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


@given(rules, clients)
@settings(deadline=None, max_examples=60)
def test_on_shares_weights_are_within_the_error_that_is_stated(rule, clients):
    assume(admissible(rule))
    balance, fairness = scores_of(rule, [*clients, (0.0, 0.0), (1.0, 1.0)])
    exact = oracle(rule.expected, rule.lam, rule.tau, rule.fairness_max, balance, fairness)
    secret, rounds = compute(lambda ops, b, f: rule.weights(ops, b, f), share(balance), share(fairness))
    assert np.abs(secret - exact).max() < rule.error_ulp * ULP
    assert rounds <= 5 + 3 + 13


@given(rules, clients)
@settings(deadline=None)
def test_no_client_weighs_more_than_the_largest_weight(rule, clients):
    assume(admissible(rule))
    weights = oracle(rule.expected, rule.lam, rule.tau, rule.fairness_max, *scores_of(rule, clients))
    assert (weights > 0).all() and weights.max() <= rule.largest_weight * (1 + 1e-12)
    top = oracle(rule.expected, rule.lam, rule.tau, rule.fairness_max, 1.0, rule.fairness_max)
    assert top == pytest.approx(rule.largest_weight, rel=1e-12)
    low, high = rule.exponents
    assert low <= 0 <= high  # a client of weight 1/m lies between


@pytest.mark.parametrize("m", [3, 30, 300])
@pytest.mark.parametrize("lam", [0.5, 8.0])
def test_they_are_about_the_weights_of_the_softmax(m, lam):
    rule, rng = FixedDenominator(m, lam, 4.0, 2.0), np.random.default_rng(m)
    balance, fairness = rng.random(m), 2 * rng.random(m)
    own = on_float64(rule, balance, fairness)
    assert own.sum() == pytest.approx(1.0, abs=0.15)
    summing = softmax((lam * softmax(balance) + np.exp(softmax(fairness))) / 4.0)
    np.testing.assert_allclose(own, summing, rtol=0.3)
    typical = on_float64(rule, np.log([rule.balance_mean]), np.log([rule.fairness_mean]))
    assert typical[0] == pytest.approx(1 / m, rel=1e-8)


@pytest.mark.parametrize("q", [1, 2, 7])
@pytest.mark.parametrize("name", ["f2gnn", "fedavg"])
def test_factors_with_an_expected_size_are_the_same_whoever_else_takes_part(name, q):
    parameters = RoundParameters(name, q, 8.0, 4.0, 2.0, ratio_max=8.0, expected=3)
    rng = np.random.default_rng(q)
    scores = {"balance": rng.random(q), "fairness": 2 * rng.random(q)} if name == "f2gnn" else {}
    ratio = 8 * rng.random(q)
    rule = parameters.fixed_denominator
    weights = oracle(3, 8.0, 4.0, 2.0, scores["balance"], scores["fairness"]) if scores else np.full(q, 1 / 3)
    expected = weights * np.minimum(1, 1 / ratio)
    np.testing.assert_allclose(run_locally(factors(Float64(), parameters, scores, ratio)), expected, rtol=1e-7)
    stacked = share(np.concatenate([*scores.values(), ratio]))
    names = list(RULES[name].ranges(parameters))

    def program(ops, x):
        columns = {score: x[k * q : k * q + q] for k, score in enumerate(names)}
        return factors(ops, parameters, columns, x[len(names) * q :])

    secret, _ = compute(program, stacked)
    largest, error = (rule.largest_weight, rule.error_ulp * ULP) if scores else (1 / 3, ULP)
    assert np.abs(secret - expected).max() < error + clip_error(1, largest)


def test_a_client_costs_the_same_in_any_cohort_and_less_than_with_sums():
    one, five = (demand(RoundParameters("f2gnn", q, 8.0, expected=3), 10) for q in (1, 5))
    assert five.triples == 5 * one.triples and five.bit_triples == 0
    assert one.triples < demand(RoundParameters("f2gnn", 5, 8.0), 10).triples / 5


def test_constants_belong_to_an_expected_size():
    with pytest.raises(ValueError, match="not fixed"):
        _ = RoundParameters("f2gnn", 3).fixed_denominator
