"""`safegnn ledger`: what all runs together spent on the same data."""

from __future__ import annotations

import json

import pytest

from orchestrator.client.ledger import Account, Ledger
from orchestrator.privacy.plan import PrivacyPlan
from tests.cli.commands import assert_refused

PLAN = PrivacyPlan("fixed", 30, 3, 2.0, 1e-3, "rdp")
POISSON = PrivacyPlan("poisson", 30, 3, 2.0, 1e-3, "rdp")


@pytest.fixture
def spend(tmp_path):
    """``spend(run, plan, rounds)``: the file, after so many rounds of a run."""
    path = tmp_path / "ledger.json"

    def spend(run: str, plan: PrivacyPlan, rounds: int):
        ledger = Ledger(path, None, Account(plan, run, "session"), lambda: "0123456789abcdef")
        ledger.hear(1)
        for number in range(2, rounds + 1):
            ledger.take_part(number)
        return str(path)

    return spend


def test_it_says_every_run_and_all_together(safegnn, wide, spend):
    spend("first run", PLAN, 4)
    path = spend("second run", PLAN, 5)
    status, out, err = safegnn("ledger", path, "--delta", "1e-3")
    assert (status, err) == (0, "")
    *_, first, second, total, _, said = out.splitlines()
    assert all(part in first for part in ("first ru", "01234567", " 4 ", " 3 ", f"{PLAN.epsilon(4):.4g}"))
    assert all(part in second for part in ("second r", "01234567", " 5 ", " 4 ", f"{PLAN.epsilon(5):.4g}"))
    assert "all" in total and f"{PLAN.epsilon(9):.4g}" in total and f"{PLAN.epsilon(7, 'server'):.4g}" in total
    assert "composed by one accountant" in said
    document = json.loads(safegnn("ledger", path, "--delta", "1e-3", "--json")[1], parse_constant=pytest.fail)
    assert document["composition"] == "composed" and document["epsilon"]["outsider"] == pytest.approx(PLAN.epsilon(9))
    assert [run["participations"] for run in document["runs"]] == [3, 4]


def test_it_says_where_runs_are_added_up(safegnn, spend):
    spend("first", PLAN, 4)
    path = spend("second", POISSON, 5)
    assert "of both adjacencies, for replace-one, added up" in safegnn("ledger", path)[1]
    assert json.loads(safegnn("ledger", path, "--json")[1])["composition"] == "basic"
    loud = PrivacyPlan("poisson", 30, 3, 1e-3, 1e-3, "rdp")
    assert json.loads(safegnn("ledger", spend("loud", loud, 2), "--json")[1])["epsilon"]["server"] == "inf"


def test_what_is_no_ledger_is_one_line(safegnn, tmp_path):
    assert_refused(safegnn("ledger", "none.json"), 1, "none.json: no such file")
    (tmp_path / "other.json").write_text("{}")
    assert_refused(safegnn("ledger", str(tmp_path / "other.json")), 1, "is no ledger, or damaged")
    assert_refused(safegnn("ledger", "x", "--delta", "1"), 2, "--delta 1: expected a number between 0 and 1")
