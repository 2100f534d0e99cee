"""With what a run is made: versions of libraries, the machine, and this program's own source."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import mpc_programs

__all__ = ["environment", "versions"]

_LIBRARIES = ("safegnn", "torch", "torch-geometric", "numpy", "scipy", "cryptography", "dp-accounting", "opendp")


def environment() -> dict[str, Any]:
    """Versions, the machine, and the program's source; plain values."""
    found: dict[str, str | None] = {}
    for library in _LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            found[library] = None
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "libraries": found,
        "source": _source(),
    }


@cache
def _source() -> str:
    """SHA-256 of the program's own files, which change between releases too."""
    digest = hashlib.sha256()
    for package in (Path(__file__).parents[1], Path(mpc_programs.__file__).parent):
        for path in sorted([*package.rglob("*.py"), *package.rglob("*.mpc")]):
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def versions(environment: Mapping[str, Any]) -> dict[str, Any]:
    """What a resumed run should have alike."""
    libraries = environment.get("libraries") or {}
    return {"python": environment.get("python"), **libraries, "source": environment.get("source")}
