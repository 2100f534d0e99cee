"""`safegnn data`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.reports.run import summarise_run
from tests.cli.commands import SETTINGS, assert_refused
from tests.graphs.own_data import write


def test_data_info_describes_a_graph(safegnn):
    status, out, err = safegnn("data", "info", "synthetic", *SETTINGS, "--json")
    facts = json.loads(out, parse_constant=pytest.fail)
    assert (status, err) == (0, "")
    assert facts["clients"]["count"] == 6 and 0 < facts["nodes"] <= 120
    as_preset = ("--set", "data.stratified=false")
    assert safegnn("data", "info", *SETTINGS, *as_preset, "--json") == (0, out, "")  # settings alone are enough
    status, out, _ = safegnn("data", "info", "synthetic", *SETTINGS)
    assert status == 0 and f"{facts['edges']}" in out and "clients balance median" in out


def test_data_info_of_many_classes_without_groups(safegnn, real_data):
    cora = ("--set", "data.name=cora", "--set", "clients={partition: disjoint, count: 5}")
    cora = (*cora, "--set", "federation.cohort=5", "--data-dir")
    status, out, err = safegnn("data", "info", *cora, str(real_data("planetoid")), "--json")
    facts = json.loads(out, parse_constant=pytest.fail)
    assert (status, err) == (0, "")
    assert facts["nodes"] == 2_485 and len(facts["labels"]) == 8 and facts["groups"] is None
    assert facts["clients"]["count"] == 5 and facts["clients"]["train_classes"]["max"] <= 7
    status, out, _ = safegnn("data", "info", *cora, str(real_data("planetoid")))
    assert status == 0 and "clients train_classes median" in out


PAIR = ("data", "check", "nodes.csv", "edges.csv")


def test_data_check_lists_all_faults_and_ends_with_2(safegnn):
    write(Path())
    status, out, err = safegnn(*PAIR)
    assert (status, err) == (2, "")
    assert "2 faults, it would not train:\n1. " in out and "positive: CHOOSE  # one or more of 'no', 'yes'" in out
    assert "'no' → undecided: 6 nodes" in out
    status, out, err = safegnn(*PAIR, "--json")
    document = json.loads(out, parse_constant=pytest.fail)
    assert (status, err) == (2, "") and not document["would_train"] and len(document["faults"]) == 2


def test_what_data_check_proposes_trains_and_a_loss_is_said_everywhere(safegnn):
    write(Path(), edges=[(f"p{k}", f"p{k + 1}") for k in range(8)])
    chosen = ("--set", "data.files.positive='yes'", "--set", "data.files.protected=f")
    few = ("--set", "data.nodes=labelled_component", "--set", "clients={count: 2, hops: 1}")
    kept = "kept 9 of 12 nodes (largest component; data.nodes: all keeps them)"
    status, out, err = safegnn(*PAIR, *chosen, *few)
    assert (status, err) == (0, "") and "no faults, it would train" in out and f"note: {kept}" in out
    assert "'yes' → 1 (positive): 6 nodes" in out and "'f' → 1 (protected): 6 nodes" in out
    Path("own.yaml").write_text(out.partition("these settings work:\n")[2])
    assert kept in " ".join(safegnn("data", "info", "--config", "own.yaml")[1].replace("│", "").split())
    train = ("train", "--config", "own.yaml", "--set", "federation.rounds=1", "--set", "engine.name=plaintext")
    status, out, err = safegnn(*train)
    assert status == 0 and f"data: {kept}" in out and kept in err
    assert "class 0 is no, class 1 is yes; group 0 is m, group 1 is f" in err
    [folder] = Path("runs").iterdir()
    said = summarise_run(RunFolder(folder))["data"]
    assert (said["nodes"], said["nodes_read"], said["notes"]) == (9, 12, [kept])


def test_people_in_pairs_would_train_and_else_the_reason_is_said(safegnn):
    people = [("id", "age", "sex", "hired"), *((f"p{k}", k * k % 31, "fm"[k // 2 % 2], k % 2) for k in range(80))]
    write(Path(), people, [(f"p{k}", f"p{k + 1}") for k in range(0, 80, 2)])
    status, out, _ = safegnn(*PAIR, "--set", "data.files.protected=f")
    assert status == 0 and "components: 40, the largest of 2 nodes" in out
    Path("own.yaml").write_text(out.partition("these settings work:\n")[2])
    status, out, err = safegnn("train", "--config", "own.yaml", "--set", "data.nodes=labelled_component")
    assert_refused((status, out, err), 1, "kept 2 of 80 nodes (largest component; data.nodes: all keeps them)")
