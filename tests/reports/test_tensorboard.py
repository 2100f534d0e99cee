"""TensorBoard logs, read back by its own reader."""

from __future__ import annotations

import pytest

from orchestrator.coordinator.engine import RoundCost
from orchestrator.coordinator.round_result import RoundResult
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.evaluation.figures import Evaluation
from orchestrator.reports.tensorboard import tensorboard_observer


def test_every_round_is_logged_and_what_is_undefined_is_left_out(tiny, tmp_path):
    pytest.importorskip("torch.utils.tensorboard", reason="the extra 'tensorboard' is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = RunFolder.create(tiny(tmp_path))
    observe = tensorboard_observer(folder)
    for round in (1, 2):
        auc = 0.75 if round == 2 else None
        undefined = {} if auc else {"auc": "all labels are 1"}
        metrics = {"accuracy": 0.5, "auc": auc, "delta_sp": 0.25, "delta_eo": 0.125}
        evaluation = Evaluation(metrics, {"delta_sp": {"low": 0.0}}, {"nodes": 30}, undefined)
        cost = RoundCost(2.0 * round, (100, 200), 32, 0.5, (3, 4), 0.25, 1000, 2000, 0.125)
        observe(RoundResult(round, [1], None, {"val": evaluation}, 1.5, cost))
    logs = EventAccumulator(str(folder.path / "tensorboard")).Reload()

    def logged(name):
        return [(event.step, event.value) for event in logs.Scalars(name)]

    assert logged("val/accuracy") == [(1, 0.5), (2, 0.5)] and logged("val/auc") == [(2, 0.75)]
    assert logged("cost/online_seconds") == [(1, 2.0), (2, 4.0)]
    assert "val/gaps" not in logs.Tags()["scalars"] and "val/counts" not in logs.Tags()["scalars"]
