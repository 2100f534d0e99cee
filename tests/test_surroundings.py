"""What the program asks of the machine and of its process."""

from __future__ import annotations

import multiprocessing
import os
import platform
import socket
import subprocess
import sys
import tempfile
from multiprocessing import connection, process

import pytest

from orchestrator import surroundings
from orchestrator.coordinator.client_pool import warm_up
from orchestrator.errors import ConfigError


@pytest.fixture
def temporary(monkeypatch):
    """``temporary(length)``: multiprocessing starts afresh under a TMPDIR of so many bytes, in a short place."""
    with tempfile.TemporaryDirectory(dir="/tmp") as root:

        def make(length: int) -> str:
            parts, left = [root], length - len(os.fsencode(root))
            while left > 0:
                name = "ü" * 50 if left > 120 else "x" * max(1, left - 1)
                parts.append(name)
                left -= len(os.fsencode(name)) + 1
            folder = os.path.join(*parts)
            os.makedirs(folder)
            monkeypatch.setattr(tempfile, "tempdir", folder)
            monkeypatch.setattr(process.current_process(), "_config", {**process.current_process()._config})
            process.current_process()._config.pop("tempdir", None)
            return folder

        yield make


@pytest.mark.parametrize("length", [30, 70, 71, 72, 75, 76, 80, 92, 100, 108, 150, 500])
def test_a_socket_can_be_made_however_long_tmpdir_is(temporary, length):
    """Also at the lengths from 72 to 80, at which a socket's path ends just about where it must."""
    folder = temporary(length)
    surroundings.shorten_socket_paths()
    address = connection.arbitrary_address("AF_UNIX")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(address)
    os.unlink(address)
    assert tempfile.tempdir == folder  # everything else stays there
    assert address.startswith(folder) == (len(os.fsencode(folder)) <= 71)
    os.rmdir(os.path.dirname(address))


def test_without_a_short_folder_the_line_says_what_would_be_right(temporary, monkeypatch):
    folder = temporary(100)
    monkeypatch.setattr(surroundings, "_SHORT_FOLDERS", ("/none",))
    with pytest.raises(ConfigError, match=r"TMPDIR: .* at most 71 bytes"):
        surroundings.shorten_socket_paths()
    assert tempfile.tempdir == folder


def test_a_folder_that_is_read_only_is_one_line(temporary, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", os.path.join(temporary(40), "gone"))
    with pytest.raises(ConfigError, match="TMPDIR: no temporary folder can be made: No such file"):
        surroundings.shorten_socket_paths()


def test_the_process_that_clients_are_forked_from_starts_under_a_long_tmpdir(tmp_path):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    script = (
        "from orchestrator.coordinator.client_pool import warm_up\nimport os\n"
        "process = warm_up().Process(target=os.getpid)\nprocess.start()\nprocess.join()\nprint(process.exitcode)"
    )
    environment = {**os.environ, "TMPDIR": str(long), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.parametrize(
    ("system", "machine", "named"),
    [
        ("win32", "AMD64", "Windows: SafeGNN runs on Linux and macOS"),
        ("cygwin", "x86_64", "Cygwin"),
        ("freebsd14", "amd64", "freebsd14"),
        ("emscripten", "wasm32", "emscripten"),
        ("linux", "riscv64", "Linux on riscv64: SafeGNN runs on x86-64 and arm64"),
        ("linux", "i686", "Linux on i686"),
        ("darwin", "Power Macintosh", "macOS on Power Macintosh"),
    ],
)
def test_another_platform_is_refused_by_name(monkeypatch, system, machine, named):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(ConfigError) as caught:
        warm_up()
    assert str(caught.value).startswith(named)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "arm64"])
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_supported_platforms_are_not(monkeypatch, system, machine):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    surroundings.check_platform()


def says_why_not(told):
    try:
        warm_up()
    except ConfigError as error:
        told.send(str(error))


@pytest.mark.usefixtures("forkserver")
def test_a_daemonic_process_is_told_what_to_use():
    """Such as the workers of multiprocessing.Pool, Celery and Airflow are."""
    context = warm_up()
    ours, theirs = context.Pipe()
    started = context.Process(target=says_why_not, args=(theirs,), daemon=True, name="worker 3")
    started.start()
    theirs.close()
    assert ours.recv().startswith("worker 3: training starts processes, which a daemonic one may not")
    started.join()
    assert multiprocessing.current_process().daemon is False


def test_memory_is_what_a_container_may_have(monkeypatch, tmp_path):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(surroundings, "_LIMITS", (str(limit),))
    whole = surroundings.memory_bytes()
    assert whole is not None and whole > 10**8
    for text, expected in (("max\n", whole), ("4096\n", 4096), ("9" * 18, whole)):
        limit.write_text(text)
        assert surroundings.memory_bytes() == expected
