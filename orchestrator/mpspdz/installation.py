"""Finding an MP-SPDZ installation and saying what it lacks. Nothing here builds or downloads one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from orchestrator.errors import ConfigError

__all__ = ["PROTOCOLS", "TESTED_VERSIONS", "Installation", "Protocol", "certificate_fault", "find", "named"]

TESTED_VERSIONS = ("0.4.2",)


@dataclass(frozen=True)
class Protocol:
    """One of MP-SPDZ's, by what differs in how it is run.

    Attributes:
        parties: how many processes; the third one is a dealer.
        options: of its parties.
    """

    parties: int
    options: tuple[str, ...] = ()

    @property
    def dealer(self) -> bool:
        return self.parties == 3


PROTOCOLS = {
    "semi2k": Protocol(2, ("-e",)),  # else it sends in plain text; the dealer's protocol never does
    "dealer-ring": Protocol(3),
}

_DEFAULT = Path("third_party/MP-SPDZ")
_RELEASES = "https://github.com/data61/MP-SPDZ/releases"


@dataclass(frozen=True)
class Installation:
    """The folder of an installation; whatever is asked of it is checked when it is asked."""

    home: Path

    @property
    def version(self) -> str:
        """As its change log states it; "unknown" where there is none."""
        try:
            text = (self.home / "CHANGELOG.md").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "unknown"
        found = re.search(r"^## (\d+\.\d+(?:\.\d+)?)", text, re.MULTILINE)
        return found.group(1) if found else "unknown"

    @property
    def compiler(self) -> Path:
        """Raises ConfigError where it is missing."""
        return self._file("compile.py", "it is part of every release and of the sources")

    def binary(self, protocol: str) -> Path:
        """The party of a protocol. Raises ConfigError where it is missing or cannot be executed."""
        name = f"{protocol}-party.x"
        path = self._file(name, "run Scripts/tldr.sh in a binary release, or `make` it in the sources")
        if not os.access(path, os.X_OK):
            raise ConfigError(f"MP-SPDZ: {path} is not executable; run `chmod +x {path}`")
        return path

    @property
    def certificates(self) -> Path:
        return self.home / "Player-Data"

    def check(self, protocol: str) -> None:
        """Raises ConfigError where a party of a protocol could not be run, naming the first thing at fault."""
        self.binary(protocol)
        self.check_certificates(protocol)

    def check_certificates(self, protocol: str) -> None:
        """Raises ConfigError naming the first file that is missing, expired or does not match."""
        parties = PROTOCOLS[protocol].parties
        for party in range(parties):
            if fault := certificate_fault(self.certificates, party):
                raise ConfigError(f"MP-SPDZ: {fault}; run `Scripts/setup-ssl.sh {parties}` in {self.home}")

    def _file(self, name: str, cure: str) -> Path:
        path = self.home / name
        if not path.is_file():
            raise ConfigError(f"MP-SPDZ: {path} is missing; {cure}")
        return path


def named(home: Path | None = None) -> Path | None:
    """Where somebody says that the installation is: `home`, else MPSPDZ_HOME; None where nobody does."""
    variable = os.environ.get("MPSPDZ_HOME")
    return home or (Path(os.path.expanduser(variable)) if variable else None)


def find(home: Path | None = None) -> Installation:
    """The installation at `home`, else at `MPSPDZ_HOME`, else at third_party/MP-SPDZ.

    Raises:
        ConfigError: there is none; says which release to unpack where.
    """
    folder = named(home) or _DEFAULT
    if not (folder / "compile.py").is_file():
        where = "MPSPDZ_HOME points there" if named() and home is None else "or let MPSPDZ_HOME name another place"
        raise ConfigError(
            f"MP-SPDZ: no installation at {folder}; unpack the binary release {TESTED_VERSIONS[-1]} from {_RELEASES} "
            f"there and run its Scripts/tldr.sh and Scripts/setup-ssl.sh 3 ({where})"
        )
    return Installation(folder.resolve())


def certificate_fault(folder: Path, party: int, now: datetime | None = None) -> str:
    """What is wrong with a party's certificate and key, as one line; empty if nothing."""
    certificate, key = folder / f"P{party}.pem", folder / f"P{party}.key"
    for path in (certificate, key):
        if not path.is_file():
            return f"{path} is missing"
    try:
        loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
        # Whether RSA primes are prime is none of our business, and takes a tenth of a second.
        private = serialization.load_pem_private_key(key.read_bytes(), None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError):
        return f"{certificate} or {key.name} cannot be read"
    if loaded.public_key() != private.public_key():
        return f"{certificate} does not match {key.name}"
    now = now or datetime.now(UTC)
    if now > loaded.not_valid_after_utc:
        return f"{certificate} expired on {loaded.not_valid_after_utc:%Y-%m-%d}"
    if now < loaded.not_valid_before_utc:
        return f"{certificate} is valid only from {loaded.not_valid_before_utc:%Y-%m-%d}"
    linked = (link.resolve() for link in folder.glob("*.[0-9]"))
    if certificate.resolve() not in linked:
        return f"{certificate} has no hash link (c_rehash)"
    return ""
