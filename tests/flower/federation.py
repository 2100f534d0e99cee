"""Flower on this machine: a SuperLink, SuperNodes with their sites' workers, runs of an app; real TLS and keys."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from orchestrator.site import framing

ROOT = Path(__file__).parent.parent.parent
SECRET = b"the site's own, 32 bytes or more"
_PATIENCE_SEC = 120


class Federation:
    """The processes, each with its output in a file of `folder`. A context manager: leaving it ends them."""

    def __init__(self, folder: Path, tls: bool = True) -> None:
        self.folder, self.port, self._tls = folder, free_port(), tls
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "home").mkdir(parents=True)
        secure = f'root-certificates = "{folder / "ca.crt"}"' if tls else "insecure = true"
        (folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n{secure}\n'
        )
        if tls:
            _write_certificates(folder)

    def start_link(self, *options: str) -> None:
        files = {"ca-certfile": "ca.crt", "certfile": "link.crt", "keyfile": "link.key"}
        secure = [part for name, file in files.items() for part in (f"--ssl-{name}", str(self.folder / file))]
        self.start(
            "link",
            "flower-superlink",
            *(["--enable-supernode-auth", *secure] if self._tls else ["--insecure"]),
            *("--host", "127.0.0.1", "--port", str(self.port), "--disable-runtime-dependency-installation"),
            *options,
        )
        wait_for(self.port)

    def register(self, site: str) -> None:
        """Make a site's Flower key, and tell the SuperLink its public half."""
        key = ec.generate_private_key(ec.SECP384R1())
        encoding, plain = serialization.Encoding, serialization.NoEncryption()
        private = key.private_bytes(encoding.PEM, serialization.PrivateFormat.OpenSSH, plain)
        self._key(site).write_bytes(private)
        public = key.public_key().public_bytes(encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        self._key(site).with_suffix(".pub").write_bytes(public)
        self.call("flwr", "supernode", "register", str(self._key(site).with_suffix(".pub")), "here")

    def start_node(self, site: str, resident: bool, **environment: str) -> None:
        """A SuperNode whose tasks `safegnn flower node` carries out, or Flower's own processes."""
        port, secret = free_port(), self.folder / "secret"
        secret.write_bytes(SECRET)
        secure = ["--root-certificates", str(self.folder / "ca.crt")]
        if self._key(site).exists():
            secure += ["--auth-supernode-private-key", str(self._key(site))]
        self.start(
            f"node {site}",
            "flower-supernode",
            *(secure if self._tls else ["--insecure"]),
            *("--superlink", f"127.0.0.1:{self.port}", "--host", "127.0.0.1", "--port", str(port)),
            *("--node-config", f'site="{site}" socket="{self.socket(site)}"'),
            *(["--isolation", "process", "--superexec-auth-secret-file", str(secret)] if resident else []),
            **environment,
        )
        if resident:
            command = [sys.executable, "-m", "orchestrator.cli", "flower", "node"]
            runtime = ["--runtime", f"127.0.0.1:{port}", "--secret", str(secret)]
            self.start(f"runner {site}", *command, *runtime, **environment)

    def socket(self, site: str) -> Path:
        return self.folder / f"{site}.sock"

    def start(self, name: str, *command: str, **environment: str) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, env={**self._environment, **environment}
            )

    def call(self, *command: str, timeout_sec: float = _PATIENCE_SEC) -> str:
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=timeout_sec)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def run(self, app: Path, config: str, *options: str, timeout_sec: float = _PATIENCE_SEC) -> str:
        """Run an app to its end; returns what it printed."""
        told = ["--run-config", config, *options]
        return self.call("flwr", "run", str(app), "here", "--stream", *told, timeout_sec=timeout_sec)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def kill(self, name: str) -> None:
        """End a process and all that it has started, in whatever sessions."""
        process = self.processes.pop(name)
        for pid in [*_descendants(process.pid), process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.processes):
            self.kill(name)

    def _key(self, site: str) -> Path:
        return self.folder / f"{site}.key"

    @property
    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "FLWR_HOME": str(self.folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_raylet_start_wait_time_s": "300",  # its start is slow on a busy machine
        }


@contextmanager
def worker(path: Path, answer: Callable[[bytes], bytes] = lambda request: request) -> Iterator[None]:
    """A site's worker in a thread of this process, at its socket; by default it says what it is asked."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        thread = threading.Thread(target=_serve, args=(listening, answer), daemon=True)
        thread.start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listening: socket.socket, answer: Callable[[bytes], bytes]) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection:
            deadline = time.monotonic() + _PATIENCE_SEC
            framing.send(connection, answer(framing.receive(connection, deadline)), deadline)


def _descendants(pid: int) -> list[int]:
    """Those of Linux's processes that a process has started, or they in turn."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]


def wait_for(port: int) -> None:
    """Until something listens there."""
    deadline = time.monotonic() + _PATIENCE_SEC
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"nothing listens on port {port}"
            time.sleep(0.1)


def _write_certificates(folder: Path) -> None:
    """A CA and the SuperLink's certificate."""
    ca, link = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    pem, names = serialization.Encoding.PEM, {"ca": "the federation", "link": "127.0.0.1"}
    subjects = {key: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for key, name in names.items()}
    for key, own in (("ca", ca), ("link", link)):
        builder = (
            x509.CertificateBuilder(subjects["ca"], subjects[key], own.public_key(), x509.random_serial_number())
            .not_valid_before(datetime.now(UTC) - timedelta(days=1))
            .not_valid_after(datetime.now(UTC) + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=key == "ca", path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(own.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.public_key()), critical=False)
        )
        if key == "link":
            builder = builder.add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
            )
        (folder / f"{key}.crt").write_bytes(builder.sign(ca, hashes.SHA256()).public_bytes(pem))
    private = link.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "link.key").write_bytes(private)
