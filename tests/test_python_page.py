"""Every snippet of docs/python.md runs, one after the other, as in a notebook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import orchestrator

PAGE = (Path(__file__).parent.parent / "docs" / "python.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.usefixtures("forkserver")
def test_the_snippets_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where runs/ is made
    notebook = {"__name__": "__main__"}
    for number, snippet in enumerate(SNIPPETS, start=1):
        exec(compile(snippet, f"docs/python.md, snippet {number}", "exec"), notebook)
    assert (len(SNIPPETS), len(list((tmp_path / "runs").iterdir()))) == (9, 5)


def test_the_table_of_names_is_complete():
    listed = {name for row in PAGE.splitlines() if row.startswith("| `") for name in re.findall(r"`(\w+)`", row[:60])}
    assert set(orchestrator.__all__) <= listed
    [row] = [row for row in PAGE.splitlines() if row.startswith("| `Run` |")]
    for name in re.findall(r"`(\w+)", row):
        assert name in ("Run", "folder", "settings") or hasattr(orchestrator.Run, name), name
