"""A participant's own file: who it is, and whom it believes. What it does besides is said by its role's class."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError

from orchestrator.agreement.identity import OwnKey
from orchestrator.agreement.roster import Roster, parse_address
from orchestrator.errors import ConfigError
from orchestrator.section import Section, closest, in_one_line
from orchestrator.yaml_text import parse

__all__ = ["Address", "ParticipantFile"]


def _address(value: Any) -> tuple[str, int]:
    if not isinstance(value, str):
        raise ValueError(f"expected host:port, got {value!r}")
    return parse_address(value)


Address = Annotated[tuple[str, int], BeforeValidator(_address)]


class ParticipantFile(Section):
    """The coordinator's file, and what those of all participants have in common. Paths are relative to the file."""

    identity: Path = Field(description="folder that `safegnn identity new` wrote")
    roster: Path = Field(description="the consortium's consortium.yaml")

    @classmethod
    def read(cls, path: Path) -> Self:
        """The file. Raises ConfigError in one line that names it and the settings at fault."""
        try:
            text = path.expanduser().read_text(encoding="utf-8-sig")
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a ~ that is nobody's
            reason = getattr(error, "strerror", None) or "no text in UTF-8, or no such path"
            raise ConfigError(f"{path}: cannot be read ({reason})") from None
        tree = parse(text, str(path))
        if not isinstance(tree, dict):
            raise ConfigError(f"{path}: expected settings by name, e.g. 'identity: identity'")
        try:
            return cls.model_validate(tree).absolute(path.expanduser().parent.absolute())
        except ValidationError as error:
            raise ConfigError(f"{path}: {in_one_line(error, cls._unknown)}") from None

    @classmethod
    def _unknown(cls, path: Any) -> str:
        """What to say of a setting that its section does not know."""
        section: type[Section] = cls
        for name in path[:-1]:
            section = section.inner().get(str(name), section)
        return f"unknown setting{closest(str(path[-1]), section)}"

    def participant(self) -> tuple[OwnKey, Roster, str]:
        """One's key, the roster, and one's role in it.

        Raises:
            ConfigError: a file is missing or damaged, or the roster has another certificate for this participant.
        """
        own, roster = OwnKey.load(self.identity), Roster.read(self.roster)
        try:
            role = roster.role_named(own.name)
            roster.tls(own, role)
        except ConfigError as error:
            raise ConfigError(f"{self.roster}: {error}") from None
        return own, roster, role
