"""Runs that are killed between any two steps: nothing is released that is not paid for, nothing recorded twice.

One run is watched. After each of its steps its folder is copied as it lies on the disk, which is all that a kill
leaves; every copy is then resumed.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from orchestrator.coordinator.factory import create_engine
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import BusyError, RunError
from orchestrator.files import read_arrays
from orchestrator.models.trained import load_model
from orchestrator.privacy.plan import PrivacyPlan
from orchestrator.reports.run import privacy_report
from tests.training_runs import Crash, crash_after

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")

ROUNDS = 2
PLAN = PrivacyPlan("fixed", 6, 3, 2.0, 1e-3, amplified=False)


def counting(config, released: list[int]):
    """An engine that says which rounds it releases."""
    engine = create_engine(config)
    aggregate = engine.aggregate

    def release(number, cohort):
        released.append(number)
        return aggregate(number, cohort)

    engine.aggregate = release
    return engine


@pytest.fixture(scope="module")
def watched(tiny, tmp_path_factory):
    """Configuration, what happened in order, and after each step what the folder held and what had been released."""
    base = tmp_path_factory.mktemp("killed")
    config = tiny(
        base,
        f"federation.rounds={ROUNDS}",
        "privacy={clip_norm: 0.5, noise_multiplier: 2, delta: 1e-3}",
        "engine.client_processes=1",
    )
    folder, released, steps, events = RunFolder.create(config, "run"), [], [], []

    def step(event: str) -> None:
        events.append(event)
        copy = base / f"copy-{len(steps)}"
        shutil.copytree(folder.path, copy)
        steps.append((event, copy, list(released)))

    replace, fsync, append = os.replace, os.fsync, RunFolder._append_text
    with pytest.MonkeyPatch.context() as patch:

        def watch_replace(source, target):
            replace(source, target)
            step(f"replaced {Path(target).name}")

        def watch_append(self, name, text):
            append(self, name, text)
            step(f"appended {name}")

        def watch_fsync(descriptor):
            events.append("flushed")
            fsync(descriptor)

        engine = counting(config, released)
        aggregate = engine.aggregate

        def watch_release(number, cohort):
            result = aggregate(number, cohort)
            step(f"released {number}")
            return result

        engine.aggregate = watch_release
        patch.setattr(os, "replace", watch_replace)
        patch.setattr(os, "fsync", watch_fsync)
        patch.setattr(RunFolder, "_append_text", watch_append)
        train(config, folder, engine=engine)
    return config, events, steps


def test_a_round_is_charged_then_released_then_recorded_then_kept(watched):
    _, events, _ = watched
    told = [event for event in events if event != "flushed"]
    assert told[:3] == ["replaced .lock-holder", "replaced inputs.json", "replaced secret.key"]
    assert told[-1] == "replaced model.pt"
    appended = [f"appended {name}" for name in ("metrics.jsonl", "metrics.csv", "costs.csv")]
    rounds = [
        ["replaced privacy.json", f"released {number}", *appended, "replaced state.npz"]
        for number in range(1, ROUNDS + 1)
    ]
    assert told[3:-1] == [event for one in rounds for event in one]
    for place, event in enumerate(events):
        if event.startswith("released"):  # the file before it got its name, the name after that
            assert events[place - 3 : place] == ["flushed", "replaced privacy.json", "flushed"]


def test_whatever_a_kill_leaves_goes_on_to_the_same_run_and_pays_for_every_release(watched):
    config, _, steps = watched
    assert len(steps) == 4 + 6 * ROUNDS
    for event, copy, before in steps:
        folder, released = RunFolder(copy), list(before)
        train(config, folder, resume=True, engine=counting(config, released))
        assert [row["round"] for row in folder.records()] == [*range(1, ROUNDS + 1)], event
        assert [row["round"] for row in folder.costs()] == [*range(1, ROUNDS + 1)], event
        with open(copy / "metrics.csv", newline="") as file:
            assert [row["round"] for row in csv.DictReader(file)] == [str(k) for k in range(1, ROUNDS + 1)], event
        times = Counter(released)
        charged = json.loads((copy / "checkpoint" / "privacy.json").read_text())["attempts"]
        assert all(charged[number - 1] >= times[number] >= 1 for number in range(1, ROUNDS + 1)), event
        spent = PLAN.new_accountant()
        for count in times.values():
            spent.compose(PLAN.release(attempts=count))
        stated = privacy_report(folder, config)["epsilon"]
        assert stated >= spent.epsilon(PLAN.delta) * (1 - 1e-9), event
        assert folder.records()[-1]["epsilon"] == stated, event
        kept = read_arrays(copy / "checkpoint" / "state.npz")
        assert kept["round"] == ROUNDS and (load_model(copy / "model.pt").parameters == kept["parameters"]).all(), event


def test_rounds_that_no_checkpoint_kept_are_all_paid_for_again(tiny, tmp_path):
    config = tiny(
        tmp_path,
        "federation.rounds=3",
        "privacy={clip_norm: 0.5, noise_multiplier: 2, delta: 1e-3}",
        "run.checkpoint_rounds=9",
    )
    folder = RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, folder, observe=partial(crash_after, 2))
    train(config, folder, resume=True)
    assert folder.load_privacy()["attempts"] == [2, 2, 1]
    paid = PLAN.new_accountant().compose(PLAN.release(attempts=2), 2).compose(PLAN.release())
    assert privacy_report(folder, config)["epsilon"] == pytest.approx(paid.epsilon(PLAN.delta), rel=1e-9)
    assert [row["round"] for row in folder.records()] == [1, 2, 3]


def test_a_run_is_not_resumed_while_it_runs(tiny, tmp_path):
    """And what was refused has changed nothing."""
    config, refused = tiny(tmp_path), []
    folder = RunFolder.create(config)

    def resume(result):
        before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
        with pytest.raises(BusyError, match=rf"process {os.getpid()} on .* is writing to it") as caught:
            train(config, RunFolder(folder.path), resume=True)
        refused.append(str(caught.value))
        assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before

    train(config, folder, observe=resume)
    assert len(refused) == 2 and "\n" not in refused[0]
    assert [row["round"] for row in folder.records()] == [1, 2]


def test_a_run_whose_place_was_taken_stops_before_it_releases_more(tiny, tmp_path):
    config, released = tiny(tmp_path, "privacy={clip_norm: 0.5, noise_multiplier: 2, delta: 1e-3}"), []
    folder = RunFolder.create(config)

    def take_over(result):
        (folder.path / ".lock-holder").write_text('{"pid": 7, "host": "b", "since": "2026-01-02T03:04:05+00:00"}')

    with pytest.raises(BusyError, match=r"process 7 on b, since .* has taken its place"):
        train(config, folder, observe=take_over, engine=counting(config, released))
    assert released == [1] == folder.load_privacy()["attempts"]


def test_a_folder_that_holds_rounds_is_not_begun_again(tiny, tmp_path):
    config = tiny(tmp_path, "run.checkpoint_rounds=9")
    folder = RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, folder, observe=partial(crash_after, 1))
    with pytest.raises(RunError, match="holds rounds of a run already; resume it, or take another folder"):
        train(config, folder)
    assert [row["round"] for row in folder.records()] == [1]
