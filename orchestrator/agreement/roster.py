"""Who takes part in a consortium: the one file, `consortium.yaml`, that all participants hold alike.

```
consortium: three-hospitals
aggregators:                      # server 0 and server 1; two organisations that do not collude
  - name: university-x
    address: aggregator.university-x.example:7700
    certificate: certificates/university-x.crt   # or the text of the file itself
  - ...
coordinator: {name: ..., address: ..., certificate: ...}
sites:                            # client number k is the k-th, from 0
  - {name: north, certificate: ...}
```

All of it is public. Who changes a copy changes whom its holder believes, so participants compare its digest, which
covers every name, address and key, over something that is not the network. A participant is taken out of it to be
believed no longer.
"""

from __future__ import annotations

import hashlib
import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from pydantic import Field, ValidationError, field_validator

from orchestrator.agreement.identity import OwnKey, fault_of_dates, key_of, name_fault, name_of, parse, readable
from orchestrator.errors import ConfigError
from orchestrator.section import Section, closest, in_one_line
from orchestrator.transport.tls import PinnedIdentity
from orchestrator.yaml_text import dump
from orchestrator.yaml_text import parse as parse_yaml

__all__ = ["Member", "Roster", "parse_address"]

_LONGEST, _LONGEST_CERTIFICATE = 1 << 25, 1 << 16
_MOST_SITES = 10_000
_ADDRESS = re.compile(r"([A-Za-z0-9._-]{1,253}|\[[0-9a-fA-F:.]{2,45}\]):([0-9]{1,5})")
_DOMAIN = b"safegnn roster 1\0"


@dataclass(frozen=True)
class Member:
    """A participant, as all others know it.

    Attributes:
        name: see `orchestrator.agreement.identity.NAME`; the same as in the certificate.
        certificate: in PEM, as the participant made it.
        address: where it listens; None: nowhere.
    """

    name: str
    certificate: bytes
    address: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        if fault := name_fault(self.name):
            raise ConfigError(fault)
        try:
            shown = name_of(self._parsed)
        except ValueError as error:
            raise ConfigError(f"{self.name}: certificate: {error}") from None
        if shown != self.name:
            raise ConfigError(f"{self.name}: certificate: it is {shown}'s, not {self.name}'s")
        alone = ssl.DER_cert_to_PEM_cert(self.der).encode()  # without a text around it
        object.__setattr__(self, "certificate", alone)

    @cached_property
    def _parsed(self) -> x509.Certificate:
        return parse(self.certificate)

    @cached_property
    def der(self) -> bytes:
        return self._parsed.public_bytes(Encoding.DER)

    @property
    def key(self) -> bytes:
        """Its public key."""
        return key_of(self._parsed).public_bytes_raw()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, in groups that one person reads to another."""
        return readable(self._parsed)

    @property
    def expires(self) -> datetime:
        return self._parsed.not_valid_after_utc

    def fault_of_dates(self, now: datetime | None = None) -> str:
        """Why its certificate serves nobody today, with the cure; empty: it does."""
        return fault_of_dates(self._parsed, now)


@dataclass(frozen=True)
class Roster:
    """All participants of a consortium.

    Certificates that are out of date stand in it too, so that one of them stops nobody else: TLS refuses them, and
    `safegnn consortium check` tells.

    Attributes:
        name: of the consortium.
        aggregators: server 0 and server 1.

    Raises:
        ConfigError: on construction, naming who is there twice, or an aggregator without an address.
    """

    name: str
    aggregators: tuple[Member, Member]
    coordinator: Member
    sites: tuple[Member, ...]

    def __post_init__(self) -> None:
        if fault := name_fault(self.name):
            raise ConfigError(f"consortium: {fault}")
        first, second = self.aggregators
        if first.name == second.name or first.key == second.key:
            raise ConfigError(
                f"aggregators: {first.name} is both of them, and would hold both shares of everything; expected two "
                "organisations that do not collude"
            )
        for aggregator in self.aggregators:
            if aggregator.address is None:
                raise ConfigError(f"aggregators: {aggregator.name}: address: must be given")
        if first.address == second.address:
            raise ConfigError(f"aggregators: {first.name} and {second.name} have the same address")
        if not 1 <= len(self.sites) <= _MOST_SITES:
            raise ConfigError(f"sites: there are {len(self.sites)}; expected 1 to {_MOST_SITES}")
        names: dict[str, str] = {}
        keys: dict[bytes, str] = {}
        for role, member in self.members.items():
            if (other := names.setdefault(member.name, role)) != role:
                raise ConfigError(f"the name {member.name} is {other}'s and {role}'s; expected one participant each")
            if (other := keys.setdefault(member.key, role)) != role:
                raise ConfigError(f"{other} and {role} have the same key; expected one of each participant's own")

    @staticmethod
    def read(path: Path) -> Roster:
        """The roster in a file. Raises ConfigError in one line that names the file and what is wrong in it."""
        content = _read(path, _LONGEST)
        if b"PRIVATE KEY" in content:
            raise ConfigError(f"{path}: holds a private key, which no one but its owner may have; make a new one")
        try:
            tree = parse_yaml(content.decode("utf-8-sig"), str(path))
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}: is no text in UTF-8 (byte {error.start})") from None
        if not isinstance(tree, dict):
            raise ConfigError(f"{path}: expected a consortium's roster; `safegnn consortium new` makes one")
        try:
            return _File.model_validate(tree).roster(path.parent)
        except ValidationError as error:
            raise ConfigError(f"{path}: {in_one_line(error, _unknown)}") from None
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    @cached_property
    def members(self) -> Mapping[str, Member]:
        """All participants by their roles."""
        servers = {f"server {index}": member for index, member in enumerate(self.aggregators)}
        numbered = {f"site {site.name}": site for site in self.sites}
        if len(numbered) < len(self.sites):
            names = [site.name for site in self.sites]
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"sites: {twice} stands twice")
        return {**servers, "coordinator": self.coordinator, **numbered}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that is in it, hexadecimal; whether certificates stand in the file or beside it is nothing."""

        def public(member: Member) -> dict[str, Any]:
            return {"name": member.name, "address": member.address, "certificate": member.der.hex()}

        content = {
            "consortium": self.name,
            "aggregators": [public(member) for member in self.aggregators],
            "coordinator": public(self.coordinator),
            "sites": [public(member) for member in self.sites],
        }
        return hashlib.sha256(_DOMAIN + json.dumps(content, sort_keys=True).encode()).hexdigest()

    @cached_property
    def roles(self) -> Mapping[bytes, str]:
        """Of all certificates, by their DER."""
        return {member.der: role for role, member in self.members.items()}

    def role_of(self, certificate_der: bytes) -> str | None:
        """It is "server 0", "server 1", "coordinator" or "site <name>"; None: nobody's here."""
        return self.roles.get(certificate_der)

    def site(self, number: int) -> Member:
        """The site that is this client. Raises IndexError where there is none."""
        if number < 0:
            raise IndexError(number)
        return self.sites[number]

    def role_named(self, name: str) -> str:
        """The role of the participant of this name. Raises ConfigError where there is none."""
        for role, member in self.members.items():
            if member.name == name:
                return role
        names = ", ".join(member.name for member in list(self.members.values())[:8])
        raise ConfigError(f"{name}: no participant of {self.name}; expected e.g. {names}")

    def tls(self, own: OwnKey, role: str) -> PinnedIdentity:
        """By which a participant meets the others of the roster, and nobody else.

        Raises:
            ConfigError: the key is not the one that the roster has for this role.
        """
        member = self.members.get(role)
        if member is None or member.der != ssl.PEM_cert_to_DER_cert(own.certificate.decode()):
            have = f"its {role} is {member.name}" if member else f"it has no {role}"
            raise ConfigError(
                f"{own.files[0]}: is not the certificate of {role} in the roster {self.name}: {have}, "
                f"fingerprint {member.fingerprint if member else 'none'}, and this is {own.name}, {own.fingerprint}"
            )
        return PinnedIdentity.of(role, *own.files, self.roles)

    def to_yaml(self) -> str:
        """Text that `read` reads back as the same roster, with all certificates in it."""

        def entry(member: Member) -> dict[str, str]:
            address = {} if member.address is None else {"address": _address_text(member.address)}
            return {"name": member.name, **address, "certificate": ssl.DER_cert_to_PEM_cert(member.der)}

        return dump(
            {
                "consortium": self.name,
                "aggregators": [entry(member) for member in self.aggregators],
                "coordinator": entry(self.coordinator),
                "sites": [entry(member) for member in self.sites],
            }
        )


def parse_address(text: str) -> tuple[str, int]:
    """Host and port. Raises ValueError."""
    found = _ADDRESS.fullmatch(text)
    if not found or not 1 <= int(found[2]) <= 65535:
        raise ValueError(f"expected host:port, e.g. aggregator.example:7700, got {text[:80]!r}")
    return found[1].strip("[]"), int(found[2])


def _address_text(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Site(Section):
    """A participant that listens nowhere."""

    name: str
    certificate: str = Field(min_length=1)

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if fault := name_fault(name):
            raise ValueError(fault)
        return name

    def member(self, folder: Path) -> Member:
        """Args: folder: what paths are relative to."""
        address: str | None = getattr(self, "address", None)
        try:
            place = None if address is None else parse_address(address)
        except ValueError as error:
            raise ConfigError(f"{self.name}: address: {error}") from None
        return Member(self.name, self._pem(folder), place)

    def _pem(self, folder: Path) -> bytes:
        if "-----BEGIN" in self.certificate:
            return self.certificate.encode(errors="replace")
        return _read(folder / self.certificate, _LONGEST_CERTIFICATE, f"{self.name}: certificate: ")


class _Listening(_Site):
    """A participant to whom others connect."""

    address: str | None = None


class _File(Section):
    """The file."""

    consortium: str
    aggregators: tuple[_Listening, _Listening]
    coordinator: _Listening
    sites: tuple[_Site, ...]

    def roster(self, folder: Path) -> Roster:
        """Raises ConfigError, naming every participant at fault."""
        members, faults = [], []
        for entry in (*self.aggregators, self.coordinator, *self.sites):
            try:
                members.append(entry.member(folder))
            except ConfigError as error:
                faults.append(str(error))
        if faults:
            raise ConfigError("; ".join(faults))
        first, second, coordinator, *sites = members
        return Roster(self.consortium, (first, second), coordinator, tuple(sites))


def _unknown(path: Any) -> str:
    """What to say of a setting that the file does not know."""
    section = _File if len(path) == 1 else _Listening if path[0] != "sites" else _Site
    return f"unknown setting{closest(str(path[-1]), section)}"


def _read(path: Path, longest: int, whose: str = "") -> bytes:
    named = f"{whose}{' '.join(str(path)[:300].split())}"
    try:
        with path.open("rb") as file:
            content = file.read(longest + 1)
    except FileNotFoundError:
        cure = ", where the identity.crt that they made belongs" if whose else "; see `safegnn consortium new`"
        raise ConfigError(f"{named}: is missing{cure}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{named}: cannot be read ({getattr(error, 'strerror', None) or 'no such path'})") from None
    if len(content) > longest:
        raise ConfigError(f"{named}: is longer than {longest} bytes")
    return content
