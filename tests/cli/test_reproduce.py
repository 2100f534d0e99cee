"""`safegnn reproduce`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from orchestrator.experiments import privacy_settings
from orchestrator.experiments.fairness_settings import BASELINE, fairness_settings
from orchestrator.privacy.plan import VIEWS
from tests.cli.commands import SETTINGS

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


@pytest.mark.parametrize("as_json", [True, False])
def test_one_seed_of_table_2(safegnn, as_json):
    """In place of Pokec's files, which are not there, stands the stand-in; in place of this the settings' graph."""
    nowhere = ("--data-dir", "nowhere", "--set", "federation.rounds=2")
    small = [setting for setting in SETTINGS if "data.name" not in setting][1:]
    status, out, err = safegnn("reproduce", "table2", *small, *nowhere, "--seeds", "1", *["--json"][:as_json])
    assert status == 0 and "the synthetic stand-in takes its place" in err.splitlines()[0]
    assert "round 1/8  non-private, seed 47  val AUC" in err
    if not as_json:
        assert (
            "| σ = 1.341 | 1.341 | " in out and "±" not in out and out.splitlines()[-2].startswith("epsilon at delta")
        )
        return
    document = json.loads(out, parse_constant=pytest.fail)
    assert document["delta"] == 1e-3 and len(document["rows"]) == 4
    noisy = document["rows"][1]
    assert all(math.isfinite(noisy[f"epsilon_{view}"]) for view in VIEWS)
    assert noisy["accuracy"] is not None and noisy["accuracy_sd"] is None
    assert {"table.md", "table.csv", "curves.png"} <= {path.name for path in Path(document["folder"]).iterdir()}


def test_fairness_prints_its_table(safegnn, tmp_path, monkeypatch):
    def two(config):
        return {name: own for name, own in fairness_settings(config).items() if name in (BASELINE, "fairdual")}

    monkeypatch.setitem(privacy_settings.EXPERIMENTS, "fairness", privacy_settings.Experiment(("demo",), (), two))
    small = [f"--set={setting}" for setting in ("data.synthetic={nodes: 200, edges: 300}", "clients.count=5")]
    few = [f"--set={setting}" for setting in ("federation={rounds: 2, cohort: 3}", f"run.dir={tmp_path}")]
    status, out, _ = safegnn("reproduce", "fairness", "--seeds", "1", *small, *few)
    assert status == 0 and "| fairdual |" in out and "all arms that were run" in out
