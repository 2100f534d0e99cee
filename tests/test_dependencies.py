"""What the package imports is what it says it needs."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGES = ("orchestrator", "mpc_programs")
ELSEWHERE = {"Compiler"}  # MP-SPDZ's, in whose process the file that imports it runs
EXTRA = {"flwr": "flower", "httpx": "flower"}
"""By library that may not be installed, the extra that brings it."""


def imported() -> set[str]:
    """Top-level names of the modules that the package's files import, at the top or inside a function."""
    names = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    names |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - set(PACKAGES) - ELSEWHERE


def names(requirements: list[str]) -> set[str]:
    return {_normal(re.match(r"[\w.-]+", requirement)[0]) for requirement in requirements}


def test_every_imported_library_is_declared():
    declared = names(PROJECT["dependencies"])
    providers = metadata.packages_distributions()
    found = {name: providers[name] for name in imported() - set(EXTRA)}
    assert {name: by for name, by in found.items() if not declared & set(map(_normal, by))} == {}


def test_what_an_extra_brings_is_declared_there_and_imported():
    for library, extra in EXTRA.items():
        assert library in names(PROJECT["optional-dependencies"][extra])
        assert library in imported()


def _normal(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()
