"""Paths in the settings: ~ is the home folder, and a run's config.yaml means the same from everywhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.config import load_config
from orchestrator.errors import ConfigError

FILES = "data.files={nodes: n.csv, edges: ~/e.txt, id: id, label: y, sensitive: s}"


@pytest.fixture
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.mark.parametrize("setting", ["run.dir", "data.dir", "engine.mpspdz_home", "engine.certificates"])
@pytest.mark.parametrize(("text", "expected"), [("~/x/y", "x/y"), ("'~'", ""), ("~/../z", "../z")])
def test_a_tilde_is_the_home_folder(home, setting, text, expected):
    section, name = setting.split(".")
    assert getattr(getattr(load_config(overrides=[f"{setting}={text}"]), section), name) == home / expected


@pytest.mark.parametrize("text", ["a/~/b", "x~", "a~/b"])
def test_a_tilde_elsewhere_is_a_letter(home, text):
    assert load_config(overrides=[f"run.dir={text}"]).run.dir == Path(text)


@pytest.mark.parametrize("text", ["~nobody-at-all/x", "~nobody-at-all"])
def test_a_home_that_nobody_has_is_one_line(home, text):
    with pytest.raises(ConfigError, match=r"run.dir: ~nobody-at-all.*write the path out"):
        load_config(overrides=[f"run.dir={text}"])


def test_without_a_home_only_a_tilde_is_refused(home, monkeypatch):
    """As in a container whose user has no entry."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert load_config().run.dir == Path("runs")
    with pytest.raises(ConfigError, match=r"data.dir: ~/x: there is no such home folder"):
        load_config(overrides=["data.dir=~/x"])


@pytest.mark.parametrize(("folder", "nodes"), [("raw", "n.csv"), ("/data", "n.csv"), ("null", None)])
def test_absolute_paths_mean_the_same_and_names_in_a_folder_stay(home, folder, nodes):
    config = load_config(overrides=[FILES, f"data.dir={folder}"]).absolute()
    here = Path.cwd()
    assert config.data.files.nodes == Path(nodes or here / "n.csv") and config.data.files.edges == home / "e.txt"
    assert config.run.dir == here / "runs" and config.engine.certificates is None
    assert config.data.dir == (None if folder == "null" else here / folder)
    assert config.absolute() == config
