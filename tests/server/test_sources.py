"""Servers whose sources differ refuse each other before anything is shared."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from orchestrator.config import load_config
from orchestrator.coordinator.factory import create_engine
from orchestrator.errors import DisagreementError
from orchestrator.server import sources
from orchestrator.server.embedded import EmbeddedServer
from orchestrator.server.mpspdz import MpSpdzServer

ROOT = Path(__file__).parents[2]
COEFFICIENTS = ("math.exp(middle) / math.factorial(k)", "1.001 * math.exp(middle) / math.factorial(k)")


@pytest.fixture
def copy(tmp_path):
    """An installation of its own: the folder that holds both packages."""
    for package in ("mpc_programs", "orchestrator"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def command(folder, text):
    """Python that takes our packages from a folder and from nowhere else."""
    return [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {text}"]


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("role", ["server 0", "server 1"])
def test_a_server_with_another_coefficient_of_exp_is_refused_at_the_start(copy, role, edited):
    if edited:
        edit(copy / "mpc_programs" / "arithmetic.py", *COEFFICIENTS)
    commands = {
        role: command(copy, "from orchestrator.server.embedded import EmbeddedServer, main; main(EmbeddedServer)")
    }
    with create_engine(load_config(), commands) as engine:
        if not edited:
            engine.start(np.zeros(3))
            return
        with pytest.raises(DisagreementError, match=r"round 0, phase handshake: server [01]: holds another program"):
            engine.start(np.zeros(3))


def digest(folder, *further):
    call = f"from orchestrator.server.sources import source_digest; print(source_digest(*{further}).hex())"
    return subprocess.run(command(folder, call), capture_output=True, text=True, check=True).stdout.strip()


MPSPDZ = "orchestrator/mpspdz"


def test_every_folder_and_both_kinds_of_file_count_and_nothing_else_does(copy):
    original = digest(copy, MPSPDZ)
    assert original == sources.source_digest(MPSPDZ).hex() != digest(copy)
    (copy / "mpc_programs" / "notes.txt").write_text("none of the sources")
    (copy / "orchestrator" / "cli.py").write_text("the servers do not run it")
    assert digest(copy, MPSPDZ) == original
    seen = {original}
    for folder, name in (
        *((folder, "__init__.py") for folder in (*sources._FOLDERS, MPSPDZ)),
        ("mpc_programs", "exp.mpc"),
    ):
        with open(copy / folder / name, "a", encoding="utf-8") as file:
            file.write("# another version\n")
        seen.add(digest(copy, MPSPDZ))
    (copy / "mpc_programs" / "exp.mpc").rename(copy / "mpc_programs" / "ex.mpc")
    seen.add(digest(copy, MPSPDZ))
    assert len(seen) == 1 + len(sources._FOLDERS) + 1 + 1 + 1


@pytest.mark.parametrize("server", [EmbeddedServer, MpSpdzServer])
def test_the_folders_hold_all_that_a_server_runs(server):
    """But for what says no more than names: the packages above, and the errors."""
    call = f"import {server.__module__}; print(*sys.modules)"
    output = subprocess.run(command(ROOT, call), capture_output=True, text=True, check=True).stdout
    ours = {name for name in output.split() if name.split(".")[0] in ("mpc_programs", "orchestrator")}
    folders = tuple(folder.replace("/", ".") for folder in (*sources._FOLDERS, *server.sources))
    left = {name for name in ours if name not in folders and name.rpartition(".")[0] not in folders}
    assert server.__module__ in ours
    assert left == {"orchestrator", "orchestrator.errors"}
