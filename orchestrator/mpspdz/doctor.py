"""Is everything there that a run on MP-SPDZ needs? One row for each thing, and the cure beside what is missing."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from orchestrator.errors import ConfigError
from orchestrator.finding import Finding
from orchestrator.mpspdz.installation import PROTOCOLS, TESTED_VERSIONS, Installation, certificate_fault, find, named
from orchestrator.mpspdz.ports import free_ports

__all__ = ["examine"]

_NEEDED_FLAGS = {"x86_64": ("aes", "pclmulqdq", "avx2")}
"""What the official binaries and the OT extension use."""

_COMPILER_PYTHON = (3, 8)
_PARTIES = max(protocol.parties for protocol in PROTOCOLS.values())


def examine(home: Path | None = None, required: bool = False) -> list[Finding]:
    """Look at everything; nothing is changed. Without an installation the rows that need none are still there.

    Args:
        home: the installation; None looks where `installation.find` does.
        required: MP-SPDZ is to be used. Where it is not, nobody says where it is, and it is not there, whatever it
            lacks is a warning: it is an option.
    """
    findings = [_python(), _processor(), _ports()]
    try:
        installation = find(home)
    except ConfigError as error:
        findings = [Finding("installation", "fault", "none found", str(error)), *findings]
        optional = not required and named(home) is None
        return [replace(row, state="warning") if optional and row.state == "fault" else row for row in findings]
    return [*_installation(installation), *findings]


def _installation(installation: Installation) -> Iterator[Finding]:
    yield Finding("installation", "ok", str(installation.home))
    version = installation.version
    if version in TESTED_VERSIONS:
        yield Finding("version", "ok", version)
    else:
        yield Finding("version", "warning", version, f"tested with {', '.join(TESTED_VERSIONS)}")
    yield _try("compiler", lambda: _starts([sys.executable, str(installation.compiler), "--help"]))
    for protocol in PROTOCOLS:
        yield _try(f"{protocol}-party.x", partial(installation.binary, protocol))
    for party in range(_PARTIES):
        fault = certificate_fault(installation.certificates, party)
        cure = f"run `Scripts/setup-ssl.sh {_PARTIES}` in {installation.home}" if fault else ""
        yield Finding(f"certificate of party {party}", "fault" if fault else "ok", fault or "valid", cure)


def _try(what: str, look: Callable[[], object]) -> Finding:
    try:
        return Finding(what, "ok", str(look()))
    except ConfigError as error:
        detail, _, cure = str(error).removeprefix("MP-SPDZ: ").partition("; ")
        return Finding(what, "fault", detail, cure)


def _starts(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60.0)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise ConfigError(f"MP-SPDZ: compile.py does not start: {lines[-1]}; unpack the release again")
    return command[1]


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info >= _COMPILER_PYTHON:
        return Finding("the compiler's Python", "ok", f"{sys.executable}, {version}")
    wanted = ".".join(map(str, _COMPILER_PYTHON))
    return Finding("the compiler's Python", "fault", version, f"install Python {wanted} or later")


def _processor() -> Finding:
    machine = platform.machine()
    try:
        flags = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return Finding("processor", "warning", f"{machine}, features unknown", "see MP-SPDZ's documentation")
    missing = [flag for flag in _NEEDED_FLAGS.get(machine, ()) if flag not in flags]
    if missing:
        return Finding("processor", "fault", f"{machine} without {', '.join(missing)}", "use another machine")
    return Finding("processor", "ok", machine)


def _ports() -> Finding:
    try:
        return Finding("free ports", "ok", f"e.g. {free_ports(_PARTIES)}")
    except OSError as error:
        return Finding("free ports", "fault", str(error), "end processes that listen on many ports")
