"""The lock of a folder: one holder, who is named, and none that outlives its process."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import BusyError, RunError
from orchestrator.locks import FolderLock

HOLDER = """
import sys
from pathlib import Path
from orchestrator.locks import FolderLock
with FolderLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_holder_is_named_to_whoever_comes_second_also_by_another_name_of_the_folder(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to("run")
    with FolderLock(tmp_path / "run"):
        for path in (tmp_path / "run", tmp_path / "link"):
            with pytest.raises(BusyError) as caught, FolderLock(path):
                pytest.fail("two hold the lock")
            said = str(caught.value)
            assert said.startswith(f"{path}: process {os.getpid()} on {platform.node()}, since 2") and "\n" not in said
    with FolderLock(tmp_path / "link"):
        pass
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_its_holder_may_enter_again_and_holds_it_until_the_last_exit(tmp_path):
    lock = FolderLock(tmp_path)
    with lock:
        with lock:
            pass
        with pytest.raises(BusyError), FolderLock(tmp_path):
            pass
        lock.confirm()
    with FolderLock(tmp_path) as other:
        other.confirm()


def test_a_killed_holder_leaves_no_lock_though_its_name_stays(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(BusyError, match=f"process {process.pid} on "), FolderLock(tmp_path):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert json.loads((tmp_path / ".lock-holder").read_text())["pid"] == process.pid
        with FolderLock(tmp_path) as lock:
            lock.confirm()
            assert json.loads((tmp_path / ".lock-holder").read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("note", [None, "", "{", "[]", '{"pid": 1}', '{"pid": 1, "host": "h", "since": "soon"}'])
def test_a_holder_that_nobody_can_name_still_holds_it(tmp_path, note):
    with FolderLock(tmp_path):
        path = tmp_path / ".lock-holder"
        path.unlink() if note is None else path.write_text(note)
        with pytest.raises(BusyError, match="another process is writing to it"), FolderLock(tmp_path):
            pass


@pytest.mark.parametrize("what", ["taken over", "removed"])
def test_a_holder_whose_place_was_taken_is_told_before_it_goes_on(tmp_path, what):
    """As on a network file system whose locks count on one machine only; or somebody removed the folder's files."""
    with FolderLock(tmp_path) as lock:
        if what == "removed":
            for path in tmp_path.iterdir():
                path.unlink()
        else:
            (tmp_path / ".lock-holder").write_text(
                '{"pid": 7, "host": "elsewhere", "since": "2026-01-02T03:04:05+00:00"}'
            )
        by = "another process" if what == "removed" else "process 7 on elsewhere, since 2026-01-02 03:04:05,"
        with pytest.raises(BusyError, match=f"{by} has taken its place"):
            lock.confirm()
    assert (tmp_path / ".lock-holder").exists() == (what == "taken over")  # another one's note is not removed


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_folder_that_cannot_be_locked_is_named(tmp_path, kind):
    path = tmp_path / "x"
    if kind == "file":
        path.write_text("")
    with (
        pytest.raises(RunError, match="cannot be locked for writing: there is no such folder") as caught,
        FolderLock(path),
    ):
        pass
    assert str(caught.value).startswith(f"{path}: ") and path.is_file() == (kind == "file")


def test_a_file_system_that_takes_no_files_is_one_line(tmp_path, monkeypatch):
    opened = os.open

    def refuse(path, flags, *arguments, **options):
        if flags & os.O_CREAT and Path(os.fsdecode(path)).parent == tmp_path:
            raise OSError(30, "Read-only file system", str(path))
        return opened(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(RunError, match="cannot be locked for writing: Read-only file system"), FolderLock(tmp_path):
        pass
