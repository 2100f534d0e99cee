"""The summary of a run, from records as the round loop writes them."""

from __future__ import annotations

import json

import pytest

from orchestrator.coordinator.engine import RoundCost
from orchestrator.coordinator.round_result import RoundResult
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.errors import RunError
from orchestrator.evaluation.figures import Evaluation
from orchestrator.reports.run import draw_run, summarise_run


@pytest.fixture
def folder(tiny, tmp_path):
    return RunFolder.create(tiny(tmp_path), "run")


def put(folder: RunFolder, aucs: list[float | None]) -> None:
    for round, auc in enumerate(aucs, 1):
        undefined = {} if auc is not None else {"auc": "all labels are 1"}
        values = {"accuracy": 0.5 + round / 100, "auc": auc, "delta_sp": 0.1, "delta_eo": None}
        gaps = {"delta_sp": {"low": 0.0, "high": 0.3, "n_s0": 16, "n_s1": 14}}
        val = Evaluation(values, gaps, {"nodes": 30}, {**undefined, "delta_eo": "no positives"})
        values = {"accuracy": 0.25, "auc": 0.75, "delta_sp": 0.2, "delta_eo": 0.3}
        test = Evaluation(values, gaps, {"nodes": 29})
        cost = RoundCost(0.01 * round, (100, 200), 32, 0.5, (3, 4), 0.25, 1000, 2000, 0.125)
        result = RoundResult(round, [1, 2], None, {"val": val, "test": test}, 2.0 * round, cost)
        folder.append(result.record(), result.costs())


def test_the_summary_says_the_last_round_the_means_and_the_median_costs(folder):
    aucs = [k / 100 for k in range(1, 26)]
    put(folder, aucs)
    draw_run(folder, "title")
    summary = summarise_run(folder)
    assert summary["run"] == str(folder.path) and summary["rounds"] == 25
    assert summary["validation"] == {"accuracy": 0.75, "auc": 0.25, "delta_sp": 0.1, "delta_eo": None}
    assert summary["validation_ma20"]["auc"] == pytest.approx(sum(aucs[-20:]) / 20)
    assert summary["test"] == {"accuracy": 0.25, "auc": 0.75, "delta_sp": 0.2, "delta_eo": 0.3}
    assert summary["costs"] == {
        "training_seconds": 26.0,
        "online_seconds": 0.13,
        "online_bytes_server0": 100,
        "online_bytes_server1": 200,
        "online_rounds": 32,
        "preprocessing_seconds": 0.5,
        "preprocessing_bytes_server0": 3,
        "preprocessing_bytes_server1": 4,
        "preprocessing_wait_seconds": 0.25,
        "startup_seconds": 0.125,
        "upload_bytes_per_client": 1000,
        "download_bytes_per_client": 2000,
    }
    for name in ("curves.png", "costs.png"):
        assert (folder.path / name).read_bytes().startswith(b"\x89PNG")


def test_undefined_metrics_are_null_with_their_reason(folder):
    put(folder, [0.5, 0.5, None])
    summary = json.loads(json.dumps(summarise_run(folder), allow_nan=False))
    assert summary["validation"]["auc"] is None and summary["validation_ma20"]["auc"] == 0.5
    assert summary["validation"]["delta_eo"] is None and summary["validation_ma20"]["delta_eo"] is None
    reasons = {"auc": "all labels are 1", "delta_eo": "no positives"}
    assert summary["undefined"] == {"validation": reasons, "test": {}}
    assert summary["gaps"]["test"]["delta_sp"] == {"low": 0.0, "high": 0.3, "n_s0": 16, "n_s1": 14}
    assert summary["counts"] == {"validation": {"nodes": 30}, "test": {"nodes": 29}}


def test_a_single_round_is_enough_and_no_mean_of_rounds(folder):
    put(folder, [0.5])
    summary = summarise_run(folder)
    assert summary["validation"]["auc"] == 0.5
    assert summary["validation_ma20"] == dict.fromkeys(("accuracy", "auc", "delta_sp", "delta_eo"))


@pytest.mark.parametrize("missing", ["metrics.jsonl", "costs.csv"])
def test_a_run_without_a_round_has_no_report(folder, missing):
    put(folder, [0.5])
    (folder.path / missing).unlink()
    with pytest.raises(RunError) as caught:
        summarise_run(folder)
    assert str(caught.value) == f"{folder.path}: no round was completed"
