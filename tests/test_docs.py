"""Figures in the documentation are those that their commands print."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_table_of_operations_is_current():
    benchmark = runpy.run_path(str(ROOT / "benchmarks" / "operations.py"))
    assert benchmark["table"]() in (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")


def test_files_named_in_the_readme_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for word in text.replace("(", " ").replace(")", " ").replace("`", " ").split():
        name = word.strip(".,;:")
        if name.startswith(("orchestrator/", "mpc_programs/", "docs/", "tests/")) and "*" not in name:
            assert (ROOT / name).exists(), name
