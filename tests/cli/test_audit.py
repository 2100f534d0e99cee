"""`safegnn audit`: what is stated beside what canaries prove, through live servers."""

from __future__ import annotations

import json

import pytest

from orchestrator.experiments import one_run_audit, privacy_audit
from orchestrator.privacy.lower_bound import Guesses, Rates
from orchestrator.privacy.plan import PrivacyPlan
from tests.cli.commands import assert_refused

PLAN = PrivacyPlan("fixed", 200, 100, 0.5, 1e-3)
SETTINGS = (
    "method={name: fedavg, stateful: false}",
    "clients.count=200",
    "federation={cohort: 100, rounds: 4}",
    "privacy={clip_norm: 0.5, noise_multiplier: 0.5, delta: 1e-3, sensitivity: bounded_weights}",
    "engine.preprocessing=dealer",
)
AUDIT = ["audit", *(part for setting in SETTINGS for part in ("--set", setting))]


def test_what_is_found_stays_below_what_is_stated_to_every_observer(safegnn):
    status, out, err = safegnn(*AUDIT, "--trials", "512", "--confidence", "0.999", "--json")
    document = json.loads(out, parse_constant=pytest.fail)
    assert (status, err, document["refuted"]) == (0, "", [])
    views = {"outsider": "outsider", "another client": "client", "server 0": "server", "server 1": "server"}
    assert document["observers"].keys() == views.keys()
    for name, view in views.items():
        found = document["observers"][name]
        assert found["epsilon"]["stated"] == PLAN.epsilon(4, view) > found["epsilon"]["at_least"] > 0
        assert 0 < found["epsilon_of_a_round"]["at_least"] < found["epsilon_of_a_round"]["stated"]
        sigma = found["noise_multiplier"]
        assert sigma["stated"] == PLAN.release(view).noise_multiplier
        assert sigma["stated"] < sigma["at_most"] < 3.5 * sigma["stated"]
        assert found["hits"][1] == found["alarms"][1] == 256 and not found["refuted"]


@pytest.fixture
def found(monkeypatch):
    """``found(mu_by_observer)``: an attack of that success, without servers."""

    def set_rates(rates: Rates) -> None:
        def audit(*_):
            return {
                "outsider": privacy_audit.Finding(Rates(60, 100, 40, 100), 1.4, 2.9, 0.01, 4.0, 1.7),
                "server 0": privacy_audit.Finding(rates, 1.0, 4.5, 0.3, float("inf"), 9.9),
            }

        monkeypatch.setattr(privacy_audit, "audit", audit)

    return set_rates


def test_a_line_an_observer(safegnn, found):
    found(Rates(50, 100, 50, 100))
    status, out, err = safegnn(*AUDIT)
    assert (status, err) == (0, "")
    assert "outsider: epsilon of the run stated 4, audited at least 1.7; of a round stated 2.9, audited at least" in out
    assert "server 0: epsilon of the run stated inf, audited at least 9.9" in out
    assert "noise multiplier stated 1, audited whatever it is" in out
    document = json.loads(safegnn(*AUDIT, "--json")[1], parse_constant=pytest.fail)
    assert document["observers"]["server 0"]["epsilon"]["stated"] is None


def test_a_statement_that_is_refuted_ends_in_one_line(safegnn, found):
    found(Rates(100, 100, 0, 100))
    status, out, err = safegnn(*AUDIT)
    assert status == 1 and "audited at most 0." in out
    assert err == "safegnn: the privacy statement is refuted for server 0: more was found than is stated\n"


def test_where_nothing_is_stated_the_command_says_so(safegnn):
    assert_refused(safegnn("audit"), 2, "there is no epsilon to audit: privacy.noise_multiplier is 0")


@pytest.fixture
def heard(monkeypatch):
    """``heard(surprise)``: what a run of that many canaries says, without servers."""

    def set_heard(surprise: float) -> None:
        found = one_run_audit.Heard(4.0, 1.25, Guesses(640, 64, 55), 0.998, -0.02, surprise, 5.3)
        unbounded = one_run_audit.Heard(float("inf"), 0.0, Guesses(640, 64, 32), 1.0, 0.01, 1.0, 5.3)
        monkeypatch.setattr(one_run_audit, "audit_one_run", lambda *_: {"outsider": unbounded, "server 0": found})

    return set_heard


def test_one_run_says_what_was_guessed_and_what_the_noise_is(safegnn, heard):
    heard(2.0)
    status, out, err = safegnn(*AUDIT, "--one-run")
    assert (status, err) == (0, "")
    assert (
        "server 0: epsilon of 2 rounds in which the client takes part stated 4, audited at least 1.25: 55 of 64" in out
    )
    assert "of 640 canaries; fresh noise is 0.998 times as large as stated, its largest correlation -0.02" in out
    document = json.loads(safegnn(*AUDIT, "--one-run", "--json")[1], parse_constant=pytest.fail)
    assert (document["turns"], document["bands"], document["refuted"]) == (2, 1, [])
    assert document["observers"]["server 0"]["guesses"] == [55, 64]
    assert document["observers"]["outsider"]["epsilon"]["stated"] is None


def test_other_noise_than_is_stated_ends_in_one_line(safegnn, heard):
    heard(6.0)
    status, _, err = safegnn(*AUDIT, "--one-run")
    assert status == 1
    assert err == "safegnn: the privacy statement is refuted for server 0: more was found, or other noise\n"
