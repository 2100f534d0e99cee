"""The one writer of tables: Markdown to read, CSV to compute with, and how a figure stands in a cell."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from orchestrator.files import write_atomically

__all__ = ["Spread", "gap_lines", "markdown", "metric", "nodes_behind", "short", "with_nodes", "write_table"]


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


def gap_lines(
    values: Mapping[str, float | None], gaps: Mapping[str, Mapping[str, Any]], undefined: Mapping[str, str]
) -> list[str]:
    """A line a gap: its size, its interval, and the nodes that it is of.

    Args:
        values: the metrics of an evaluation, by name.
        gaps, undefined: of the same evaluation, as `Evaluation` has them.
    """
    lines = []
    for name, facts in gaps.items():
        line = f"{name} undefined: {undefined.get(name)}"
        if values[name] is not None:
            line = f"{name} {metric(values[name])}, 95 % interval {facts['low']:.4f} to {facts['high']:.4f}"
        line += f"; n = {facts['n_s0']} (s = 0), {facts['n_s1']} (s = 1)"
        if facts.get("classes_compared"):
            line += f", class {facts['class']}, which differs most of {facts['classes_compared']}"
        if "clients" in facts:
            line += f"; over {facts['clients']} clients that have both groups"
            if values[f"{name}_mean"] is not None:
                behind = f"n = {facts['worst_n_s0']}, {facts['worst_n_s1']}"
                line += f" mean {metric(values[f'{name}_mean'])}, worst {metric(values[f'{name}_worst'])} ({behind})"
            line += f"; {facts['clients_lacking']} lack one"
        lines.append(line)
    return lines


def nodes_behind(evaluations: Sequence[Mapping[str, Any]], name: str) -> tuple[int, int] | None:
    """Of group 0 and group 1, the nodes that a gap compares, the fewest over several runs; None of other metrics.

    Args:
        evaluations: as `metrics.jsonl` has them, at least one.
    """
    facts = [evaluation.get("gaps", {}).get(name) for evaluation in evaluations]
    if None in facts:
        return None
    return min(own["n_s0"] for own in facts), min(own["n_s1"] for own in facts)


def with_nodes(cell: object, nodes: tuple[int, int] | None) -> str:
    """A cell of a gap with the nodes of both groups beside it."""
    return str(cell) if nodes is None else f"{cell} (n = {nodes[0]}, {nodes[1]})"


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
