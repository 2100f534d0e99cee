"""`safegnn reproduce`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from orchestrator.privacy.plan import VIEWS
from tests.cli.commands import SETTINGS

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


@pytest.mark.parametrize("as_json", [True, False])
def test_one_seed_of_table_2(safegnn, as_json):
    """In place of Pokec's files, which are not there, stands the stand-in; in place of this the settings' graph."""
    nowhere = ("--data-dir", "nowhere", "--set", "federation.rounds=1")
    small = [setting for setting in SETTINGS if "data.name" not in setting][1:]
    status, out, err = safegnn("reproduce", "table2", *small, *nowhere, "--seeds", "1", *["--json"][:as_json])
    assert status == 0 and "the synthetic stand-in takes its place" in err.splitlines()[0]
    assert "round 1/4  non-private, seed 47  val AUC" in err
    if not as_json:
        assert (
            "| σ = 1.341 | 1.341 | " in out and "±" not in out and out.splitlines()[-1].startswith("epsilon at delta")
        )
        return
    document = json.loads(out, parse_constant=pytest.fail)
    assert document["delta"] == 1e-3 and len(document["rows"]) == 4
    noisy = document["rows"][1]
    assert all(math.isfinite(noisy[f"epsilon_{view}"]) for view in VIEWS)
    assert noisy["accuracy"] is not None and noisy["accuracy_sd"] is None
    assert {"table.md", "table.csv", "curves.png"} <= {path.name for path in Path(document["folder"]).iterdir()}
