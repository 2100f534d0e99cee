"""Faults of files, gathered so that all are told at once."""

from __future__ import annotations

from orchestrator.errors import DataError

__all__ = ["DataFaults", "Faults"]


class DataFaults(DataError):
    """Several faults in one line.

    Attributes:
        lines: one each.
    """

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines

    def __reduce__(self) -> tuple[type, tuple[tuple[str, ...]]]:
        return type(self), (self.lines,)


class Faults:
    """What is wrong so far; a reader adds to it and goes on as long as there is something to look at."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, line: str) -> None:
        self._lines.append(" ".join(line.split()))

    def add_error(self, error: DataError) -> None:
        """A fault, or the faults, that ended a step."""
        for line in error.lines if isinstance(error, DataFaults) else (str(error),):
            self.add(line)

    @property
    def lines(self) -> tuple[str, ...]:
        """Each once."""
        return tuple(dict.fromkeys(self._lines))

    def __bool__(self) -> bool:
        return bool(self._lines)

    def raise_any(self) -> None:
        """Raises DataFaults if there are any."""
        if self._lines:
            raise DataFaults(self.lines)
