"""What a policy refuses, whatever a run's plan says of itself."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from pydantic import ValidationError

from orchestrator.agreement.from_settings import plan_of
from orchestrator.agreement.policy import Policy, SitePolicy
from orchestrator.agreement.round_plan import HIDING_COHORT
from orchestrator.config import load_config
from orchestrator.privacy.plan import VIEWS, NoisySum

ROUNDS, SITES = 5, 30
ANY = {"noise_multiplier": 0, "largest_epsilon": None}


QUIET = "privacy={noise_multiplier: 0.0, clip_norm: null}"


def plan(*overrides):
    """Ten of thirty clients, with noise unless an override says otherwise."""
    settings = ("clients.count=30", "federation={rounds: 5, cohort: 10}", "method={name: fedavg}")
    return plan_of(load_config(overrides=[*settings, "privacy={noise_multiplier: 2.0, clip_norm: 0.5}", *overrides]))


def judged(made, rounds=ROUNDS, sites=SITES, **policy):
    said = Policy(**{**ANY, **policy}).refusal(made, rounds, sites)
    assert said is None or ("\n" not in said and said.startswith("needs "))
    return said


def test_what_decides_about_noise_must_be_said():
    for missing in ANY:
        with pytest.raises(ValidationError, match="Field required"):
            Policy(**{name: value for name, value in ANY.items() if name != missing})
    assert not SitePolicy(**ANY).exact_metrics


@pytest.mark.parametrize(
    ("asked", "made", "said"),
    [
        ({"noise_multiplier": 1}, (QUIET,), "needs noise_multiplier >= 1, the run says 0"),
        ({"noise_multiplier": 2.1}, (), "needs noise_multiplier >= 2.1, the run says 2"),
        ({"noise_multiplier": 2.0}, (), None),
        ({"min_cohort": 5}, (), "needs min_cohort >= 5, the run says 4"),
        ({"min_cohort": 4}, (), None),
        ({"most_rounds": 4}, (), "needs rounds <= 4, the run says 5"),
        ({"most_rounds": 5}, (), None),
        ({"rules": ["f2gnn"]}, (), "needs a rule of f2gnn, the run says fedavg"),
        ({"rules": ["f2gnn", "fedavg"]}, (), None),
        ({"programs": ["faithful"]}, (), "needs a program of faithful, the run says assisted"),
        ({"programs": ["assisted"]}, (), None),
        ({"clients": "untrusted"}, (), "needs clients: untrusted, the run says trusted"),
        ({"clients": "untrusted"}, ("federation.clients=untrusted",), None),
        ({}, ("engine.name=plaintext",), "needs engine.name = embedded or mpspdz, the run says plaintext"),
        ({}, (QUIET, "engine.name=masking"), "the run says masking"),
        ({}, ("clients.count=31",), "needs clients of the consortium's 30 sites, the run says 31"),
        ({}, (QUIET, "method={name: local}", "evaluation.where=clients"), "this method aggregates nothing"),
        ({"largest_epsilon": 8}, (QUIET,), "needs largest_epsilon <= 8, the run has no noise"),
        ({"largest_epsilon": 8}, ("privacy.accountant=null",), "the run states none: none was asked for"),
        ({"largest_epsilon": 8}, ("engine.name=mpspdz",), "the run states none: none is proven for MP-SPDZ"),
        ({"largest_epsilon": 8}, ("federation.sampling=with_replacement",), "the run states none: no accountant is"),
        ({}, ("engine.name=mpspdz",), None),
    ],
)
def test_a_refusal_names_the_setting_what_is_needed_and_what_the_run_says(asked, made, said):
    got = judged(plan(*made), **asked)
    assert got is None if said is None else got is not None and said in got


def test_all_faults_are_told_at_once():
    assert judged(plan(QUIET), noise_multiplier=1, most_rounds=1) == (
        "needs rounds <= 1, the run says 5; needs noise_multiplier >= 1, the run says 0"
    )


def test_by_default_no_small_cohort_is_released():
    assert Policy(**ANY).min_cohort == HIDING_COHORT
    assert judged(plan("federation={rounds: 5, cohort: 3}")) == "needs min_cohort >= 4, the run says 3"


@pytest.mark.parametrize("noise", ["each_full", "split"])
def test_epsilon_is_bounded_for_whoever_sees_most(noise):
    made = plan(f"privacy.noise={noise}")
    seen = [made.privacy.epsilon(ROUNDS, view) for view in VIEWS]
    assert max(seen) > min(seen)
    assert judged(made, largest_epsilon=max(seen)) is None
    said = judged(made, largest_epsilon=0.999 * max(seen))
    assert f"the run comes to {max(seen):.4g} in 5 rounds, for a server, at delta 1e-05" in said
    assert judged(made, ROUNDS + 1, largest_epsilon=max(seen)) is not None


def test_a_runs_own_delta_and_accountant_are_not_believed():
    """With delta near one, or the paper's accountant, any run would have a small epsilon."""
    honest = plan()
    limit = honest.privacy.epsilon(ROUNDS, "server")
    for lie in ({"delta": 0.9}, {"accountant": "paper"}, {"accountant": "paper", "delta": 0.9}):
        lying = replace(honest, noise=replace(honest.noise, **lie))
        assert judged(lying, largest_epsilon=0.99 * limit) is not None
        assert judged(lying, largest_epsilon=limit) is None
    assert judged(honest, largest_epsilon=limit, delta=1e-7) is not None


def test_turns_among_more_clients_than_there_are_buy_nothing():
    """Where clients take turns, epsilon falls with their number, so a coordinator would invent some."""
    cyclic = plan("federation.sampling=cyclic", "privacy.bands=1")
    many = replace(cyclic, clients=10_000)
    assert many.privacy.epsilon(ROUNDS, "server") < cyclic.privacy.epsilon(ROUNDS, "server")
    assert "the consortium's 30 sites" in judged(many, largest_epsilon=100)


def test_noise_of_sums_and_counts_is_asked_for_too():
    made = plan()
    weak = replace(made, sums=(NoisySum("tables", 0.5),))
    assert judged(weak, noise_multiplier=1) == "needs noise_multiplier >= 1, the run says 0.5 for the sum 'tables'"
    counted = plan(
        "privacy={clip: quantile, quantile: {bit_noise_multiplier: 0.8}, noise_multiplier: 2.0, clip_norm: 0.5}"
    )
    assert judged(counted, noise_multiplier=1) == (
        "needs noise_multiplier >= 1, the run says 0.8 for the count of norms"
    )
    assert judged(counted, noise_multiplier=0.8) is None


@pytest.mark.parametrize(
    "lie",
    [
        {"clip_norm": None},
        {"clip_norm": math.nan},
        {"noise": {"multiplier": math.nan}},
        {"noise": {"multiplier": 1e300}},
        {"noise": {"delta": 2.0}},
        {"noise": {"accountant": "none"}},
        {"parameters": {"rule": "none"}},
        {"parameters": {"cohort": 0}},
        {"program": "none"},
        {"sampling": "none"},
        {"clients": 0},
        {"min_cohort": -1},
    ],
    ids=str,
)
def test_a_plan_that_no_settings_make_is_refused_in_one_line(lie):
    honest = plan()
    changes = {k: replace(getattr(honest, k), **v) if isinstance(v, dict) else v for k, v in lie.items()}
    assert judged(replace(honest, **changes), largest_epsilon=100, noise_multiplier=0.1) is not None


def test_noise_that_is_no_number_is_not_enough():
    """Also where no epsilon is asked for, which would find it."""
    honest = plan()
    lying = replace(honest, noise=replace(honest.noise, multiplier=math.nan))
    assert judged(lying, noise_multiplier=0.1) == "needs noise_multiplier >= 0.1, the run says nan"


@pytest.mark.parametrize("rounds", [0, -1])
def test_a_run_has_rounds(rounds):
    assert f"the run says {rounds}" in judged(plan(), rounds)


def test_rules_and_programs_that_there_are_not_cannot_be_asked_for():
    for name in ("rules", "programs"):
        with pytest.raises(ValidationError, match="expected some of"):
            Policy(**ANY, **{name: ["none"]})
