"""The servers' and the dealer's processes, on this machine: how they are started, what they say, how they end."""

from __future__ import annotations

import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from orchestrator.coordinator.servers import Met, Servers
from orchestrator.errors import ConfigError, PeerLostError, PeerTimeoutError
from orchestrator.transport.bootstrap import Assignment
from orchestrator.transport.channel import STARTUP, Channel, Position, await_events
from orchestrator.transport.door import SESSION_BYTES, connect
from orchestrator.transport.tls import Identity, create_certificates

__all__ = ["HOST", "OwnServers", "Processes"]

HOST = "127.0.0.1"


@dataclass
class _Child:
    role: str
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    ready: dict[str, Any] = field(default_factory=dict)

    def last_words(self) -> str:
        """Why the process ended, as far as it said so."""
        code = self.process.poll()
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        ended = "closed the connection" if code is None else f"the process ended with status {code}"
        return f"{ended} ({lines[-1]})" if lines else ended


class Processes:
    """One process a role; `start` them, and `close` what is left of them."""

    def __init__(
        self,
        commands: dict[str, list[str]],
        ports: tuple[int, int, int] | None,
        startup_timeout_sec: float,
        timeout_sec: float,
    ) -> None:
        """Args: commands: how to start a role's process; ports: of server 0, server 1, the dealer; None: free ones."""
        self._commands, self._startup_timeout_sec, self._timeout_sec = commands, startup_timeout_sec, timeout_sec
        self._ports = dict(zip(("server 0", "server 1", "dealer"), ports or (0, 0, 0), strict=True))
        self._children: dict[str, _Child] = {}

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by role."""
        return {role: child.process.pid for role, child in self._children.items()}

    def start(self, roles: Sequence[str], session: bytes, certificates: Path) -> dict[str, dict[str, Any]]:
        """Start them; returns what each said when it was ready: its port, and a server's public key.

        Raises:
            ConfigError: one says that it cannot listen, or that a certificate is not fit for use.
            PeerLostError, PeerTimeoutError: one ended, or said nothing in time.
        """
        for role in roles:
            self._spawn(role, session, certificates)
        deadline = time.monotonic() + self._startup_timeout_sec
        return {role: self._await_ready(child, deadline) for role, child in self._children.items()}

    def _spawn(self, role: str, session: bytes, certificates: Path) -> None:
        try:
            log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
            process = subprocess.Popen(
                self._commands[role], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        except OSError as error:
            raise PeerLostError(role, "start", 0, f"cannot be started ({error.strerror or error})") from None
        self._children[role] = _Child(role, process, log)
        assert process.stdin is not None
        timeouts = self._startup_timeout_sec, self._timeout_sec
        assignment = Assignment(role, HOST, self._ports[role], session, certificates, *timeouts)
        try:
            process.stdin.write(assignment.to_line())
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once; what it said is reported by _await_ready

    def _await_ready(self, child: _Child, deadline: float) -> dict[str, Any]:
        stdout = child.process.stdout
        assert stdout is not None
        if not await_events({stdout: selectors.EVENT_READ}, max(0.0, deadline - time.monotonic())):
            reason = f"did not start within {self._startup_timeout_sec:g} s ({STARTUP})"
            raise PeerTimeoutError(child.role, "start", 0, reason)
        line = stdout.readline()
        if not line:
            child.process.wait()
            raise PeerLostError(child.role, "start", 0, child.last_words())
        try:
            child.ready = {**json.loads(line)}
        except (ValueError, TypeError):
            raise PeerLostError(child.role, "start", 0, "said something else than that it is ready") from None
        if "error" in child.ready:
            raise ConfigError(child.ready["error"])
        return child.ready

    def obituary(self, role: str) -> str:
        """Why the connection to this role ended."""
        child = self._children[role]
        try:
            child.process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return "closed the connection"
        return child.last_words()

    def close(self) -> None:
        """End all of them, with whatever they have started themselves; safe to call twice."""
        for child in self._children.values():
            with suppress(ProcessLookupError):
                os.killpg(child.process.pid, signal.SIGKILL)
            child.process.wait()
            for stream in (child.process.stdin, child.process.stdout, child.log):
                if stream is not None:
                    stream.close()
        self._children.clear()


class OwnServers(Servers):
    """Two server processes on this machine, and a dealer's where asked for."""

    def __init__(
        self,
        modules: Mapping[str, str],
        commands: Mapping[str, list[str]],
        ports: tuple[int, int, int] | None,
        certificates: Path | None,
        startup_timeout_sec: float,
        timeout_sec: float,
    ) -> None:
        """As `TwoServerEngine` takes them. Raises ConfigError where a certificate is not fit for use."""
        self._roles, self._certificates = list(modules), certificates
        if certificates is not None:
            for role in (*self._roles, "coordinator"):  # faults show here, not in a process that has started
                Identity.load(certificates, role)
        started = {role: [sys.executable, "-m", module] for role, module in modules.items()}
        self._startup_timeout_sec = startup_timeout_sec
        self._processes = Processes({**started, **commands}, ports, startup_timeout_sec, timeout_sec)

    def meet(self, run: bytes, position: Position) -> Met:
        session = secrets.token_bytes(SESSION_BYTES)
        with _certificates_of_a_session(self._certificates) as folder:
            identity = Identity.load(folder, "coordinator")
            said = self._processes.start(self._roles, session, folder)
        addresses = {role: (HOST, ready["port"]) for role, ready in said.items()}
        channels: dict[str, Channel] = {}
        try:
            for role in ("server 0", "server 1"):
                channels[role] = connect(addresses[role], identity, session, role, position, self._startup_timeout_sec)
        except BaseException:
            for channel in channels.values():
                channel.close()
            raise
        first, second = (bytes.fromhex(said[role]["public_key"]) for role in ("server 0", "server 1"))
        return Met(channels, (first, second), addresses["server 1"], addresses.get("dealer"))

    def obituary(self, role: str) -> str:
        return self._processes.obituary(role)

    def close(self) -> None:
        self._processes.close()

    @property
    def pids(self) -> dict[str, int]:
        return self._processes.pids


@contextmanager
def _certificates_of_a_session(kept: Path | None) -> Iterator[Path]:
    """A folder of certificates: the one that is kept, or one that goes as soon as every process has read its files."""
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="safegnn-") as parent:
        folder = Path(parent) / "certificates"
        create_certificates(folder, days=1)  # asked for at the start of connections only
        yield folder
