"""How a command begins and ends: its output, its signals, and one line for what nobody foresaw."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orchestrator import api, cli
from orchestrator.cli import entry
from orchestrator.coordinator.run_folder import RunFolder
from tests.cli.commands import SETTINGS, assert_refused

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")

ACCOUNT = [
    "account",
    "--sampler",
    "fixed",
    "--clients",
    "30",
    "--cohort",
    "3",
    "--rounds",
    "5",
    "--noise-multiplier",
    "1",
]


# What nobody foresaw


def fail_with(monkeypatch, error):
    def fault(*arguments):
        share = 1234567 * 1000
        raise error or ZeroDivisionError(f"share {share}")

    monkeypatch.setattr("orchestrator.cli.train.load", fault)


def test_an_unforeseen_error_is_one_line_with_its_place_and_not_its_text(safegnn, monkeypatch):
    fail_with(monkeypatch, None)
    assert_refused(safegnn("train"), 1, "ZeroDivisionError in test_entry.py, line ", "SAFEGNN_TRACEBACK=1")
    assert "1234567" not in safegnn("train")[2]


def test_its_traceback_is_shown_on_request_without_local_variables(monkeypatch, capsys):
    """The variables of a round hold shares and updates."""
    fail_with(monkeypatch, ZeroDivisionError("division by zero"))
    monkeypatch.setattr(sys, "argv", ["safegnn", "train"])
    monkeypatch.setenv("SAFEGNN_TRACEBACK", "1")
    with pytest.raises(SystemExit):
        cli.main()
    err = capsys.readouterr().err
    assert "Traceback" in err and "ZeroDivisionError: division by zero" in err and "1234567000" not in err


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "here/x"), 1, "here/x: Read-only file system"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 1, "No space left on device"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "runs"), 1, "runs: Permission denied"),
        (MemoryError(), 1, "out of memory; use fewer"),
        (RecursionError(), 1, "nested too deeply"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_the_machine_refuses_is_one_line(safegnn, monkeypatch, error, status, said):
    fail_with(monkeypatch, error)
    code, out, err = safegnn("train")
    assert (code, out) == (status, "") and err.strip().startswith("safegnn: ") and said in err


# Signals


@pytest.fixture
def signals():
    """Signals as a terminal's command has them; a test run in the background ignores Ctrl-C, one of nohup SIGHUP."""
    before = {number: signal.getsignal(number) for number in entry._INTERRUPTS}
    for number in entry._INTERRUPTS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    hook = sys.unraisablehook
    yield
    sys.unraisablehook = hook
    for number, handler in before.items():
        signal.signal(number, handler)


def begins_and(then, monkeypatch):
    """Training that has made its folder, and then does something else than to train."""

    def train(started, **_):
        started(Path("runs/x"))
        then()
        threading.Event().wait(60.0)

    monkeypatch.setattr(api, "train", train)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_interrupt_is_one_line_that_says_how_to_resume(safegnn, signals, monkeypatch, number):
    begins_and(lambda: signal.raise_signal(number), monkeypatch)
    code, out, err = safegnn("train")
    assert (code, out) == (128 + number, "")
    assert err.startswith("safegnn: interrupted; ") and err.count("\n") == 1 and "--resume runs/x" in err


def test_a_second_interrupt_changes_nothing(safegnn, signals, monkeypatch):
    def twice():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGHUP)

    begins_and(twice, monkeypatch)
    code, _, err = safegnn("train")
    assert code == 143 and err.count("\n") == 1 and "--resume runs/x" in err


def test_an_interrupt_that_a_callback_swallows_comes_once_more(safegnn, signals, monkeypatch):
    class Swallows:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    begins_and(lambda: Swallows() and None, monkeypatch)
    code, _, err = safegnn("train")
    assert code == 143 and err.count("\n") == 1


def test_what_is_ignored_stays_so(safegnn, signals, monkeypatch):
    """As nohup does with SIGHUP."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    fail_with(monkeypatch, MemoryError())
    original = entry._run

    def run(arguments):
        signal.raise_signal(signal.SIGHUP)
        return original(arguments)

    monkeypatch.setattr(entry, "_run", run)
    assert safegnn("train")[0] == 1
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("module", ["orchestrator.cli.app", "click", "rich.table"])
@pytest.mark.parametrize("error", ["", "; raise ImportError('half of it')"])
def test_ctrl_c_while_modules_are_imported_is_one_line(module, error):
    script = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Finder:
    def find_spec(name, path, target=None):
        if name == {module!r}:
            try: signal.raise_signal(signal.SIGINT)
            finally: pass{error}
sys.meta_path.insert(0, Finder)
sys.argv = ["safegnn", "doctor"]
from orchestrator.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "safegnn: interrupted\n")


# Output


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp949", "cp1252", "koi8-r"])
def test_an_output_that_has_not_every_letter_gets_question_marks(monkeypatch, encoding):
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "argv", ["safegnn", *ACCOUNT, "--accountant", "paper"])  # whose table has –
    with pytest.raises(SystemExit) as caught:
        cli.main()
    text = out.buffer.getvalue().decode(encoding)
    assert caught.value.code == 0 and "noise multiplier 1" in text
    entry._Output(out).write("± – █ ü 😀")


@pytest.mark.parametrize("arguments", [ACCOUNT, [*ACCOUNT, "--json"], ["--help"], ["train", *SETTINGS]])
@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_reader_that_goes_ends_nothing(monkeypatch, tmp_path, name, arguments):
    """As `head` does: training goes on, and its results are in the run's folder."""
    monkeypatch.chdir(tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", buffering=1) as pipe:
        monkeypatch.setattr(sys, name, pipe)
        monkeypatch.setattr(sys, "argv", ["safegnn", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
    assert caught.value.code == 0
    if "train" in arguments:
        [run] = (tmp_path / "runs").iterdir()
        assert [record["round"] for record in RunFolder(run).records()] == [1, 2]


def test_a_closed_descriptor_is_given_to_nobody_else():
    script = """
import os, socket, sys
os.close(1), os.close(2)
sys.stdout = sys.stderr = None
from orchestrator.cli.entry import _open_standard_streams
_open_standard_streams()
print("nobody reads this", file=sys.stderr)
os._exit(socket.socket().fileno())
"""
    done = subprocess.run([sys.executable, "-c", script], stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode > 2 and done.stdout == done.stderr == b""


# Paths


def test_the_home_folder_stands_for_a_tilde_wherever_a_path_is(safegnn, monkeypatch, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (home / "my.yaml").write_text("run: {dir: ~/runs}\n")
    status, out, err = safegnn("train", "--config=~/my.yaml", *SETTINGS, "--json")
    assert status == 0, err
    [run] = (home / "runs").iterdir()
    assert json.loads(out)["run"] == str(run)
    assert_refused(safegnn("data", "info", "nba", "--data-dir=~/raw"), 1, f"{home}/raw")
    assert_refused(safegnn("train", "--resume=~/none"), 1, f"{home}/none: no run folder")
    monkeypatch.setenv("MPSPDZ_HOME", "~/MP-SPDZ")
    assert f"no installation at {home}/MP-SPDZ" in " ".join(safegnn("doctor", "--json")[1].split())
    assert not Path("~").exists()


def test_a_tilde_elsewhere_stays(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    given = ["--config=a/~/b", "./~/x", "--set", "method.name=~", "x=~/y", "--data-dir=~/z", "~/w"]
    assert entry._expanded(given) == [*given[:5], "--data-dir=/home/me/z", "/home/me/w"]


def test_a_run_is_resumed_from_another_folder(safegnn, monkeypatch, tmp_path):
    run = Path(json.loads(safegnn("train", *SETTINGS, "--json")[1])["run"]).absolute()
    (run / "metrics.jsonl").unlink(), (run / "checkpoint" / "state.npz").unlink()
    (run / "metrics.csv").unlink(), (run / "costs.csv").unlink()
    monkeypatch.chdir(tmp_path)
    assert safegnn("train", "--resume", str(run), "--json")[0] == 0
    assert RunFolder.open(run)[1].run.dir == run.parent and not (tmp_path / "runs").exists()


def test_a_good_run_leaves_no_temporary_files(tmp_path):
    """Beside torch's own cache, which all its programs share."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "orchestrator.cli", "train", *SETTINGS, "--engine", "embedded"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in temporary.iterdir() if not path.name.startswith("torchinductor_")] == []
