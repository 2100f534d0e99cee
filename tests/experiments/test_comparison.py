"""Two engines, one seed: how far they part, and that too far is an error."""

from __future__ import annotations

import csv
import json
import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from orchestrator.config import load_config
from orchestrator.coordinator.embedded import EmbeddedEngine
from orchestrator.coordinator.engine import Aggregation
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.errors import ProtocolError
from orchestrator.evaluation.metrics import METRICS
from orchestrator.experiments.comparison import Comparison, _largest, compare
from orchestrator.files import read_arrays

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")

EVALUATED = ["accuracy", "auc", "balanced_accuracy", "delta_sp", "delta_eo"]


@pytest.fixture(scope="module")
def compared(tiny, tmp_path_factory):
    seen: list[tuple[str, int]] = []
    config = tiny(tmp_path_factory.mktemp("compare"), "federation.rounds=3", "privacy.clip_norm=0.1")
    return compare(config, observe=lambda engine, seed, result: seen.append((engine, result.round))), seen


def test_both_engines_run_all_rounds(compared):
    result, seen = compared
    assert seen == [(engine, round) for engine in ("plaintext", "embedded") for round in (1, 2, 3)]
    assert result.rounds == 3
    assert multiprocessing.active_children() == []


def test_the_folder_holds_both_runs_and_the_curves(compared):
    result, _ = compared
    assert (result.folder / "comparison.png").read_bytes().startswith(b"\x89PNG")
    for name in ("plaintext", "embedded"):
        folder, config = RunFolder.open(result.folder / name)
        assert config.engine.name == name and len(folder.records()) == 3


def test_the_models_agree_within_the_bound(compared):
    result, _ = compared
    assert 0 < result.max_model_difference < 1e-5
    assert 0 < result.worst_share_of_bound <= 1
    models = [read_arrays(result.folder / name / "checkpoint" / "state.npz") for name in result.final]
    assert np.abs(models[0]["parameters"] - models[1]["parameters"]).max() < 1e-5


def test_the_figures_are_those_of_the_runs(compared):
    result, _ = compared
    records = {name: RunFolder(result.folder / name).records() for name in result.final}
    audited = [row["model_difference"] / row["model_difference_bound"] for row in records["embedded"]]
    assert result.worst_share_of_bound == max(audited)
    assert result.max_model_difference == max(row["model_difference"] for row in records["embedded"])
    for metric in METRICS:
        pairs = [[row["val"][metric] for row in rows] for rows in zip(*records.values(), strict=True)]
        assert result.largest[metric] == max(abs(first - second) for first, second in pairs)
        assert {name: metrics[metric] for name, metrics in result.final.items()} == {
            name: rows[-1]["val"][metric] for name, rows in records.items()
        }


def test_the_table_says_what_the_document_says(compared):
    result, _ = compared
    with open(result.folder / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["validation"] for row in rows] == EVALUATED
    for row in rows:
        finals = [result.final[name][row["validation"]] for name in ("plaintext", "embedded")]
        assert [float(row[f"final, {name}"]) for name in ("plaintext", "embedded")] == finals
        assert float(row["final difference"]) == abs(finals[0] - finals[1])
        assert float(row["largest difference"]) == result.largest[row["validation"]]
    lines = (result.folder / "table.md").read_text().splitlines()
    assert lines[0] == "| validation | final, plaintext | final, embedded | final difference | largest difference |"
    assert lines[3].startswith(f"| auc | {result.final['plaintext']['auc']:.4f} | ")


def test_the_document_is_plain_json(compared):
    result, _ = compared
    document = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert document["folder"] == str(result.folder) and document["rounds"] == 3
    assert document["engines"].keys() == {"plaintext", "embedded"}
    assert all(metrics.keys() == set(EVALUATED) for metrics in document["engines"].values())
    assert document["largest_difference"].keys() == set(EVALUATED)
    assert document["max_model_difference"] == result.max_model_difference


def test_a_metric_that_one_engine_leaves_undefined_has_no_difference():
    runs = [[{"val": {"auc": value}} for value in values] for values in ([None, 0.5, 0.25], [0.5, 0.75, 0.25])]
    assert _largest(runs, "auc") == 0.25
    assert _largest([run[:1] for run in runs], "auc") is None
    final = {"plaintext": {"auc": None}, "embedded": {"auc": 0.5}}
    [row] = Comparison(Path(), 1, None, None, final, {"auc": None}).table()
    assert list(row.values()) == ["auc", "undefined", "0.5000", "undefined", "undefined"]


def test_one_engine_has_nothing_to_differ_from():
    runs = [[{"val": {"auc": 0.5}}]]
    assert _largest(runs, "auc") is None
    [row] = Comparison(Path(), 1, None, None, {"plaintext": {"auc": 0.5}}, {"auc": None}).rows()
    assert row["final difference"] is None


def test_a_model_outside_its_bound_is_an_error_that_names_engine_and_round(tiny, tmp_path, monkeypatch):
    honest = EmbeddedEngine.aggregate

    def shifted(self, round, cohort):
        aggregation = honest(self, round, cohort)
        parameters = aggregation.parameters + (1e-4 if round == 2 else 0)
        return Aggregation(parameters, aggregation.cost)

    monkeypatch.setattr(EmbeddedEngine, "aggregate", shifted)
    with pytest.raises(ProtocolError) as caught:
        compare(tiny(tmp_path))
    assert (caught.value.peer, caught.value.phase, caught.value.round) == ("engine embedded", "audit", 2)
    assert "0.0001" in str(caught.value)


def test_with_noise_there_is_no_difference_to_state(tiny, tmp_path):
    result = compare(tiny(tmp_path, "federation.rounds=1", "privacy={clip_norm: 1, noise_multiplier: 0.1}"))
    assert result.max_model_difference is None and result.worst_share_of_bound is None
    assert json.loads(json.dumps(result.as_dict(), allow_nan=False))["max_model_difference"] is None


@pytest.mark.parametrize("name", ["nba", "german"])
def test_real_data_train_alike_with_both_engines(real_data, tmp_path, name):
    overrides = [f"data.dir='{real_data(name)}'", f"run.dir='{tmp_path}'", "federation.rounds=2"]
    result = compare(load_config([name], overrides=overrides))
    assert result.max_model_difference < 1e-5 and result.worst_share_of_bound <= 1
    for metrics in result.final.values():
        assert all(0 <= metrics[metric] <= 1 for metric in METRICS)
    assert result.largest["auc"] < 1e-3
