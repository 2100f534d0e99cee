"""What rules declare of their weights, attacked: scores in their ranges, of which one client's are exchanged.

A rule that is added to `RULES` is attacked here without a further word, or no epsilon is stated for it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpc_programs.lockstep import run_locally
from mpc_programs.rules import RULES, Range, RoundParameters, Rule
from orchestrator.agreement.round_plan import Noise, RoundPlan
from orchestrator.errors import ConfigError
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.mpc.float64 import Float64
from orchestrator.privacy.sensitivity import BOUNDS, WeightBounds, l2_sensitivity

FORMAT = VectorFormat(update_bits=25, weight_bits=32, integer_bits=6)
TRIALS = 25


def drawn(rng: np.random.Generator, limits: Range, clients: int) -> np.ndarray:
    """One score of every client, shape (size, clients): mostly at the ends of its range, where weights move most."""
    values = rng.choice([limits.low, limits.high, rng.uniform(limits.low, limits.high)], size=(limits.size, clients))
    lengths = np.linalg.norm(values, axis=0)
    return values / np.maximum(1.0, lengths / limits.high) if limits.size > 1 else values


def weights(parameters: RoundParameters, scores: dict[str, np.ndarray], who: np.ndarray) -> np.ndarray:
    """Of the clients in `who`, as the rule computes them in float64; 0 for the others."""
    found = np.zeros(len(who))
    if who.any():
        own = {name: values[:, who].ravel() for name, values in scores.items()}
        found[who] = run_locally(
            RULES[parameters.rule].weights(Float64(), replace(parameters, cohort=int(who.sum())), own)
        )
    return found


def worst(parameters: RoundParameters, sampler: str, least: int, trials: int = TRIALS) -> float:
    """The furthest that one client was found to move the aggregate, divided by C.

    Updates of norm one along one line reach sum_i |gamma_i - gamma'_i| over the clients that stay, and the weights of
    those that come or go in full: the triangle inequality's bound.
    """
    rng, most, limits = np.random.default_rng(7), 0.0, RULES[parameters.rule].ranges(parameters)
    for _ in range(trials):
        q = int(rng.integers(least, parameters.cohort + 1)) if sampler == "fixed" else parameters.cohort
        first = {name: drawn(rng, own, q) for name, own in limits.items()}
        second = {name: values.copy() for name, values in first.items()}
        for name, own in limits.items():
            second[name][:, 0] = drawn(rng, own, 1)[:, 0]
        everybody, others = np.ones(q, dtype=bool), np.arange(q) > 0
        before = weights(parameters, first, everybody)
        worlds = [weights(parameters, second, everybody)] if sampler == "fixed" else []
        if sampler == "poisson" or q > least:
            worlds.append(weights(parameters, second, others))
        for after in worlds:
            moved = abs(before[0]) + abs(after[0]) + np.abs(before[1:] - after[1:]).sum()
            most = max(most, float(moved))
    return most


def heaviest(parameters: RoundParameters, trials: int = TRIALS) -> float:
    """The most that the sizes of a round's weights were found to sum to."""
    rng, limits, everybody = np.random.default_rng(8), RULES[parameters.rule].ranges(parameters), parameters.cohort
    rounds = ({name: drawn(rng, own, everybody) for name, own in limits.items()} for _ in range(trials))
    return max(float(np.abs(weights(parameters, own, np.ones(everybody, dtype=bool))).sum()) for own in rounds)


def cases(rule: str):
    """Parameters, mode, sampler and least cohort of all that `l2_sensitivity` may have a bound for."""
    shapes = [(q, lam, tau, cap) for q in (3, 7) for lam, tau, cap in ((0.5, 4.0, 2.0), (8.0, 1.0, 3.0))]
    for q, lam, tau, cap in shapes:
        own = RoundParameters(rule, q, lam, tau, cap)
        yield own, "worst_case", "fixed", 1
        yield own, "worst_case", "poisson", 1
        yield own, "bounded_weights", "fixed", q
        yield own, "bounded_weights", "fixed", max(1, q - 2)
        yield replace(own, expected=q), "bounded_weights", "poisson", 1


def attack(rule: str) -> float:
    """The largest share of what it declares that a rule was made to move, or to weigh."""
    shares = [heaviest(RoundParameters(rule, q)) / BOUNDS[rule].total for q in (2, 8)]
    for own, mode, sampler, least in cases(rule):
        try:
            declared = l2_sensitivity(own, 1.0, FORMAT, mode, sampler, own.cohort, least)
        except ConfigError:
            continue  # and so does whoever asks for it
        shares.append(worst(own, sampler, least) / declared)
    return max(shares)


def plan(rule: str, **noise) -> RoundPlan:
    return RoundPlan(RoundParameters(rule, 3, ratio_max=64.0), FORMAT, 1.0, Noise(2.0, **noise), clients=30)


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_moves_further_than_it_declares_and_without_a_declaration_there_is_no_epsilon(rule):
    if rule in BOUNDS:
        assert 0.7 < attack(rule) <= 1.0 + 1e-9
    elif not RULES[rule].personal:  # those have no noise
        assert plan(rule).privacy is None


async def _hundred(ops, parameters, scores):
    return ops.constants([100.0 / parameters.cohort] * parameters.cohort)


async def _own_score(ops, parameters, scores):
    return scores["importance"]


HUNDRED = Rule(lambda p: {}, _hundred, lambda p: p.cohort)
OWN_SCORE = Rule(lambda p: {"importance": Range(0.0, 1.0)}, _own_score, lambda p: p.cohort)


@pytest.mark.parametrize(
    ("rule", "declared", "true"),
    [
        (HUNDRED, WeightBounds(1.0), False),
        (HUNDRED, WeightBounds(100.0), True),
        (OWN_SCORE, WeightBounds(1.0), False),
        (OWN_SCORE, WeightBounds(8.0, False, lambda p, least: 1.0, lambda p: (0.5, 0.0)), False),
        (OWN_SCORE, WeightBounds(8.0, False, lambda p, least: 2.0, lambda p: (1.0, 0.0)), True),
        (RULES["fedavg"], replace(BOUNDS["fedavg"], replaced=lambda p, least: 2.0 / p.cohort), False),
        (RULES["fedavg"], replace(BOUNDS["fedavg"], own=lambda p: (0.5 / p.cohort, 0.0)), False),
        (RULES["f2gnn"], replace(BOUNDS["f2gnn"], replaced=lambda p, least: 2.0 / p.cohort), False),
        (RULES["f2gnn"], replace(BOUNDS["f2gnn"], coupled=False, own=lambda p: (1.0 / p.cohort, 0.0)), False),
    ],
)
def test_the_attack_finds_false_declarations_and_only_those(monkeypatch, rule, declared, true):
    monkeypatch.setitem(RULES, "mine", rule)
    monkeypatch.setitem(BOUNDS, "mine", declared)
    assert (attack("mine") <= 1.0 + 1e-9) == true


def test_what_weights_sum_to_scales_the_worst_case(monkeypatch):
    monkeypatch.setitem(RULES, "mine", HUNDRED)
    monkeypatch.setitem(BOUNDS, "mine", WeightBounds(100.0))
    assert plan("mine").sensitivity == pytest.approx(200.0, rel=1e-4)
    assert plan("mine").privacy.sensitivity == plan("mine").sensitivity


def test_a_rule_that_declares_nothing_has_no_epsilon_and_a_budget_is_refused(monkeypatch):
    monkeypatch.setitem(RULES, "mine", HUNDRED)
    assert plan("mine").privacy is None
    assert plan("mine").unproven == "the rule mine declares no bounds of its weights"
    with pytest.raises(ConfigError, match=r"^privacy\.epsilon_budget: no epsilon .*: the rule mine") as caught:
        _ = plan("mine", budget=50.0).privacy
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sampler", ["fixed", "poisson"])
def test_a_rule_that_declares_a_sum_alone_is_refused_better_bounds_by_name(monkeypatch, sampler):
    monkeypatch.setitem(RULES, "mine", HUNDRED)
    monkeypatch.setitem(BOUNDS, "mine", WeightBounds(100.0))
    own = RoundParameters("mine", 3, expected=3 if sampler == "poisson" else None)
    with pytest.raises(ConfigError, match=r"bounded_weights: no bound is known .* mine"):
        l2_sensitivity(own, 1.0, FORMAT, "bounded_weights", sampler)
