"""Figures in the documentation are those that their commands print."""

import json
import re
import runpy
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from orchestrator import cli
from orchestrator.config import load_config
from orchestrator.errors import ConfigError
from orchestrator.registry import METHODS
from tests.conftest import FITS, TINY

ROOT = Path(__file__).parent.parent
PRIVATE = (ROOT / "docs" / "differential-privacy.md").read_text(encoding="utf-8")


def test_the_table_of_operations_is_current():
    benchmark = runpy.run_path(str(ROOT / "benchmarks" / "operations.py"))
    assert benchmark["table"]() in (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", ["accounts", "sensitivities"])
def test_the_tables_of_privacy_are_current(table):
    benchmark = runpy.run_path(str(ROOT / "benchmarks" / "privacy.py"))
    assert benchmark[table]() in (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")


SETTINGS = runpy.run_path(str(ROOT / "docs" / "settings.py"))


def _rows(text):
    """The tables of a part of the page: name, value, default and meaning of each setting."""
    rows = [[cell.strip(" `") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in text.splitlines()]
    return [row for row in rows if len(row) == 4 and row[0] not in ("setting", "---")]


COMMON, *BY_METHOD = re.split(r"^## method: (?=\w)|^(?=## federation$)", SETTINGS["reference"](), flags=re.MULTILINE)
COMMON, BY_METHOD = _rows(COMMON + BY_METHOD.pop()), {text.partition("\n")[0]: _rows(text) for text in BY_METHOD}
ROWS = {name: [*COMMON, *rows] for names, rows in BY_METHOD.items() for name in names.split(", ")}
"""For each method, all settings that there are with it."""
BOUNDED = {(name, values): method for method, rows in ROWS.items() for name, values, *_ in rows}
BEYOND = {"≥": lambda x: x - 1, ">": lambda x: x, "≤": lambda x: x + 1, "<": lambda x: x}


def test_the_reference_of_settings_is_current():
    """Else run `python docs/settings.py`."""
    assert SETTINGS["PAGE"].read_text(encoding="utf-8") == SETTINGS["reference"]()


@pytest.mark.parametrize("method", METHODS)
def test_the_reference_has_every_setting_with_its_default_and_meaning(method):
    chosen = [f"method.name={method}", *FITS[method]]
    rows, config = ROWS[method], load_config(overrides=chosen)
    names = [name for name, *_ in rows if not name.startswith("data.files.")]
    assert sorted(names) == sorted(_leaves(config.model_dump(mode="json"))) and all(row[3] for row in rows)
    given = [f"{name}={default}" for name, _, default, _ in rows if default != "must be given"]
    given = [override for override in given if not override.startswith("data.files.")]
    assert load_config(overrides=[*given, *chosen]) == config


@pytest.mark.parametrize(("name", "values"), [key for key in BOUNDED if set(key[1]) & set(BEYOND)])
def test_values_beyond_the_bounds_in_the_reference_are_refused(name, values):
    chosen = [f"method.name={BOUNDED[name, values]}", *FITS[BOUNDED[name, values]]]
    for sign, bound in re.findall(r"([≥>≤<]) (-?[\d.]+)", values):
        beyond = BEYOND[sign](float(bound) if "." in bound else int(bound))
        length = re.search(r"list of (\d)", values)
        with pytest.raises(ConfigError, match=re.escape(name)):
            load_config(overrides=[*chosen, f"{name}={[beyond] * int(length[1]) if length else beyond}"])


def _leaves(tree, prefix=""):
    """Dotted names of the settings of a configuration; data.files, a section that is not there by default, is none."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        elif f"{prefix}{name}" != "data.files":
            yield f"{prefix}{name}"


ACCOUNT = [line for line in PRIVATE.splitlines() if line.startswith("safegnn account --sampler")]


@pytest.mark.parametrize(("command", "figure"), [*zip(ACCOUNT, ("8.87", "9.43", "0.98007"), strict=True)])
def test_the_pages_account_commands_give_the_figures_beside_them(command, figure, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [*shlex.split(command), "--json"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    document = json.loads(capsys.readouterr().out)
    assert not caught.value.code
    shown = document["noise_multiplier" if "--target-epsilon" in command else "epsilon"]
    assert f"{shown:.{len(figure.partition('.')[2])}f}" == figure and figure in PRIVATE


def test_the_pages_training_with_a_budget_stops_before_it(tmp_path, monkeypatch, capsys):
    """On the page's settings for privacy and a small graph."""
    lines = PRIVATE.replace("\\\n", " ").splitlines()
    command = next(line for line in lines if line.startswith("safegnn train") and "epsilon_budget" in line)
    small = [argument for setting in TINY for argument in ("--set", setting)]
    long = ["--set", "federation.rounds=40", "--set", f"run.dir='{tmp_path}'", "--json"]
    monkeypatch.setattr(sys, "argv", [*shlex.split(command), *small, *long])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    document = json.loads(capsys.readouterr().out)
    assert not caught.value.code
    assert document["privacy"]["epsilon"] <= 3 and document["privacy"]["stopped"] and document["rounds"] < 40


def test_version_and_licence_are_the_packages_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    assert f"\n## {project['version']}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


PAGES = [str(page.relative_to(ROOT)) for place in ("", "docs/", "docs/methods/") for page in ROOT.glob(f"{place}*.md")]
YOURS = {"orchestrator/methods/nearby.py", "third_party/MP-SPDZ/compile.py"}
"""What the pages tell a reader to write or install."""


@pytest.mark.parametrize("page", PAGES)
def test_files_named_in_the_pages_exist(page):
    """From the root, the package or the tests, as the pages name them; links from the page."""
    for name in re.findall(r"[`(]([\w-][\w.-]*/[\w./-]*(?:/|\.\w+))[`)]", (ROOT / page).read_text(encoding="utf-8")):
        places = [base / name for base in (ROOT, ROOT / "orchestrator", ROOT / "tests", (ROOT / page).parent)]
        if name.endswith("/") and not name.startswith(("orchestrator/", "mpc_programs/", "docs/", "tests/")):
            continue  # a folder of a run, not of the project
        assert name in YOURS or any(place.exists() for place in places), name


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_page_that_the_table_of_methods_links(method):
    page, table = f"methods/{method.removesuffix('+')}.md", ROOT / "docs" / "methods.md"
    assert (ROOT / "docs" / page).is_file() and f"]({page})" in table.read_text(encoding="utf-8")
