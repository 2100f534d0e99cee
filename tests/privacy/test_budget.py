"""The budget as state: it grows, it stops in time, and no crash makes a release free."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from orchestrator.errors import RunError
from orchestrator.privacy.budget import Budget
from orchestrator.privacy.plan import NoisySum, PrivacyPlan

PLAN = PrivacyPlan("fixed", 30, 3, 1.341, 1e-3)


def charged(rounds: int, limit: float | None = None) -> Budget:
    budget = Budget(PLAN, limit)
    for number in range(1, rounds + 1):
        budget.charge(number)
    return budget


def test_it_says_what_the_plan_says():
    assert Budget(PLAN).epsilon == 0.0 == Budget(PLAN).last
    budget = charged(20)
    assert budget.epsilon == PLAN.epsilon(20) == budget.seen_by("outsider") and budget.last == 20
    assert budget.next_epsilon(21) == PLAN.epsilon(21)
    assert budget.seen_by("client") == PLAN.epsilon(20, "client")
    assert budget.seen_by("server") == PLAN.epsilon(20, "server")
    assert budget.seen_by("server", 4) == PLAN.epsilon(4, "server")
    assert budget.seen_by("server", 0) == 0.0


def test_where_clients_take_turns_a_clients_turns_are_counted_and_those_that_were_repeated_first():
    plan = PrivacyPlan("cyclic", 30, 3, 4.0, 1e-3)
    budget = Budget(plan)
    for number in range(1, 22):
        budget.charge(number)
    assert budget.epsilon == plan.epsilon(21) == plan.stated(plan.new_accountant().compose(plan.release(), 3), 3)
    assert budget.seen_by("client") == budget.seen_by("server") == budget.epsilon
    budget.charge(21)  # of any client's three turns that one may be
    twice = plan.new_accountant().compose(plan.release(), 2).compose(plan.release(attempts=2))
    assert budget.epsilon == plan.stated(twice, 4)


def test_it_allows_every_round_up_to_the_limit_and_none_beyond():
    limit = (PLAN.epsilon(5) + PLAN.epsilon(6)) / 2
    budget = charged(5, limit)
    assert not budget.allows(6) and budget.epsilon <= limit
    with pytest.raises(RunError) as caught:
        budget.charge(6)
    message = str(caught.value)
    assert "\n" not in message and message == budget.refusal(6)
    for part in ("round 6", "replace-one", "accountant tightest", "delta 0.001", "privacy.epsilon_budget = "):
        assert part in message
    assert budget.last == 5 and budget.epsilon == PLAN.epsilon(5)  # a refused charge is none


def test_a_repeated_round_counts_as_less_noise_and_never_less_than_before():
    budget, values = charged(5), []
    for _ in range(3):
        before = budget.next_epsilon(5)
        budget.charge(5)
        assert budget.epsilon == before
        values.append(budget.epsilon)
    assert PLAN.epsilon(5) < values[0] < values[1] < values[2]
    accountant = PLAN.new_accountant().compose(PLAN.release(), 4).compose(PLAN.release(attempts=4))
    assert budget.epsilon == PLAN.stated(accountant, 8)
    budget.charge(6)
    assert budget.epsilon == PLAN.stated(accountant.compose(PLAN.release()), 9)
    assert budget.seen_by("server", 1) == PLAN.stated(PLAN.new_accountant().compose(PLAN.release("server", 4)), 4)


def test_rounds_that_are_repeated_together_each_count_as_less_noise():
    """From a checkpoint of round 3 rounds 4 and 5 are played again, and round 6 for the first time."""
    budget = charged(5)
    for number in (4, 5, 6):
        budget.charge(number)
    accountant = PLAN.new_accountant().compose(PLAN.release(), 4).compose(PLAN.release(attempts=2), 2)
    assert budget.epsilon == PLAN.stated(accountant, 8) and budget.last == 6
    assert budget.epsilon > PLAN.epsilon(6)


@pytest.mark.parametrize("number", [0, 7, -1])
def test_a_round_out_of_turn_cannot_be_charged(number):
    with pytest.raises(RunError, match=f"round {number} cannot be released: 5 rounds were"):
        charged(5).charge(number)


def test_state_is_json_and_comes_back():
    budget = charged(5)
    budget.charge(5)
    state = json.loads(json.dumps(budget.state()))
    restored = Budget(PLAN).restore(state)
    assert restored.state() == state and (restored.epsilon, restored.last) == (budget.epsilon, 5)
    for each in (budget, restored):
        each.charge(5)
        each.charge(6)
    assert restored.epsilon == budget.epsilon


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": {}},
        {"attempts": [1, -5]},
        {"attempts": [0]},
        {"attempts": 5},
        {"attempts": ["x"]},
        {"attempts": None},
    ],
)
def test_other_states_are_refused_in_one_line(changes):
    with pytest.raises(RunError) as caught:
        Budget(PLAN).restore({**charged(5).state(), **changes})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"noise_multiplier": 2.0},
        {"noise": "split"},
        {"delta": 1e-5},
        {"cohort": 4},
        {"clients": 31},
        {"sampler": "poisson"},
        {"accountant": "paper"},
        {"bit_noise_multiplier": 5.0},
        {"amplified": False},
    ],
)
def test_a_state_of_another_plan_is_refused(changes):
    with pytest.raises(RunError, match="counted for other settings"):
        Budget(replace(PLAN, **changes)).restore(charged(5).state())


def test_a_state_that_counts_on_other_clients_noise_is_refused():
    few, more = (Budget(replace(PLAN, noise="clients", honest=honest)) for honest in (2, 3))
    with pytest.raises(RunError, match="counted for other settings"):
        more.restore(few.state())


def test_a_state_of_another_run_is_refused():
    state = Budget(PLAN, run="one").state()
    assert Budget(PLAN, run="one").restore(state).last == 0
    with pytest.raises(RunError, match="counted for other settings"):
        Budget(PLAN, run="another").restore(state)


def test_a_damaged_state_is_refused():
    with pytest.raises(RunError, match="damaged"):
        Budget(PLAN).restore({})


def test_without_noise_nothing_fits_a_limit():
    plan = PrivacyPlan("poisson", 30, 3, 0.0, 1e-3)
    assert Budget(plan).next_epsilon(1) == math.inf and not Budget(plan, 1e9).allows(1)


def test_delta_includes_every_release_truncations_that_go_wrong():
    """A repeated round and every sum as often as they were released."""
    plan = PrivacyPlan("fixed", 10**8, 10**7, 4.0, 1e-6, sums=(NoisySum("counts", 9.0),))
    budget = Budget(plan)
    for number in (1, 2, 2):
        budget.charge(number)
    budget.charge_sum("counts")
    spent = plan.new_accountant().compose(plan.release()).compose(plan.release(attempts=2))
    spent.compose(plan.sum_release(plan.sums[0]))
    assert budget.epsilon == plan.stated(spent, 3, 1) > max(plan.stated(spent, 2, 1), plan.stated(spent, 3))
