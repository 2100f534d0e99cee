"""Faults of files, gathered so that all are told at once, with the settings that would mend them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.errors import DataError

__all__ = ["Choice", "DataFaults", "Faults"]


class Choice(tuple[str, ...]):
    """Values of which only the user can say which is meant."""


class DataFaults(DataError):
    """Several faults in one line.

    Attributes:
        lines: one each.
        cures: settings of ``data.files`` by name under which the faults would not be; a tuple adds to the present one.
    """

    def __init__(self, lines: tuple[str, ...], cures: Mapping[str, Any] | None = None) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines
        self.cures = dict(cures or {})

    def __reduce__(self) -> tuple[type, tuple[tuple[str, ...], dict[str, Any]]]:
        return type(self), (self.lines, self.cures)


class Faults:
    """What is wrong so far; a reader adds to it and goes on as long as there is something to look at."""

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}
        self.cures: dict[str, Any] = {}

    def add(self, line: str, **cures: Any) -> None:
        """Args: cures: as for `DataFaults`."""
        self._lines[" ".join(line.split())] = None
        for setting, value in cures.items():
            several = type(value) is tuple
            self.cures[setting] = (*self.cures.get(setting, ()), *value) if several else value

    def take(self, other: Faults | DataError) -> None:
        """All of another's, or of an error that ended a step."""
        lines = other.lines if isinstance(other, Faults | DataFaults) else (str(other),)
        cures = other.cures if isinstance(other, Faults | DataFaults) else {}
        for line in lines:
            self.add(line)
        self.add(lines[0], **cures) if lines else None

    @property
    def lines(self) -> tuple[str, ...]:
        """Each once."""
        return tuple(self._lines)

    def __bool__(self) -> bool:
        return bool(self._lines)

    def raise_any(self) -> None:
        """Raises DataFaults if there are any."""
        if self:
            raise DataFaults(self.lines, self.cures)
