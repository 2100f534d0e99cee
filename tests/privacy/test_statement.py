"""What `safegnn account` says: its document, its table, and the noise that it finds for a target."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from orchestrator.errors import ConfigError
from orchestrator.privacy.plan import VIEWS, PrivacyPlan
from orchestrator.privacy.statement import account, calibrate, table

PLAN = PrivacyPlan("fixed", 30, 3, 1.341, 1e-3)


def test_the_document_names_everything_that_its_figures_depend_on():
    document = account(PLAN, 500)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["epsilon"] == document["views"]["outsider"] == PLAN.epsilon(500)
    assert document["epsilon_per_round"] == PLAN.epsilon(1)
    assert document["views"] == {view: PLAN.epsilon(500, view) for view in VIEWS}
    assert (document["adjacency"], document["accountant"], document["delta"]) == ("replace-one", "tightest", 1e-3)
    assert "smaller" in document["conversion"] and "warning" not in document


def test_the_papers_accounting_comes_with_a_warning_and_without_other_views():
    document = account(replace(PLAN, accountant="paper", noise="split"), 500)
    assert document["epsilon"] == pytest.approx(9.43, abs=0.005)
    assert document["views"] == {"outsider": document["epsilon"], "client": None, "server": None}
    assert document["adjacency"] == "add/remove" and document["warning"].startswith("comparison only")


def test_infinity_is_text_that_json_can_hold():
    document = account(replace(PLAN, noise_multiplier=0.0), 500)
    assert document["epsilon"] == document["epsilon_per_round"] == document["views"]["server"] == "inf"
    assert float(document["epsilon"]) == float("inf")


@pytest.mark.parametrize(
    ("rounds", "steps"), [(1, [1]), (2, [1, 2]), (10, [1, 2, 5, 10]), (120, [1, 2, 5, 10, 20, 50, 100, 120])]
)
def test_the_table_ends_with_the_last_round(rounds, steps):
    rows = table(PLAN, rounds)
    assert [done for done, _ in rows] == steps
    assert rows[-1][1] == {view: PLAN.epsilon(rounds, view) for view in VIEWS}


@pytest.mark.parametrize("sampler", ["fixed", "poisson"])
@pytest.mark.parametrize("target", [0.5, 4.0, 300.0])
def test_calibrated_noise_keeps_the_target_and_is_not_much_more_than_needed(sampler, target):
    plan = calibrate(replace(PLAN, sampler=sampler), 500, target)
    assert 0.999 * target < plan.epsilon(500) <= target
    assert plan == replace(PLAN, sampler=sampler, noise_multiplier=plan.noise_multiplier)
    assert float(f"{plan.noise_multiplier:.6g}") == plan.noise_multiplier


def test_calibration_inverts_accounting():
    assert calibrate(PLAN, 500, PLAN.epsilon(500)).noise_multiplier == pytest.approx(1.341, rel=1e-4)


@pytest.mark.parametrize("target", [0.0, -1.0, float("nan"), float("inf")])
def test_a_target_that_is_none_is_refused(target):
    with pytest.raises(ConfigError, match=r"target epsilon .*: expected a number above 0"):
        calibrate(PLAN, 500, target)
