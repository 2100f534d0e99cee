"""`safegnn flower`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.commands import assert_refused


@pytest.mark.parametrize("options", [(), ("--simulation",)])
def test_an_app_folder_is_written_once(safegnn, options):
    status, out, err = safegnn("flower", "app", "folder", *options)
    assert (status, err) == (0, "")
    assert "flwr run folder" in out
    files = {path.name: path.read_text() for path in Path("folder").iterdir()}
    assert sorted(files) == ["pyproject.toml", "safegnn_client.py", "safegnn_server.py"]
    assert ("simulation" in files["safegnn_client.py"]) == bool(options)
    assert_refused(safegnn("flower", "app", "folder"), 2, "exists")


def test_without_flower_a_node_says_what_is_missing(safegnn, monkeypatch):
    for module in [name for name in sys.modules if name.startswith(("flwr.", "orchestrator.flower."))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "flwr", None)
    assert_refused(safegnn("flower", "node"), 2, "safegnn[flower]")


def test_a_secret_that_cannot_be_read_is_one_line(safegnn):
    pytest.importorskip("flwr", reason="needs safegnn[flower]")
    Path("empty").touch()
    assert_refused(safegnn("flower", "node", "--secret", "none"), 2, "none")
    assert_refused(safegnn("flower", "node", "--secret", "empty"), 2, "empty")
