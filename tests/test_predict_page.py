"""The example of docs/predict.md runs, with tables as its settings name them."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from orchestrator import cli

PAGE = (Path(__file__).parent.parent / "docs" / "predict.md").read_text(encoding="utf-8")
[YAML] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
COMMANDS, OUTPUT = re.findall(
    r"^```\n(.*?)^```\n", PAGE.replace(YAML, "").replace("```yaml\n```\n", ""), re.DOTALL | re.MULTILINE
)


def write_patients(name: str, contacts: str, nodes: int, labelled: bool) -> None:
    rng = np.random.default_rng(nodes)
    table = pd.DataFrame({"patient": [f"p{k}" for k in range(nodes)], "age": rng.integers(18, 90, nodes)})
    table["pressure"] = rng.normal(120, 20, nodes).round()
    if labelled:
        table["outcome"] = np.where(rng.random(nodes) < 0.5, "recovered", "relapsed")
        table["sex"] = np.where(rng.random(nodes) < 0.5, "f", "m")
    table.to_csv(name, index=False)
    pairs = {(k, int(other)) for k in range(nodes) for other in rng.integers(0, nodes, 3) if other != k}
    Path(contacts).write_text(
        "".join(f"p{u} p{v}\n" for u, v in sorted({(k, k + 1) for k in range(nodes - 1)} | pairs))
    )


@pytest.mark.usefixtures("forkserver")
def test_the_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("clinic.yaml").write_text(YAML)
    write_patients("patients.csv", "contacts.txt", 60, labelled=True)
    write_patients("new-patients.csv", "new-contacts.txt", 12, labelled=False)
    for command in COMMANDS.splitlines():
        runs = [str(run) for run in Path("runs").glob("*")]
        small = ["--engine", "plaintext", "--set", "federation.rounds=1"] if " train " in command else []
        monkeypatch.setattr(sys, "argv", [*shlex.split(command.replace("RUN", *runs) if runs else command), *small])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        assert not caught.value.code
        out = capsys.readouterr().out
        if command.endswith("RUN"):
            assert out.startswith(OUTPUT) and len(out.splitlines()) == 61
    assert Path("predictions.csv").read_text().startswith(OUTPUT)
    assert pd.read_csv("predictions.csv")["node"].tolist() == [f"p{k}" for k in range(12)]
