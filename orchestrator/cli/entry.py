"""How a command begins and ends: its output, its signals, and one line on standard error for whatever goes wrong.

Nothing but this is imported before signals are heeded, so that Ctrl-C in the first second is one line too.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

__all__ = ["main"]

_DEBUG = "SAFEGNN_TRACEBACK"

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if hasattr(signal, "SIGHUP") else (signal.SIGINT,)


class _Output:
    """Standard output or error that outlives its reader: once `head` has what it wants, the rest goes nowhere.

    What the stream's encoding does not have becomes a question mark, or an escape.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        if stream.errors == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._discard()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._discard()

    def _discard(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Signals:
    """The first interrupt ends the command as Ctrl-C does, whichever it is; those that are ignored stay so.

    Attributes:
        received: the signal that came first; 0: none.
    """

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}
        self._hook = sys.unraisablehook

    def __enter__(self) -> _Signals:
        if threading.current_thread() is threading.main_thread():
            for number in _INTERRUPTS:
                before = signal.getsignal(number)
                if before in (signal.SIG_DFL, signal.default_int_handler):
                    self._before[number] = signal.signal(number, self._interrupt)
            sys.unraisablehook = self._lost
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.received else before)  # the end is no place for a second one
        if not self.received:
            sys.unraisablehook = self._hook

    def _interrupt(self, number: int, frame: FrameType | None) -> NoReturn:
        self.received = self.received or number
        raise KeyboardInterrupt

    def _lost(self, what: sys.UnraisableHookArgs) -> None:
        """Where nobody can hear of an exception, such as in a callback of an import, an interrupt comes once more.

        It is sent to the main thread: one that its own thread took would not end what the main thread waits for.
        """
        if isinstance(what.exc_value, KeyboardInterrupt):
            threading.Timer(0.05, signal.pthread_kill, [threading.main_thread().ident, self.received]).start()
        elif not self.received:
            self._hook(what)


def main() -> None:
    """Entry point: every failure is one line on standard error and a non-zero exit status."""
    _open_standard_streams()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Output(sys.stdout), _Output(sys.stderr)
    try:
        with _Signals() as signals:
            try:
                line, status = _run(_expanded(sys.argv[1:]))
            except BaseException as error:  # in the middle of an import an interrupt may come as anything
                line, status = _last_line(error, signals.received)
        if signals.received and status:
            line, status = line if status == 130 else "interrupted", 128 + signals.received
        if line:
            print(f"safegnn: {' '.join(line.split())}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        sys.stdout, sys.stderr = before
    sys.exit(status)


def _run(arguments: Sequence[str]) -> tuple[str, int]:
    """What is to be said at the end, and the exit status. Expected failures are no exceptions here."""
    import click

    from orchestrator.errors import SafeGNNError
    from orchestrator.surroundings import check_platform

    try:
        check_platform()
        from orchestrator.cli.app import app

        status = app(list(arguments), standalone_mode=False)
    except SafeGNNError as error:
        return str(error), error.exit_status
    except click.ClickException as error:  # of a bare command, which has printed its help already, it is empty
        return error.format_message(), 2 if error.format_message() else error.exit_code
    except click.Abort:
        return "interrupted", 130
    if status == 130:  # what typer makes of Ctrl-C
        return "interrupted", 130
    return "", status if isinstance(status, int) else 0


def _last_line(error: BaseException, interrupted: int) -> tuple[str, int]:
    """What to say of an exception that nobody foresaw: where it was, not what it says, which may hold data."""
    if interrupted or isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if os.environ.get(_DEBUG):
        traceback.print_exception(error)
    if isinstance(error, SystemExit):
        return "", error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, MemoryError):
        return "out of memory; use fewer or smaller clients, a smaller model, or fewer engine.client_processes", 1
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror, 1
    if isinstance(error, RecursionError):
        return "the input is nested too deeply", 1
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
    return f"a fault of the program: {where}; {_DEBUG}=1 shows more, please report it", 1


def _open_standard_streams() -> None:
    """Give a closed descriptor of the three to nobody else: a connection that took its place would be written to."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest one that is free
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - lives as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _expanded(arguments: Sequence[str]) -> list[str]:
    """The home folder for a ~, which shells leave alone in ``--config=~/my.yaml``."""
    expanded = []
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if not (argument.startswith("--") and equals and value.startswith("~")):
            option, equals, value = "", "", argument
        expanded.append(option + equals + (os.path.expanduser(value) if value.startswith("~") else value))
    return expanded
