"""Our `.mpc` programs, compiled once for each job and kept under a digest of everything that went into them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import mpc_programs
from mpc_programs.rules import RoundParameters
from orchestrator.errors import ConfigError
from orchestrator.mpspdz.installation import Installation
from orchestrator.mpspdz.shape import Job, Shape

__all__ = ["Compiled", "compile_program", "compile_rounds", "default_cache"]

_SOURCES = Path(mpc_programs.__file__).parent
_TIMEOUT_SEC = 600.0


@dataclass(frozen=True)
class Compiled:
    """A program ready to run: a folder that holds `Programs/`, and the name under which a party finds it."""

    folder: Path
    name: str

    @property
    def complete(self) -> bool:
        return (self.folder / "Programs" / "Schedules" / f"{self.name}.sch").is_file()


def default_cache() -> Path:
    """Where bytecode is kept: `$XDG_CACHE_HOME/safegnn/mpspdz`, by default below ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "safegnn" / "mpspdz"


def compile_program(installation: Installation, job: Job, cache: Path | None = None) -> Compiled:
    """Compile a program, or find it compiled.

    The result is put in place in one step: a compiler that fails or is interrupted leaves nothing behind, and of two
    processes that compile the same, the second one finds the first one's result.

    Raises:
        ConfigError: the compiler fails or cannot write; with its last line.
    """
    source = _SOURCES / f"{job.program}.mpc"
    name = "-".join([job.program, *job.arguments])
    compiled = Compiled((cache or default_cache()) / _digest(installation, job), name)
    if compiled.complete:
        return compiled
    command = [sys.executable, str(installation.compiler), *job.compiler_options, "--", str(source), *job.arguments]
    paths = [str(_SOURCES.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    folder = compiled.folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="compiling-") as scratch:
            place = Path(scratch) / "result"
            place.mkdir()
            done = subprocess.run(
                command, cwd=place, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_SEC
            )
            if done.returncode != 0:
                raise ConfigError(f"MP-SPDZ: {source.name} does not compile: {_last_line(done.stderr or done.stdout)}")
            _put_in_place(place, compiled)
    except OSError as error:
        raise ConfigError(f"MP-SPDZ: cannot compile in {folder.parent}: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"MP-SPDZ: compiling {source.name} took more than {_TIMEOUT_SEC:g} s") from None
    return compiled


def compile_rounds(
    installation: Installation,
    rule: RoundParameters,
    parameters: int,
    programs: Sequence[str],
    protocols: Sequence[str],
) -> Iterator[tuple[str, str, Compiled | ConfigError]]:
    """Compile a round, for every program and protocol; yields both and the result, or why there is no such program.

    Args:
        rule: of the rounds.
        parameters: d.

    Raises:
        ConfigError: as `compile_program`.
    """
    for program in programs:
        for protocol in protocols:
            try:
                shape = Shape(program, protocol, rule, parameters)
            except ConfigError as error:
                yield program, protocol, error
                continue
            yield program, protocol, compile_program(installation, shape)


def _put_in_place(place: Path, compiled: Compiled) -> None:
    try:
        place.rename(compiled.folder)
    except OSError:  # it is there: another process was faster, or somebody has damaged it
        if not compiled.complete:
            shutil.rmtree(compiled.folder, ignore_errors=True)
            place.rename(compiled.folder)


def _digest(installation: Installation, job: Job) -> str:
    """Of our sources, the job, and the installation that compiles it."""
    digest = hashlib.sha256()
    for path in sorted([*_SOURCES.glob("*.py"), *_SOURCES.glob("*.mpc")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    origin = (str(installation.home), installation.version)
    for text in (job.program, *job.compiler_options, *job.arguments, *origin):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:16]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
