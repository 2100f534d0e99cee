"""A consortium for tests: keys in folders, and the roster of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.agreement.identity import OwnKey
from orchestrator.agreement.roster import Member, Roster

ROLES = {
    "uni-x": "server 0",
    "uni-y": "server 1",
    "hub": "coordinator",
    "north": "site north",
    "south": "site south",
}


@dataclass
class Consortium:
    """Folders of keys by name, and the file that the roster is in."""

    folder: Path
    keys: dict[str, OwnKey]
    roster: Roster

    @property
    def file(self) -> Path:
        return self.folder / "consortium.yaml"

    def identity(self, name: str):
        return self.roster.tls(self.keys[name], ROLES[name])


def make_consortium(folder: Path, ports: tuple[int, int] = (7700, 7701), host: str = "127.0.0.1") -> Consortium:
    keys = {name: OwnKey.create(folder / name, name) for name in ROLES}
    addresses = {"uni-x": (host, ports[0]), "uni-y": (host, ports[1])}
    members = {name: Member(name, key.certificate, addresses.get(name)) for name, key in keys.items()}
    roster = Roster("trial", (members["uni-x"], members["uni-y"]), members["hub"], (members["north"], members["south"]))
    made = Consortium(folder, keys, roster)
    made.file.write_text(roster.to_yaml())
    return made
