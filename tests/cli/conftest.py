"""A command as a user gives it."""

from __future__ import annotations

import multiprocessing
import sys

import pytest

from orchestrator import cli
from tests.conftest import TRACEBACK
from tests.mpspdz_standin import MEAN, write_party


@pytest.fixture
def safegnn(monkeypatch, tmp_path, capfd):
    """``safegnn("train", ...)``: exit status, standard output and standard error.

    In an empty folder, with no installation of MP-SPDZ anywhere. The output is caught below Python, so that it includes
    what other processes print.
    """
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MPSPDZ_HOME", raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["safegnn", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capfd.readouterr()
        assert multiprocessing.active_children() == []
        assert TRACEBACK not in out + err
        return int(caught.value.code or 0), out, err

    return run


@pytest.fixture
def wide(safegnn, monkeypatch):
    """Room for tables of many columns."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def installed(standin, monkeypatch, safegnn):
    """Parties that compute means, found by the environment."""
    for protocol in ("semi2k", "dealer-ring"):
        write_party(standin.home, MEAN + "result()", protocol)
    monkeypatch.setenv("MPSPDZ_HOME", str(standin.home))
    return standin
