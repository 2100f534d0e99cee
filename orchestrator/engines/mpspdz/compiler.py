"""Our `.mpc` programs, compiled once for each shape and kept under a digest of everything that went into them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import mpc_programs
from mpc_programs.rules import PROGRAMS, RoundParameters
from orchestrator.engines.mpspdz.installation import Installation
from orchestrator.errors import ConfigError

__all__ = ["Compiled", "Shape", "compile_program", "default_cache"]

_SOURCES = Path(mpc_programs.__file__).parent
_TIMEOUT_SEC = 600.0
_RING_BITS = {"assisted": 128, "scalar-first": 128, "faithful": 64}
_FRACTION_BITS = {"assisted": 32, "scalar-first": 32, "faithful": 16}
_TRUNCATION_SECURITY = 40


@dataclass(frozen=True)
class Shape:
    """What a compiled round depends on.

    Attributes:
        program: one of `mpc_programs.rules.PROGRAMS`.
        protocol: "semi2k" or "dealer-ring".
        parameters: the public side of the arithmetic.
        length: d, the number of model parameters; `assisted` does not depend on it and ignores it.
    """

    program: str
    protocol: str
    parameters: RoundParameters
    length: int

    def __post_init__(self) -> None:
        if self.program not in PROGRAMS:
            raise ConfigError(f"engine.program: '{self.program}' is none of {', '.join(PROGRAMS)}")
        if self.program == "faithful" and self.parameters.rule != "f2gnn":
            raise ConfigError("engine.program: 'faithful' computes the paper's rule only; set method.name to f2gnn")

    @property
    def ring_bits(self) -> int:
        return _RING_BITS[self.program]

    @property
    def fraction_bits(self) -> int:
        """Of the scalars, and of the updates where the program clips and weighs them elementwise."""
        return _FRACTION_BITS[self.program]

    @property
    def arguments(self) -> list[str]:
        """For the program, in the order that `mpc_programs.mpspdz_round.arguments` reads."""
        p = self.parameters
        ratio = "none" if p.ratio_max is None else str(p.ratio_max)
        length = 0 if self.program == "assisted" else self.length
        return [str(p.cohort), str(length), p.rule, str(p.lam), str(p.tau), str(p.fairness_max), ratio]

    @property
    def compiler_options(self) -> list[str]:
        return ["-E", self.protocol, "-R", str(self.ring_bits)]

    @property
    def party_options(self) -> list[str]:
        """Also encrypt what `semi2k` would send in plain text; the dealer's protocol always does."""
        options = ["-v", "-R", str(self.ring_bits), "-o", "no_memory_output"]
        if self.program != "faithful":
            options += ["-E", str(_TRUNCATION_SECURITY)]
        return [*options, "-e"] if self.protocol == "semi2k" else options


@dataclass(frozen=True)
class Compiled:
    """A program ready to run: a folder that holds `Programs/`, and the name under which a party finds it."""

    folder: Path
    name: str


def default_cache() -> Path:
    """Where bytecode is kept: `$XDG_CACHE_HOME/safegnn/mpspdz`, by default below ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "safegnn" / "mpspdz"


def compile_program(installation: Installation, shape: Shape, cache: Path | None = None) -> Compiled:
    """Compile a round's program, or find it compiled.

    The result is put in place in one step, so that a compiler which fails or is interrupted leaves nothing behind.

    Raises:
        ConfigError: the compiler fails or cannot write; with its last line.
    """
    source = _SOURCES / f"{shape.program}.mpc"
    name = "-".join([shape.program, *shape.arguments])
    folder = (cache or default_cache()) / _digest(installation, shape)
    if (folder / "Programs" / "Schedules" / f"{name}.sch").is_file():
        return Compiled(folder, name)
    command = [sys.executable, str(installation.compiler), *shape.compiler_options, str(source), *shape.arguments]
    paths = [str(_SOURCES.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="compiling-") as scratch:
            done = subprocess.run(
                command, cwd=scratch, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_SEC
            )
            if done.returncode != 0:
                raise ConfigError(f"MP-SPDZ: {source.name} does not compile: {_last_line(done.stderr or done.stdout)}")
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (Path(scratch) / "Programs").rename(folder / "Programs")
    except OSError as error:
        raise ConfigError(f"MP-SPDZ: cannot compile in {folder.parent}: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"MP-SPDZ: compiling {source.name} took more than {_TIMEOUT_SEC:g} s") from None
    return Compiled(folder, name)


def _digest(installation: Installation, shape: Shape) -> str:
    """Of our sources, the shape and the compiler's version."""
    digest = hashlib.sha256()
    for path in sorted([*_SOURCES.glob("*.py"), *_SOURCES.glob("*.mpc")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    for text in (
        shape.program,
        *shape.compiler_options,
        *shape.arguments,
        str(installation.home),
        installation.version,
    ):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:16]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
