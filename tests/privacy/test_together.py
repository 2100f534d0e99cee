"""Several runs on the same data: composed where one accountant speaks about all, else added up, and never less."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from scipy.optimize import brentq

from orchestrator.privacy.budget import Budget
from orchestrator.privacy.plan import VIEWS, NoisySum, PrivacyPlan
from orchestrator.privacy.together import Spent, composes, epsilon_together

FIXED = PrivacyPlan("fixed", 30, 3, 2.0, 1e-3, "rdp", sums=(NoisySum("counts", 5.0),))
POISSON = replace(FIXED, sampler="poisson", sums=())


def spent(plan: PrivacyPlan, rounds: int, participations: int | None = None) -> Spent:
    budget = Budget(plan)
    for number in range(1, rounds + 1):
        budget.charge(number)
    for noisy in plan.sums:
        budget.charge_sum(noisy.name)
    return Spent(budget, rounds if participations is None else participations)


@pytest.mark.parametrize("view", VIEWS)
def test_of_one_run_it_is_what_the_run_states(view):
    run = spent(FIXED, 6, 4)
    expected = run.budget.seen_by(view, 4 if view == "server" else None)
    assert epsilon_together([run], view, 1e-3) == expected
    assert epsilon_together([], view, 1e-3) == 0.0


@pytest.mark.parametrize("view", VIEWS)
def test_two_runs_are_one_of_all_their_rounds(view):
    long = replace(FIXED, sums=())
    assert epsilon_together([spent(long, 4), spent(long, 5)], view, 1e-3) == pytest.approx(long.epsilon(9, view))
    other = replace(long, noise_multiplier=4.0, cohort=6, delta=1e-6)
    both, less = (
        epsilon_together([spent(long, 4), spent(other, 5)], view, 1e-3),
        epsilon_together([spent(long, 4)], view, 1e-3),
    )
    assert less < both < less + epsilon_together([spent(other, 5)], view, 1e-3)


def test_runs_of_two_accountants_have_the_tightest():
    runs = [spent(replace(FIXED, accountant=name, sums=()), 4) for name in ("rdp", "pld")]
    expected = replace(FIXED, accountant="tightest", sums=()).epsilon(8)
    assert epsilon_together(runs, "outsider", 1e-3) == pytest.approx(expected)


def test_truncations_of_all_runs_count():
    plan = PrivacyPlan("fixed", 10**6, 10**5, 4.0, 1e-6, "rdp")
    runs, failing = [spent(plan, 500), spent(plan, 300)], plan.failing(800)
    accountant = plan.new_accountant().compose(plan.release(), 800)
    expected = accountant.epsilon(1e-6 - failing) - math.log1p(-failing)
    assert epsilon_together(runs, "outsider", 1e-6) == pytest.approx(expected, rel=1e-9)
    assert epsilon_together(runs, "outsider", failing) == math.inf


@pytest.mark.parametrize("view", VIEWS)
def test_replaced_and_added_are_added_up(view):
    """(e, d) of add/remove is (2e, (1 + exp(e)) d) of replace-one, and both parts share delta."""
    fixed, poisson = spent(replace(FIXED, sums=()), 4), spent(POISSON, 4)
    assert not composes([fixed, poisson]) and composes([poisson, poisson])
    both = epsilon_together([fixed, poisson], view, 1e-3)
    assert both == epsilon_together([poisson, fixed], view, 1e-3)
    one = (both - epsilon_together([fixed], view, 5e-4)) / 2
    spent_on_one = POISSON.new_accountant().compose(POISSON.release(view), 4)
    part = brentq(lambda delta: spent_on_one.epsilon(delta) - one, 1e-12, 1e-3, xtol=1e-15)
    assert 0.5 * 5e-4 < (1 + math.exp(one)) * part <= 5e-4


@pytest.mark.parametrize("view", VIEWS)
def test_who_is_asked_out_of_turn_counts_that_too(view):
    plan = PrivacyPlan("cyclic", 30, 3, 4.0, 1e-3)  # one turn in ten rounds
    once, often = (epsilon_together([spent(plan, 10, asked)], view, plan.delta) for asked in (1, 4))
    assert once == plan.epsilon(10) < often == plan.epsilon(40)


def test_what_cannot_be_added_up_is_infinite():
    harsh = spent(replace(POISSON, noise_multiplier=0.01), 50)
    assert epsilon_together([spent(FIXED, 1), harsh], "server", 1e-3) == math.inf
