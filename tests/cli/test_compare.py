"""`safegnn compare`, of engines and of methods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import SETTINGS, assert_picture

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


def test_compare_prints_one_json_document(safegnn):
    status, out, err = safegnn("compare", *SETTINGS, "--json")
    assert status == 0
    document = json.loads(out, parse_constant=pytest.fail)
    assert document["rounds"] == 2 and 0 < document["max_model_difference"] < 1e-5
    assert document["engines"].keys() == {"plaintext", "embedded"}
    for metrics in document["engines"].values():
        assert metrics.keys() == {"accuracy", "auc", "balanced_accuracy", "delta_sp", "delta_eo"}
        assert all(0 <= value <= 1 for value in metrics.values())
    assert_picture(Path(document["folder"]) / "comparison.png")
    assert [line.split()[:3] for line in err.splitlines()] == [
        ["round", "1/4", "plaintext"],
        ["round", "2/4", "plaintext"],
        ["cohort", "of", "3"],  # without noise, on shares
        ["round", "3/4", "embedded"],
        ["round", "4/4", "embedded"],
    ]


@pytest.mark.parametrize("noise", [[], ["--set", "privacy={clip_norm: 1, noise_multiplier: 0.1}"]])
def test_compare_prints_a_table(safegnn, noise):
    status, out, _ = safegnn("compare", *SETTINGS, "--set", "federation.rounds=1", *noise)
    assert status == 0
    assert all(word in out for word in ("final, plaintext", "final, embedded", "largest difference", "delta_eo"))
    assert ("not computed" in out) == bool(noise)
    assert all(f"{e}, {gap}" in out for e in ("plaintext", "embedded") for gap in ("delta_sp 0.", "delta_eo "))
    for line, label in zip(out.splitlines()[-2:], ("curves: ", "report: "), strict=True):
        assert line.startswith(label) and Path(line.removeprefix(label)).exists()


def test_compare_of_methods_prints_its_table_or_one_json_document(safegnn):
    methods = ("compare", *SETTINGS, "--methods", "local,fedavg", "--set", "evaluation.where=clients")
    methods += ("--set", "clients.hops=3")  # so that no gap lacks a group
    status, out, err = safegnn(*methods, "--seeds", "2", "--json")
    assert status == 0 and "round 1/8  local, seed 31  val accuracy" in err
    document = json.loads(out, parse_constant=pytest.fail)
    assert document["seeds"] == 2 and len(document["scores"]) == 20
    gaps = [score for score in document["scores"] if score["metric"] in ("delta_sp", "delta_eo")]
    assert len(gaps) == 4 and all(score["n_s0"] > 0 and score["n_s1"] > 0 for score in gaps)
    assert all(score["low"] is None for score in gaps)  # of two seeds
    assert {score["method"] for score in document["scores"]} == {"local", "fedavg"}
    status, out, _ = safegnn(*methods)
    assert status == 0 and "| local | " in out and "test nodes, seed 31; runs, curves: " in out and "±" not in out
    assert "delta_sp_worst" in out and out.count("(n = ") == 4 and out.count(" [0.") == 4
