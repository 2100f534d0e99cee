"""Every command and file of docs/own-graph.md, in its order."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from orchestrator import cli

PAGE = (Path(__file__).parent.parent / "docs" / "own-graph.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.usefixtures("forkserver")
def test_the_page_runs(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)

    def safegnn(command: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return int(caught.value.code or 0), capfd.readouterr().out

    (_, first), (_, script), (_, settings), (_, then), *_ = BLOCKS
    assert PAGE.splitlines()[3] == first.strip() == "safegnn data check patients.csv contacts.csv"
    exec(compile(script, "docs/own-graph.md", "exec"), {"__name__": "__main__"})
    status, told = safegnn(first)
    assert status == 2 and "5 faults, it would not train" in told
    Path("hospital.yaml").write_text(settings)
    outs = []
    for command in then.strip().splitlines():
        status, told = safegnn(command)
        assert status == 0, (command, told)
        outs.append(told)
    assert "no faults, it would train" in outs[0] and "left out" in outs[1] and "ward=heart" in outs[2]
