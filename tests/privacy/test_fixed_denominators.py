"""The sensitivity of weights with a fixed denominator, each of which depends on its own client alone."""

from __future__ import annotations

import numpy as np
import pytest

from mpc_programs.rules import RULES, RoundParameters
from orchestrator.coordinator.audit import float64_aggregate
from orchestrator.errors import ConfigError
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.privacy.sensitivity import (
    l2_sensitivity,
)

FORMAT = VectorFormat(update_bits=25, weight_bits=32, integer_bits=6)


def test_the_bound_is_that_of_the_rule_that_is_run():
    """Poisson cohorts and weights that sum to one over whoever takes part have no bound but the worst case."""
    summing, fixed = RoundParameters("f2gnn", 3), RoundParameters("f2gnn", 3, expected=3)
    for parameters, sampler in ((summing, "poisson"), (fixed, "fixed")):
        with pytest.raises(ValueError, match="exactly for Poisson cohorts"):
            l2_sensitivity(parameters, 1.0, FORMAT, "bounded_weights", sampler)
    assert l2_sensitivity(fixed, 1.0, FORMAT, "bounded_weights", "poisson") < 1 < 2
    assert l2_sensitivity(summing, 1.0, FORMAT, "worst_case", "poisson") > 2


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"fairness_max": 5.0}, "method.score_max = 5: expected at most 4"),
        ({"lam": 64.0, "tau": 0.1}, "method.tau = 0.1 is too small for a fixed denominator"),
    ],
)
def test_scores_beyond_the_arithmetic_of_fixed_denominators_are_refused_by_name(changes, named):
    parameters = RoundParameters("f2gnn", 3, **{"lam": 8.0, "tau": 4.0, "fairness_max": 2.0, **changes}, expected=3)
    with pytest.raises(ConfigError) as caught:
        l2_sensitivity(parameters, 1.0, FORMAT, "bounded_weights", "poisson")
    assert str(caught.value).startswith(named) and "\n" not in str(caught.value)


@pytest.mark.parametrize("rule", ["f2gnn", "fedavg"])
@pytest.mark.parametrize("m", [2, 10])
def test_removing_a_client_of_a_poisson_cohort_moves_the_aggregate_by_at_most_the_bound(rule, m):
    """Cohorts of any size, also ones far from the expected; the worst client attains the bound."""
    parameters = RoundParameters(rule, m, 8.0, 4.0, 2.0, ratio_max=64.0, expected=m)
    bound, rng, worst = (
        l2_sensitivity(parameters, 0.5, FORMAT, "bounded_weights", "poisson"),
        np.random.default_rng(m),
        0.0,
    )

    def upload():
        delta = rng.normal(size=8) * rng.choice([0.01, 1.0])
        scores = {"balance": float(rng.integers(0, 2)), "fairness": 2.0 * rng.integers(0, 2)}
        return LocalUpdate(delta, float(np.linalg.norm(delta)), scores)

    for _ in range(200):
        cohort = [upload() for _ in range(rng.integers(1, 3 * m))]
        a, b = (float64_aggregate(np.zeros(8), parameters, 0.5, c) for c in (cohort, cohort[1:]))
        worst = max(worst, float(np.linalg.norm(a - b)))
    assert 0.999 * bound < worst <= bound


def test_a_rule_without_a_proof_has_no_bounded_weights(monkeypatch):
    monkeypatch.setitem(RULES, "median", RULES["f2gnn"])
    parameters = RoundParameters("median", 3)
    with pytest.raises(ConfigError, match=r"no bound is known for method\.name median"):
        l2_sensitivity(parameters, 1.0, FORMAT, "bounded_weights", "fixed")
    assert l2_sensitivity(parameters, 1.0, FORMAT, "worst_case", "fixed") > 2
