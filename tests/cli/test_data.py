"""`safegnn data`."""

from __future__ import annotations

import json

import pytest

from tests.cli.commands import SETTINGS


def test_data_info_describes_a_graph(safegnn):
    status, out, err = safegnn("data", "info", "synthetic", *SETTINGS, "--json")
    facts = json.loads(out, parse_constant=pytest.fail)
    assert (status, err) == (0, "")
    assert facts["clients"]["count"] == 6 and 0 < facts["nodes"] <= 120
    assert safegnn("data", "info", *SETTINGS, "--json") == (0, out, "")  # settings alone are enough
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
