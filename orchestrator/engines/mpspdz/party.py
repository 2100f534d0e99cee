"""One party of one run: a process in a folder of its own, watched until it ends.

Parallel runs never share `Player-Data`, `Persistence` or bytecode: a party's folder holds links to the compiled
program and to the certificates, and the party's own shares.
"""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.engines.mpspdz.compiler import Compiled, Shape
from orchestrator.engines.mpspdz.installation import PARTIES, Installation
from orchestrator.engines.mpspdz.output import PartyCost, parse_cost

__all__ = ["Party", "PartyError", "PortInUseError"]

_LAST_LINES = 3
_PORT_IN_USE = "Address already in use"


class Waitable(Protocol):
    """Whatever `select` takes."""

    def fileno(self) -> int: ...


class PartyError(Exception):
    """A party ended without a result; the message holds the last lines of what it said."""


class PortInUseError(PartyError):
    """Another process has the port; another base port may do."""


@dataclass
class Party:
    """One party's place: use it as a context manager, which leaves neither files nor a process behind."""

    installation: Installation
    shape: Shape
    compiled: Compiled
    index: int

    def __enter__(self) -> Party:
        self._parent = tempfile.TemporaryDirectory(prefix=f"safegnn-party-{self.index}-")
        self.folder = Path(self._parent.name)
        (self.folder / "Programs").symlink_to(self.compiled.folder / "Programs")
        data = self.folder / "Player-Data"
        data.mkdir()
        for path in self.installation.certificates.iterdir():
            if path.suffix == ".pem" or path.suffix[1:].isdigit() or path.name == f"P{self.index}.key":
                (data / path.name).symlink_to(path.resolve())
        return self

    def __exit__(self, *_: object) -> None:
        self._parent.cleanup()

    @property
    def shares(self) -> Path:
        """The party's file of shares."""
        return self.folder / "Persistence" / f"Transactions-P{self.index}.data"

    def run(self, host: str, port: int, timeout_sec: float, lifeline: Waitable | None = None) -> PartyCost:
        """Run the program with the other parties, who must be started within the time too.

        Args:
            host: of party 0.
            port: the base: party i listens on port + i.
            timeout_sec: for the whole run.
            lifeline: a connection on which nothing is due; when something arrives or it closes, nobody waits for the
                result any more.

        Returns:
            What it cost.

        Raises:
            PortInUseError: choose another base.
            PartyError: it failed, was killed, or took too long.
        """
        parties = str(PARTIES[self.shape.protocol])
        command = [str(self.installation.binary(self.shape.protocol)), "-p", str(self.index), "-N", parties]
        command += ["-pn", str(port), "-h", host, *self.shape.party_options, self.compiled.name]
        started = time.monotonic()
        process = subprocess.Popen(
            command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert process.stdout is not None
        text = ""
        try:
            # The end of its output is the end of the process, so nothing needs to be polled.
            watched = [process.stdout] if lifeline is None else [process.stdout, lifeline]
            while True:
                remaining = timeout_sec - (time.monotonic() - started)
                events, _, _ = select.select(watched, [], [], max(0.0, remaining))
                if not events:
                    raise PartyError(f"took more than {timeout_sec:g} s{_said(text)}")
                if lifeline in events:
                    raise PartyError("nobody waits for the result any more")
                data = os.read(process.stdout.fileno(), 1 << 16)
                if not data:
                    break
                text += data.decode(errors="replace")
                if _PORT_IN_USE in text:  # it would try again for ever
                    raise PortInUseError(f"a port from {port} to {port + PARTIES[self.shape.protocol] - 1} is in use")
            process.wait()
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        if process.returncode != 0:
            how = f"status {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
            raise PartyError(f"ended with {how}{_said(text)}")
        try:
            return parse_cost(text)
        except ValueError as error:
            raise PartyError(str(error)) from None


def _said(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f": {' / '.join(lines[-_LAST_LINES:])}" if lines else ""
