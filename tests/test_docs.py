"""Figures in the documentation are those that their commands print."""

import json
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from orchestrator import cli
from tests.conftest import TINY

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_operations_is_current():
    benchmark = runpy.run_path(str(ROOT / "benchmarks" / "operations.py"))
    assert benchmark["table"]() in (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", ["accounts", "sensitivities"])
def test_the_tables_of_privacy_are_current(table):
    benchmark = runpy.run_path(str(ROOT / "benchmarks" / "privacy.py"))
    assert benchmark[table]() in (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")


ACCOUNT = [line for line in README.splitlines() if line.startswith("safegnn account --sampler")]


@pytest.mark.parametrize(("command", "figure"), [*zip(ACCOUNT, ("20.18", "9.43", "1.48153"), strict=True)])
def test_the_readmes_account_commands_give_the_figures_beside_them(command, figure, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [*shlex.split(command), "--json"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    document = json.loads(capsys.readouterr().out)
    assert not caught.value.code
    shown = document["noise_multiplier" if "--target-epsilon" in command else "epsilon"]
    assert f"{shown:.{len(figure.partition('.')[2])}f}" == figure and figure in README


def test_the_readmes_training_with_a_budget_stops_before_it(tmp_path, monkeypatch, capsys):
    """On the README's settings for privacy and a small graph."""
    lines = README.replace("\\\n", " ").splitlines()
    command = next(line for line in lines if line.startswith("safegnn train") and "epsilon_budget" in line)
    small = [argument for setting in TINY for argument in ("--set", setting)]
    long = ["--set", "federation.rounds=40", "--set", f"run.dir='{tmp_path}'", "--json"]
    monkeypatch.setattr(sys, "argv", [*shlex.split(command), *small, *long])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    document = json.loads(capsys.readouterr().out)
    assert not caught.value.code
    assert document["privacy"]["epsilon"] <= 8 and document["privacy"]["stopped"] and document["rounds"] < 40


def test_files_named_in_the_readme_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for word in text.replace("(", " ").replace(")", " ").replace("`", " ").split():
        name = word.strip(".,;:")
        if name.startswith(("orchestrator/", "mpc_programs/", "docs/", "tests/")) and "*" not in name:
            assert (ROOT / name).exists(), name
