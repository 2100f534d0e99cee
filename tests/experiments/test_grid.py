"""The loop over settings and seeds: which runs there are, in which order, on which graphs; what is refused before."""

from __future__ import annotations

import pytest

from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.errors import ConfigError, DataError
from orchestrator.experiments import grid
from orchestrator.experiments.grid import GridPlan, run_grid
from orchestrator.graphs import load_graph
from tests.class_graphs import class_graph

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
