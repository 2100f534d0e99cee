"""`--resume` of `train`, `compare` and `reproduce`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.locks import FolderLock
from tests.cli.commands import SETTINGS, assert_refused

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")

ONE = ["--set", "engine.client_processes=1"]


@pytest.fixture
def trained(safegnn) -> Path:
    status, out, err = safegnn("train", *SETTINGS, *ONE, "--set", "federation.rounds=1", "--json")
    assert status == 0, err
    return Path(json.loads(out)["run"])


def test_a_run_is_extended_and_nothing_else_of_it_changes(safegnn, trained):
    run = str(trained)
    for change in (["--set", "seed=5"], ["--set", "federation={rounds: 2, cohort: 2}"]):
        assert_refused(safegnn("train", "--resume", run, *change), 2, "own settings", "federation.rounds")
    assert_refused(safegnn("train", "--resume", run, "--preset", "nba"), 2, "--set federation.rounds=N")
    assert_refused(safegnn("train", "--resume", run, "--set", "federation.rounds=0"), 2, "federation.rounds")
    status, out, err = safegnn("train", "--resume", run, "--set", "federation.rounds=3", "--json")
    assert status == 0 and json.loads(out)["rounds"] == 3
    assert err.splitlines()[0] == "not as when the run began: federation.rounds = 3, was 1"
    assert [row["round"] for row in RunFolder(trained).records()] == [1, 2, 3]


def test_what_is_written_elsewhere_or_was_changed_is_one_line(safegnn, trained):
    with FolderLock(trained):
        assert_refused(safegnn("train", "--resume", str(trained)), 1, str(trained), "process ", " is writing to it")
    (trained / "config.yaml").write_text("")
    assert_refused(safegnn("train", "--resume", str(trained)), 1, "settings are not those that it began with")
    (trained / "config.yaml").write_text("seed: -1")
    assert_refused(safegnn("train", "--resume", str(trained)), 2, f"{trained / 'config.yaml'}: seed")


def unfinished(folder: Path, name: str) -> None:
    """As a kill leaves a run before its first checkpoint."""
    for path in [*(folder / name / "checkpoint").iterdir(), folder / name / "model.pt"]:
        path.unlink()


def test_a_comparison_goes_on_with_what_it_lacks(safegnn):
    methods = ["--methods", "local,fedavg", "--set", "evaluation.where=clients", "--seeds", "2"]
    status, out, err = safegnn("compare", *SETTINGS, *ONE, *methods, "--set", "federation.rounds=1", "--json")
    assert status == 0, err
    whole = json.loads(out)
    folder = Path(whole["folder"])
    unfinished(folder, "fedavg-seed-31")
    assert_refused(safegnn("compare", "--resume", str(folder), "--seeds", "3"), 2, "leave the other options out")
    assert_refused(safegnn("reproduce", "--resume", str(folder)), 2, "it is of `safegnn compare`")
    with FolderLock(folder):
        assert_refused(safegnn("compare", "--resume", str(folder)), 1, "is writing to it")
    status, out, err = safegnn("compare", "--resume", str(folder), "--json")
    assert status == 0 and json.loads(out) == whole
    rounds = [line.split("  ")[:2] for line in err.splitlines() if line.startswith("round")]
    assert rounds == [["round 4/4", "fedavg, seed 31"]] and "not as when" not in err


def test_a_reproduction_goes_on_with_what_it_lacks(safegnn):
    nowhere = ["--data-dir", "nowhere", "--set", "federation.rounds=2", *ONE]
    small = [setting for setting in SETTINGS if "data.name" not in setting][1:]
    status, out, err = safegnn("reproduce", "table2", *small, *nowhere, "--seeds", "1", "--json")
    assert status == 0, err
    whole = json.loads(out)
    folder = Path(whole["folder"])
    unfinished(folder, "non-private-seed-47")
    assert_refused(safegnn("compare", "--resume", str(folder)), 2, "it is of `safegnn reproduce table2`")
    assert_refused(safegnn("reproduce", "table2", "--resume", str(folder)), 2, "leave the experiment and options out")
    assert_refused(safegnn("reproduce"), 2, "table2 or operating-point or fairness, or --resume FOLDER")
    status, out, err = safegnn("reproduce", "--resume", str(folder), "--json")
    assert status == 0 and json.loads(out) == whole and "not as when" not in err
    assert [line for line in err.splitlines() if line.startswith("round")][-1].startswith("round 8/8  non-private")


@pytest.mark.parametrize("folder", ["nowhere", "empty", "run"])
@pytest.mark.parametrize("command", ["compare", "reproduce"])
def test_what_is_no_comparison_is_refused(safegnn, tmp_path, command, folder):
    (tmp_path / "empty").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("seed: 1")
    path = str(tmp_path / folder)
    assert_refused(safegnn(command, "--resume", path), 1, path, "holds no plan.json")


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "--methods", "fedavgg"],
        ["compare", "--methods", "fedpub,local"],
        ["compare", "--methods", "local", "--set", "federation.rounds=x"],
        ["compare", "--engines", "plaintxt"],
        ["reproduce", "tabel2"],
    ],
)
def test_a_typing_error_is_refused_before_anything_is_imported_that_takes_long(arguments):
    code = "import sys\nfrom orchestrator import cli\ntry: cli.main()\nfinally: print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert found.returncode == 2 and found.stdout == "False\n" and found.stderr.count("\n") == 1
