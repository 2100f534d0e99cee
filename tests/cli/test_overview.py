"""What there is to choose from, and what has been run."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from orchestrator.config import preset_names, preset_summaries
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.experiments.listing import listed


def test_every_preset_says_what_it_is_in_one_sentence():
    said = preset_summaries()
    assert list(said) == preset_names()
    assert all(20 < len(text) < 200 and not text.startswith("#") for text in said.values())


def test_presets_and_settings_are_told(safegnn):
    status, out, _ = safegnn("presets", "--json")
    assert status == 0 and json.loads(out)["nba"].startswith("NBA: 310 labelled players")
    status, out, _ = safegnn("settings", "privacy", "--json")
    names = [row["setting"] for row in json.loads(out)]
    assert status == 0 and "privacy.noise_multiplier" in names and "privacy.quantile.target" in names
    assert not any(name.startswith("federation") for name in names)
    status, out, _ = safegnn("settings", "f2gnn", "--json")
    assert "method.tau" in [row["setting"] for row in json.loads(out)]
    status, _, err = safegnn("settings", "privat")
    assert status != 0 and "there is no section 'privat'; expected one of" in err


def test_runs_are_listed_with_how_far_they_came_and_what_cannot_be_read_says_why(tiny, tmp_path, safegnn, wide):
    config = tiny(tmp_path / "runs", "federation.rounds=4")
    folder = RunFolder.create(config, "some")
    record = {"round": 1, "val": {"auc": 0.71239, "accuracy": 0.6, "delta_sp": None}, "epsilon": 1.5}
    folder.append(record, {"round": 1})
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "config.yaml").write_text("federation: 3")
    lines = {line["run"]: line for line in listed(tmp_path / "runs")}
    assert lines["some"]["rounds"] == "1/4" and lines["some"]["auc"] == 0.7124 and lines["some"]["epsilon"] == 1.5
    assert lines["broken"]["data"].startswith("cannot be read: ")
    status, out, _ = safegnn("runs", str(tmp_path / "runs"))
    assert status == 0 and "some" in out and "1/4" in out
    status, _, err = safegnn("runs", str(tmp_path / "nowhere"))
    assert status != 0 and "there is no such folder" in err


@pytest.mark.parametrize("words", [("presets",), ("settings", "privacy"), ("--version",)])
def test_what_only_tells_needs_no_torch(words):
    told = (
        f"import sys; sys.argv = ['safegnn', *{words!r}]\n"
        "from orchestrator import cli\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print('torch' in sys.modules, 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False"
