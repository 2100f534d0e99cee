"""Runs of several settings and seeds: all of them in their order, and gone on with where they were broken off."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import pytest

from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.errors import BusyError, ConfigError, DataError, RunError
from orchestrator.experiments import grid
from orchestrator.experiments.grid import GridPlan, run_grid
from orchestrator.graphs import load_graph
from orchestrator.locks import FolderLock
from tests.class_graphs import class_graph
from tests.training_runs import Crash

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    """Three settings with two seeds, of which one has data of its own; and the graphs that were loaded for them."""
    common = tiny(tmp_path_factory.mktemp("grid"), "seed=5", "federation.rounds=1")
    settings = {
        "slow": common.changed(method={"learning_rate": 1e-3}),
        "C = 2": common.changed(privacy={"clip_norm": 2.0}),
        "small": common.changed(data={"synthetic": {"nodes": 100}}),
    }
    loaded, seen = [], []

    def load(data, seed):
        loaded.append((data.synthetic.nodes, seed))
        return load_graph(data, seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "load_graph", load)
        result = run_grid(
            GridPlan("settings", common, settings, 2),
            "all",
            observe=lambda name, seed, round: seen.append((name, seed, round.round)),
        )
    return common, settings, result, seen, loaded


def test_every_setting_runs_with_every_seed(trained):
    common, settings, result, seen, _ = trained
    assert seen == [(name, seed, 1) for seed in (5, 6) for name in settings]
    assert result.folder == common.run.dir / "all"
    assert RunFolder.open(result.folder)[1] == common
    for name, stem in (("slow", "slow"), ("C = 2", "C-2"), ("small", "small")):
        assert list(result.records[name]) == [5, 6]
        assert result.runs(name) == [result.records[name][seed] for seed in (5, 6)]
        for seed in (5, 6):
            folder, own = RunFolder.open(result.folder / f"{stem}-seed-{seed}")
            assert own == settings[name].changed(seed=seed, run={"dir": result.folder})
            assert folder.records() == result.records[name][seed] and len(folder.records()) == 1
    assert result.records["slow"][5] != result.records["slow"][6]


def test_a_graph_is_loaded_once_for_all_settings_that_share_data_and_seed(trained):
    assert sorted(trained[4]) == [(100, 5), (100, 6), (120, 5), (120, 6)]


def test_without_seeds_there_is_one_run_each_named_after_its_setting(tiny, tmp_path):
    common = tiny(tmp_path, "federation.rounds=1")
    result = run_grid(GridPlan("engines", common, {"first": common, "second": common}), "both", audit=True)
    assert {path.name for path in result.folder.iterdir() if path.is_dir()} == {"first", "second", "checkpoint"}
    assert result.records["first"] == result.records["second"] and list(result.records["first"]) == [common.seed]
    assert result.runs("first")[0][0]["model_difference"] is not None  # audited


def test_an_engine_at_fault_ends_it_before_anything_is_trained(tiny, tmp_path, monkeypatch):
    monkeypatch.delenv("MPSPDZ_HOME", raising=False)
    common = tiny(tmp_path)
    broken = common.changed(engine={"name": "mpspdz", "mpspdz_home": tmp_path / "nowhere"})
    with pytest.raises(ConfigError, match="MP-SPDZ: no installation"):
        run_grid(GridPlan("settings", common, {"sound": common, "broken": broken}, 1), "none")
    assert not list(tmp_path.iterdir())


def test_a_network_that_does_not_fit_the_data_ends_it_before_anything_is_trained(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "load_graph", lambda data, seed: class_graph())
    monkeypatch.setattr(grid, "run", None)
    common = tiny(tmp_path)
    fits = common.changed(method={"name": "fedavg"}, model={"name": "gcn-classifier"})
    with pytest.raises(ConfigError, match="gcn has one logit, but the data have 3 classes"):
        run_grid(GridPlan("settings", common, {"fits": fits, "not": common}), "grid")
    assert list(tmp_path.iterdir()) == []


def test_data_that_are_missing_leave_no_folder(tiny, tmp_path):
    common = tiny(tmp_path, "data.name=nba", f"data.dir='{tmp_path / 'nowhere'}'")
    with pytest.raises(DataError):
        run_grid(GridPlan("settings", common, {"only": common}, 1), "none")
    assert not list(tmp_path.iterdir())


# Going on


@pytest.fixture(scope="module")
def broken_off(tiny, tmp_path_factory):
    """A plan of two settings and two seeds, its whole grid, and a folder in which it ended within the third run."""
    common = tiny(tmp_path_factory.mktemp("broken"), "seed=5", "federation.rounds=2", "engine.client_processes=1")
    settings = {"slow": common.changed(method={"learning_rate": 1e-3}), "fast": common}
    plan, folders = GridPlan("settings", common, settings, 2), []

    def crash(name, seed, result):
        if (name, seed, result.round) == ("slow", 6, 1):
            raise Crash

    with pytest.raises(Crash):
        run_grid(plan, "broken", observe=crash, started=folders.append)
    return plan, run_grid(plan, "whole"), folders[0]


@pytest.fixture
def copied(broken_off, tmp_path):
    return shutil.copytree(broken_off[2], tmp_path / "elsewhere")


def test_what_ended_is_kept_what_was_interrupted_goes_on_and_the_others_follow(broken_off, copied):
    plan, whole, _ = broken_off
    (copied / "fast-seed-6").mkdir()  # as a kill leaves it that comes before anything is written in it
    ended = copied / "fast-seed-5" / "metrics.jsonl"
    before, seen, told = ended.stat().st_mtime_ns, [], []
    assert GridPlan.load(copied) == plan and plan.completed(copied) == 5 and plan.rounds == 8
    watch = lambda name, seed, result: seen.append((name, seed, result.round))  # noqa: E731
    result = run_grid(plan, "unused", resume=copied, observe=watch, announce=told.append)
    assert seen == [("slow", 6, 2), ("fast", 6, 1), ("fast", 6, 2)] and told == []
    assert result.records == whole.records and result.folder == copied
    assert ended.stat().st_mtime_ns == before
    assert run_grid(plan, "unused", resume=copied, observe=watch).records == whole.records and len(seen) == 3


def test_one_that_is_gone_on_with_elsewhere_is_refused(broken_off, copied):
    with FolderLock(copied), pytest.raises(BusyError, match=f"{copied}: process {os.getpid()} on "):
        run_grid(broken_off[0], "unused", resume=copied)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plan: replace(plan, seeds=3), "is of other runs: settings, slow, fast"),
        (lambda plan: replace(plan, kind="methods"), "is of other runs: settings, slow, fast"),
        (
            lambda plan: replace(plan, settings={**plan.settings, "fast": plan.settings["slow"]}),
            "fast: method.learning_rate = 0.001, was 0.01",
        ),
    ],
)
def test_another_plan_does_not_go_on_in_its_folder(broken_off, copied, change, message):
    with pytest.raises(RunError, match=message):
        run_grid(change(broken_off[0]), "unused", resume=copied)


@pytest.mark.parametrize("file", ["config.yaml", "plan.json"])
@pytest.mark.parametrize("text", ["", "[]", '{"settings": {"a": {"seed": -1}}, "seeds": 1, "kind": "x"}', "seed: 7"])
def test_a_folder_whose_plan_was_changed_or_damaged_is_one_line(broken_off, copied, file, text):
    (copied / file).write_text(text)
    with pytest.raises((RunError, ConfigError)) as caught:
        GridPlan.load(copied)
    assert str(copied) in str(caught.value) and "\n" not in str(caught.value)


def test_a_run_is_no_grid(broken_off):
    with pytest.raises(RunError, match=r"cannot be gone on with; it holds no plan\.json"):
        GridPlan.load(broken_off[2] / "slow-seed-5")
