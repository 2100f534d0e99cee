"""The audit: it stays below what is stated where noise is as stated, and contradicts the statement where it is not."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agreement.from_settings import plan_of
from orchestrator.client import sealing
from orchestrator.coordinator import plaintext
from orchestrator.coordinator.factory import create_sum_engine
from orchestrator.coordinator.plaintext import PlaintextEngine
from orchestrator.errors import ConfigError
from orchestrator.experiments.privacy_audit import Finding, _finding, audit, audited_plan, play
from orchestrator.privacy.lower_bound import Rates, composed_epsilon
from orchestrator.privacy.plan import VIEWS, PrivacyPlan

SIGMA = 0.5
CONFIDENCE = 0.999
QUIET = Path(__file__).with_name("quiet_server.py")


@pytest.fixture
def settings(tiny, tmp_path):
    """``settings("federation.sampling=poisson", ...)``: with noise."""
    noise = f"privacy={{clip_norm: 0.5, noise_multiplier: {SIGMA}, delta: 1e-3, sensitivity: bounded_weights}}"
    shape = (
        "method.name=fedavg",
        "clients.count=200",
        "federation.cohort=100",
        "method.stateful=false",
        "engine.preprocessing=dealer",
    )
    return lambda *overrides: tiny(tmp_path, noise, *shape, *overrides)


def quiet(factor: float, *servers: int) -> dict[str, list[str]]:
    return {f"server {k}": [sys.executable, str(QUIET), str(factor)] for k in servers}


@pytest.mark.parametrize("sampling", ["distinct", "poisson", "cyclic"])
@pytest.mark.parametrize(
    ("method", "sensitivity"),
    [
        ("fedavg", "worst_case"),
        ("fedavg", "bounded_weights"),
        ("f2gnn", "bounded_weights"),
        ("fairdual", "bounded_weights"),
    ],
)
def test_a_canary_is_as_bad_as_the_sensitivity_allows(settings, monkeypatch, method, sampling, sensitivity):
    """So that of every rule and sampler the audit sees half the noise; of the simulation, which is fast."""
    config = settings(f"method.name={method}", f"federation.sampling={sampling}", f"privacy.sensitivity={sensitivity}")
    plan = audited_plan(plan_of(config))
    attained = 0.5 if (sampling, sensitivity) == ("poisson", "worst_case") else 1.0  # there it allows for two clients
    mu = 1 / (2**0.5 * SIGMA)
    for factor in (1.0, 0.5):
        draw = plaintext._noise
        with monkeypatch.context() as patch:
            patch.setattr(plaintext, "_noise", lambda stddev, count, f=factor, draw=draw: draw(f * stddev, count))
            found = play(PlaintextEngine(plan), 600, CONFIDENCE).mu
        assert attained * mu / factor - 1.2 < found < attained * mu / factor
        assert (found > mu) == (factor / attained < 1)


def test_half_the_noise_contradicts_what_is_stated_to_outsiders(settings):
    plan = plan_of(settings("engine.name=embedded"))
    engine = create_sum_engine(audited_plan(plan), settings().engine, quiet(0.5, 0, 1))
    assert play(engine, 512, CONFIDENCE).mu * plan.privacy.release().noise_multiplier > 1


def test_noise_that_one_server_forgets_contradicts_what_is_stated_to_the_other_one(settings):
    plan, chosen = plan_of(settings("engine.name=embedded", "privacy.noise_multiplier=2")), settings().engine
    findings = audit(plan, chosen, 4, 128, CONFIDENCE, quiet(0.0, 1))
    assert [name for name, found in findings.items() if found.refuted] == ["server 0"]
    found = findings["server 0"]
    assert (found.rates.hits, found.rates.alarms) == (64, 0) and found.rates.mu * found.multiplier > 2
    assert found.round_found > found.round and found.run_found > found.run


def test_half_of_the_noise_that_clients_add_contradicts_what_is_stated_to_servers(settings, monkeypatch):
    chosen, draw = settings("engine.name=embedded").engine, sealing.noise_ring64
    plan = audited_plan(plan_of(settings("engine.name=embedded", "privacy.noise=clients")))
    assert plan.noise.honest == plan.rule.cohort == 64
    stated = plan.privacy.release("server").noise_multiplier
    for factor in (1.0, 0.5):
        monkeypatch.setattr(sealing, "noise_ring64", lambda count, sd, bits, f=factor: draw(count, f * sd, bits))
        found = play(create_sum_engine(plan, chosen), 512, CONFIDENCE).mu
        assert (found * stated > 1) == (factor < 1) and found > 0.3 / stated


def test_where_clients_take_turns_a_run_is_a_clients_turns_and_the_canary_is_in_each():
    plan, rates = PrivacyPlan("cyclic", 10, 5, SIGMA, 1e-3), Rates(90, 100, 10, 100, CONFIDENCE)
    found = [_finding(plan, plan, rates, 6, view).run_found for view in VIEWS]
    assert found == [composed_epsilon(rates, 3, 1.0, 1e-3)] * 3


def test_what_is_found_of_a_round_or_a_run_refutes_it_too():
    below = Finding(Rates(50, 100, 50, 100), 1.0, 2.0, 1.9, 5.0, 4.9)
    assert not below.refuted and replace(below, round_found=2.1).refuted and replace(below, run_found=5.1).refuted


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (("privacy.noise_multiplier=0",), "privacy.noise_multiplier is 0"),
        (("privacy.accountant=null",), r"none was asked for \(privacy.accountant\)"),
        (("federation.sampling=with_replacement", "privacy.sensitivity=worst_case"), "no accountant is valid for"),
    ],
)
def test_where_nothing_is_stated_there_is_nothing_to_audit(settings, overrides, reason):
    with pytest.raises(ConfigError, match=f"^there is no epsilon to audit: {reason}"):
        audited_plan(plan_of(settings(*overrides)))


def test_a_method_that_aggregates_nothing_has_nothing_to_audit(settings):
    with pytest.raises(ConfigError, match=r"^there is no epsilon to audit: the method aggregates nothing"):
        audited_plan(replace(plan_of(settings()), parameters=None))


def test_a_clip_bound_for_large_cohorts_is_lowered_to_where_the_noise_of_small_ones_fits(settings):
    plan = plan_of(settings("privacy.noise_multiplier=9", "privacy.clip_norm=20", "method.name=f2gnn"))
    audited = audited_plan(plan)
    assert audited.terms.noise_stddev * 10 < plan.vectors.limit and audited.clip_norm < plan.clip_norm == 20
    assert audited.privacy.release() == replace(plan.privacy, cohort=2).release()
