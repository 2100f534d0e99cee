"""Whole runs with a client that lies in every way, or fails: it is left out by name, and the run goes on."""

from __future__ import annotations

import multiprocessing
import re
from functools import partial

import pytest

from orchestrator.coordinator.cohorts import sample_cohort
from orchestrator.coordinator.factory import create_engine
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import CohortError
from tests.faulty_clients import LyingEngine
from tests.training_runs import Crash, crash_after

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


def assert_left_out(folder, bad, rounds=10):
    """In every round the bad client is left out, alone and with a reason of that round's lie."""
    records = folder.records()
    assert [record["round"] for record in records] == [*range(1, rounds + 1)]
    for record, reason in zip(records, REASONS, strict=False):
        assert record["clients_left_out"] == 1
        assert record["left_out"][0]["client"] == bad
        assert re.search(reason, record["left_out"][0]["reason"]), record["left_out"]
    rows = (folder.path / "metrics.csv").read_text().splitlines()
    column = rows[0].split(",").index("clients_left_out")
    assert [row.split(",")[column] for row in rows[1:]] == ["1"] * rounds


REASONS = [
    "is not two envelopes of",
    "is not two envelopes of",
    "envelope is damaged",
    "halves for both servers are not of one upload",
    "meant for another client",
    "meant for another round",
    r"^local training: TypeError in faulty_clients\.py, line \d+$",
    "does not fit",
    "is not two envelopes of",
    "envelope is damaged",
]


@pytest.mark.parametrize("preprocessing", ["ot", "dealer"])
def test_one_client_that_sends_garbage_in_every_way_stops_no_round(tiny, tmp_path, preprocessing):
    """Audited: every round is float64's of those who remain. In the middle the run ends, and is resumed."""
    bad, options = 4, f"engine={{name: embedded, preprocessing: {preprocessing}}}"
    config = tiny(tmp_path, "clients.count=8", "federation={rounds: 10, cohort: 8, min_cohort: 7}", options)
    folder = RunFolder.create(config)
    with pytest.raises(Crash):
        train(
            config, folder, audit=True, observe=partial(crash_after, 4), engine=LyingEngine(create_engine(config), bad)
        )
    train(config, folder, resume=True, audit=True, engine=LyingEngine(create_engine(config), bad))
    assert_left_out(folder, bad)
    assert all(record["model_difference"] <= record["model_difference_bound"] for record in folder.records())
    assert multiprocessing.active_children() == []


def test_a_round_with_too_few_clients_ends_the_run_which_goes_on_when_they_come_back(tiny, tmp_path):
    """By default the whole of a small cohort is needed."""
    config = tiny(tmp_path, "federation={rounds: 3, cohort: 3}", "engine.name=embedded")
    folder, honest = RunFolder.create(config), []
    bad = sample_cohort(config.federation, 6, config.seed, 1)[1]
    with pytest.raises(CohortError) as caught:
        train(config, folder, engine=LyingEngine(create_engine(config), bad))
    assert str(caught.value).startswith(f"round 1, phase upload: client {bad}: its upload is not two envelopes of ")
    assert str(caught.value).endswith("; 2 of 3 clients remain, fewer than federation.min_cohort = 3")
    assert folder.records() == []
    train(config, folder, resume=True, observe=lambda result: honest.append(result.left_out))
    assert honest == [{}, {}, {}]


def test_a_client_that_fails_itself_counts_as_one_that_is_missing(tiny, tmp_path):
    """The pool says so before anything is aggregated."""
    config = tiny(tmp_path, "federation={rounds: 8, cohort: 6, min_cohort: 6}", "engine.name=embedded")
    folder = RunFolder.create(config)
    text = r"round 7, phase upload: client 2: local training: TypeError in faulty_clients\.py, .* 5 of 6 clients remain"
    with pytest.raises(CohortError, match=text):
        train(config, folder, engine=LyingEngine(create_engine(config), 2, since=7))
    assert len(folder.records()) == 6


def test_a_poisson_sample_below_min_cohort_ends_the_run_by_name(tiny, tmp_path):
    config = tiny(tmp_path, "federation={rounds: 50, cohort: 3, sampling: poisson, min_cohort: 3}")
    with pytest.raises(CohortError, match=r"cohort: \d were asked; (\d) of \1 clients remain, fewer than .* = 3"):
        train(config, RunFolder.create(config))
