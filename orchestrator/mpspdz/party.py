"""One party of one run: a process in a folder of its own, watched until it ends.

Parallel runs never share `Player-Data`, `Persistence` or bytecode: a party's folder holds links to the compiled
program and to the certificates, and the party's own shares.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.mpspdz.compiler import Compiled
from orchestrator.mpspdz.installation import Installation
from orchestrator.mpspdz.output import PartyCost, parse_cost
from orchestrator.mpspdz.shape import Job
from orchestrator.transport.channel import await_events

__all__ = ["Party", "PartyError", "PortInUseError", "Waitable"]

_LAST_LINES = 3
_PORT_IN_USE = "Address already in use"
_NAMED = re.compile(r"because party (\d+) encountered")
_VICTIM = re.compile(
    r"because another party|problem on the other side|stream truncated|Connection reset by peer|Broken pipe|"
    r"Timed out waiting for peer|cannot connect from"
)
"""What a party says when it is not itself at fault, with the number of the one that is, and without."""


class Waitable(Protocol):
    """An open file or connection."""

    def fileno(self) -> int: ...


class PartyError(Exception):
    """A party ended without a result; the message holds the last lines of what it said.

    Attributes:
        blamed: the party at fault as far as this one can tell: its index, "other", or "own" for itself.
        stalled: it did not end by itself.
    """

    def __init__(self, reason: str, blamed: str = "own", stalled: bool = False) -> None:
        super().__init__(reason)
        self.blamed, self.stalled = blamed, stalled


class PortInUseError(PartyError):
    """Another process has the port; another base port may do."""


@dataclass
class Party:
    """One party's place: use it as a context manager, which leaves neither files nor a process behind.

    Attributes:
        installation, job, compiled: what to run.
        index: which party.
        scratch: the folder in which to make its own.
    """

    installation: Installation
    job: Job
    compiled: Compiled
    index: int
    scratch: Path

    def __enter__(self) -> Party:
        """Raises ConfigError where certificates are missing or no longer valid, OSError where files cannot be made."""
        self.installation.check_certificates(self.job.protocol)
        self._parent = tempfile.TemporaryDirectory(prefix=f"party-{self.index}-", dir=self.scratch)
        self.folder = Path(self._parent.name)
        try:
            (self.folder / "Programs").symlink_to(self.compiled.folder / "Programs")
            data = self.folder / "Player-Data"
            data.mkdir()
            for path in self.installation.certificates.iterdir():
                if path.suffix == ".pem" or path.suffix[1:].isdigit() or path.name == f"P{self.index}.key":
                    (data / path.name).symlink_to(path.resolve())
        except BaseException:
            self._parent.cleanup()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._parent.cleanup()

    @property
    def shares(self) -> Path:
        """The party's file of shares."""
        return self.folder / "Persistence" / f"Transactions-P{self.index}.data"

    def run(
        self, host: str, port: int, timeout_sec: float, watch: Mapping[Waitable, Callable[[], None]] | None = None
    ) -> PartyCost:
        """Run the program with the other parties, who must be started within the time too.

        Args:
            host: of party 0.
            port: the base: party i listens on port + i.
            timeout_sec: for the whole run.
            watch: connections, and what to do once something arrives on one or it closes; what that raises ends the
                party.

        Returns:
            What it cost.

        Raises:
            PortInUseError: choose another base.
            PartyError: it failed, was killed, or took too long.
            ConfigError: its binary is missing.
        """
        protocol = self.job.protocol
        command = [str(self.installation.binary(protocol)), "-p", str(self.index), "-N", str(self.job.parties)]
        command += ["-pn", str(port), "-h", host, *self.job.party_options, self.compiled.name]
        deadline = time.monotonic() + timeout_sec
        try:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                restore_signals=False,  # SIGPIPE stays ignored: a party whose peer is lost then says so
            )
        except OSError as error:
            raise PartyError(f"{command[0]} cannot be started ({error.strerror})") from None
        text, assigned = "", dict(watch or {})
        assert process.stdout is not None
        try:
            # The end of its output is the end of the process, so nothing needs to be polled.
            while True:
                waited = dict.fromkeys([process.stdout, *assigned], selectors.EVENT_READ)
                events = await_events(waited, max(0.0, deadline - time.monotonic()))
                if not events:
                    blamed = "other" if _waits(process.pid) else "own"
                    raise PartyError(
                        f"took more than {timeout_sec:g} s (engine.timeout_sec){_said(text)}", blamed, stalled=True
                    )
                if process.stdout in events:
                    data = os.read(process.stdout.fileno(), 1 << 16)
                    if not data:
                        break
                    text += data.decode(errors="replace")
                    if _PORT_IN_USE in text:  # it would try again for ever
                        raise PortInUseError(f"a port from {port} to {port + self.job.parties - 1} is in use")
                for connection in events:
                    if connection in assigned:
                        assigned.pop(connection)()
            process.wait()
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        if process.returncode != 0:
            raise _failure(process.returncode, text)
        try:
            return parse_cost(text)
        except ValueError as error:
            raise PartyError(str(error)) from None


def _failure(code: int, text: str) -> PartyError:
    how = f"status {code}" if code > 0 else f"signal {-code}"
    if named := _NAMED.search(text):
        blamed = named.group(1)
    else:
        blamed = "other" if code == -signal.SIGPIPE or _VICTIM.search(text) else "own"
    return PartyError(f"ended with {how}{_said(text)}", blamed)


def _said(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f": {' / '.join(lines[-_LAST_LINES:])}" if lines else ""


def _waits(pid: int) -> bool:
    """Whether all threads of a process sleep: then it is another one that does not answer."""
    try:
        states = [
            (task / "stat").read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:
        return False
    return bool(states) and set(states) <= {"S", "D"}
