"""The one writer of tables: Markdown to read, CSV to compute with, and how a figure stands in a cell."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

from orchestrator.files import write_atomically

__all__ = ["Spread", "markdown", "metric", "short", "write_table"]


class Spread(NamedTuple):
    """Mean and sample standard deviation over runs.

    Attributes:
        mean: None where a run leaves its value undefined: a mean over the others would be of other runs.
        sd: None where the mean is, and of a single run, which has none.
    """

    mean: float | None
    sd: float | None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Spread:
        """Over the values of at least one run."""
        defined = [value for value in values if value is not None]
        if not defined or len(defined) < len(values):
            return cls(None, None)
        return cls(mean(defined), stdev(defined) if len(defined) > 1 else None)

    def __str__(self) -> str:
        return metric(self.mean) if self.sd is None else f"{metric(self.mean)} ± {self.sd:.4f}"


def metric(value: float | None) -> str:
    """A metric as a cell: four digits after the point, or that it is undefined."""
    return "undefined" if value is None else f"{value:.4f}"


def short(value: float | None) -> str | None:
    """A figure of any size as a cell: four significant digits, or no cell."""
    return None if value is None else f"{value:.4g}"


def markdown(rows: Sequence[Mapping[str, object]]) -> str:
    """A table whose columns are the first row's keys; "–" stands where a row has None.

    Raises:
        ValueError: a row has other columns than the first one, or there is no row.
    """
    lines = [_line(_columns(rows)), "|" + "---|" * len(rows[0])]
    lines += [_line(["–" if cell is None else cell for cell in row.values()]) for row in rows]
    return "\n".join(lines)


def write_table(folder: Path, name: str, text: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Write `<name>.md` with a text that holds a table, and `<name>.csv` with rows, in which None is empty.

    Raises:
        RunError: a file cannot be written.
        ValueError: as `markdown`.
    """
    cells = io.StringIO()
    writer = csv.DictWriter(cells, _columns(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    _write(folder / f"{name}.md", f"{text}\n")
    _write(folder / f"{name}.csv", cells.getvalue())


def _columns(rows: Sequence[Mapping[str, object]]) -> list[str]:
    if not rows:
        raise ValueError("expected at least one row")
    columns = list(rows[0])
    for row in rows:
        if list(row) != columns:
            raise ValueError(f"expected the columns {columns}, got {list(row)}")
    return columns


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _write(path: Path, text: str) -> None:
    write_atomically(path, lambda file: file.write(text.encode()))
