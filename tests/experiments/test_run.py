"""One run with all that its settings ask for."""

from __future__ import annotations

import json
import sys

import pytest

from orchestrator.api import Run
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.errors import ConfigError, DataError
from orchestrator.experiments.run import check, run

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")

BY_CLIENTS = (
    "evaluation.where=clients",
    "method.name=fedpub",
    "model.name=gcn-classifier",
    "clients={count: 4, partition: disjoint}",
)


def trained(config, **options) -> RunFolder:
    engine, graph = check(config)
    folder = RunFolder.create(config)
    run(config, folder, graph=graph, engine=engine, **options)
    return folder


def test_the_summary_of_a_run_is_plain_json(tiny, tmp_path):
    seen = []
    config = tiny(tmp_path, "privacy={clip_norm: 0.5, noise_multiplier: 2}")
    folder = trained(config, observe=seen.append)
    run_ = Run.load(folder.path)
    run_.figures()
    document = json.loads(json.dumps(run_.summary(), allow_nan=False))
    assert [result.round for result in seen] == [1, 2] and document["rounds"] == 2
    assert document["validation"] == {name: folder.records()[-1]["val"][name] for name in document["test"]}
    assert document["privacy"]["simulated"] and document["privacy"]["epsilon"] == seen[-1].epsilon
    assert {"curves.png", "costs.png"} <= {path.name for path in folder.path.iterdir()}
    assert not (folder.path / "tensorboard").exists() and not (folder.path / "similarity.png").exists()


def test_who_resembles_whom_is_drawn_where_the_run_knows_it(tiny, tmp_path):
    assert (trained(tiny(tmp_path, *BY_CLIENTS)).path / "similarity.png").exists()


def test_tensorboard_logs_are_written_where_asked_for(tiny, tmp_path):
    pytest.importorskip("torch.utils.tensorboard", reason="the extra 'tensorboard' is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seen = []
    folder = trained(tiny(tmp_path, "run.tensorboard=true"), observe=seen.append)
    logs = EventAccumulator(str(folder.path / "tensorboard")).Reload()
    assert [event.step for event in logs.Scalars("val/accuracy")] == [result.round for result in seen] == [1, 2]


def test_tensorboard_without_its_library_is_a_setting_at_fault(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"run\.tensorboard: install"):
        trained(tiny(tmp_path, "run.tensorboard=true"))


def test_settings_and_data_at_fault_are_refused_before_there_is_a_folder(tiny, tmp_path):
    for overrides, error in (
        (("data.name=nba", f"data.dir='{tmp_path / 'nowhere'}'"), DataError),
        (("clients={partition: disjoint, count: 100}", "federation.cohort=100"), DataError),
        (("engine={name: mpspdz, mpspdz_home: nowhere}",), ConfigError),
    ):
        with pytest.raises(error):
            check(tiny(tmp_path, *overrides))
    assert not list(tmp_path.iterdir())
