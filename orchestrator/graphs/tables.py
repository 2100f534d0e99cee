"""Node tables and edge lists on disk, read into a `RawGraph`; every fault names its file and place.

Rows are counted from 1 below the header, lines from 1 at the top of the file. Identifiers never pass through
floating point: Twitter ids, for example, exceed 2^53.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.errors import DataError
from orchestrator.graphs.faults import DataFaults
from orchestrator.graphs.meaning import UNKNOWN, Meaning
from orchestrator.graphs.text_files import read_text_table

__all__ = ["RawGraph", "numeric", "present", "read_edges", "read_features", "read_ids", "read_table"]


@dataclass(frozen=True)
class RawGraph:
    """A data set as its files have it, before nodes are chosen and features scaled.

    Attributes:
        name: what messages call the data.
        features: float32, shape (n, f), finite, unscaled.
        labels: int8, shape (n,); 0 .. `classes` - 1 or `orchestrator.graphs.cleaning.MISSING`.
        sensitive: int8, shape (n,); 0 or 1; None: there is no sensitive attribute.
        edges: int64 node indices, shape (2, m); directions, repetitions and self-loops as in the file.
        label_from, sensitive_from, edges_from: where each came from, for messages, e.g. ``"nba.csv: column 'SALARY'"``.
        classes: C, at least 2.
        meaning: what features, classes, groups and clients are called, and what is not in the graph.
        ids: what the nodes are called in the files; None: by their number from 0.
        masks: bool, shape (3, n), of training, validation and test nodes; None: they are to be drawn.
        owner: int64, shape (n,); number of the client whose node it is; None: nobody says.
    """

    name: str
    features: np.ndarray
    labels: np.ndarray
    sensitive: np.ndarray | None
    edges: np.ndarray
    label_from: str
    sensitive_from: str
    edges_from: str
    classes: int = 2
    meaning: Meaning = UNKNOWN
    ids: tuple[Hashable, ...] | None = None
    masks: np.ndarray | None = None
    owner: np.ndarray | None = None


def present(name: str, folder: Path, *files: str) -> tuple[Path, ...]:
    """Paths of the files of a named data set, refused unless all are there."""
    paths = tuple(folder / file for file in files)
    for path in paths:
        if not path.is_file():
            raise DataError(
                f"{path}: no such file; run `safegnn data fetch {name} --data-dir {folder}` or put {path.name} there"
            )
    return paths


def read_table(path: Path, text: Collection[str], required: Collection[str] = ()) -> pd.DataFrame:
    """Read a table with a header.

    Args:
        path: UTF-8 text.
        text: columns that must exist and stay text, so that ids are exact; empty fields become ``""``.
        required: further columns that must exist.

    Raises:
        DataError: unreadable, empty, ragged, a column is missing, has no name, or there are two of it.
    """
    try:
        frame = read_text_table(path, text, "utf-8")
    except DataFaults as faults:  # a data set by name is in UTF-8, whatever else could be read
        raise DataError(faults.lines[0].partition(";")[0]) from None
    missing = [column for column in (*text, *required) if column not in frame.columns]
    if missing:
        raise DataError(f"{path}: no column {', '.join(map(repr, missing))}; expected in the header line")
    return frame


def read_ids(
    frame: pd.DataFrame, column: str, path: Path | str, parse: Callable[[Any], Hashable]
) -> dict[Hashable, int]:
    """Map each node's id to its row index from 0.

    Args:
        parse: from a field to an exact id, e.g. ``int`` or ``str``; raises ValueError on what is no id.

    Raises:
        DataError: an id is empty, malformed or occurs twice.
    """
    rows: dict[Hashable, int] = {}
    for row, field in enumerate(frame[column]):
        try:
            node = parse(field)
        except ValueError:
            node = None
        if node is None or field == "":
            expected = "a whole number" if parse is int else "an id"
            raise DataError(f"{path}: column {column!r}, row {row + 1}: expected {expected}, got {field!r}")
        if node in rows:
            raise DataError(
                f"{path}: column {column!r}: id {field} occurs twice, in rows {rows[node] + 1} and {row + 1}"
            )
        rows[node] = row
    return rows


def read_features(frame: pd.DataFrame, exclude: Collection[str], path: Path | str) -> np.ndarray:
    """All columns but `exclude`, in the file's order, as float32 of shape (n, f).

    Raises:
        DataError: no column is left, or a value is empty, no number, or not finite as float32.
    """
    columns = [column for column in frame.columns if column not in exclude]
    if not columns:
        raise DataError(f"{path}: no feature columns are left beside {', '.join(sorted(exclude))}")
    features = np.empty((len(frame), len(columns)), np.float32)
    for position, column in enumerate(columns):
        with np.errstate(over="ignore"):
            features[:, position] = pd.to_numeric(frame[column], errors="coerce").to_numpy(np.float64)
        bad = np.flatnonzero(~np.isfinite(features[:, position]))
        if len(bad):
            value = frame[column].iloc[bad[0]]
            got = "an empty field" if pd.isna(value) else repr(str(value))
            raise DataError(f"{path}: column {column!r}, row {bad[0] + 1}: expected a finite number, got {got}")
    return features


def numeric(
    frame: pd.DataFrame, column: str, path: Path, allowed: Callable[[float], bool], expected: str
) -> np.ndarray:
    """A text column as float64 of shape (n,), every value `allowed`.

    Raises:
        DataError: naming the first row at fault and what was `expected`.
    """
    values = pd.to_numeric(frame[column], errors="coerce").to_numpy(np.float64)
    distinct, inverse = np.unique(values, return_inverse=True)
    bad = np.flatnonzero(~np.array([allowed(value) for value in distinct], bool)[inverse])
    if len(bad):
        got = frame[column].iloc[bad[0]]
        raise DataError(f"{path}: column {column!r}, row {bad[0] + 1}: expected {expected}, got {got!r}")
    return values


def read_edges(path: Path, rows: Mapping[Hashable, int], parse: Callable[[str], Hashable]) -> np.ndarray:
    """Read one edge a line: two ids separated by blanks, tabs or one comma; no header; empty lines are skipped.

    Args:
        rows: index of every known id, see `read_ids`.
        parse: from text to id, as for `read_ids`.

    Returns:
        int64 indices, shape (2, m), in the file's order. About 2 us and 16 bytes an edge.

    Raises:
        DataError: naming the line that is malformed or holds an id that is not in the node table.
    """
    flat = array("q")
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                fields = line.split(",") if "," in line else line.split()
                if not fields or line.isspace():
                    continue
                if len(fields) != 2:
                    raise DataError(f"{path}: line {number}: expected two node ids, got {line.strip()[:80]!r}")
                for field in fields:
                    try:
                        flat.append(rows[parse(field.strip())])
                    except ValueError:
                        raise DataError(f"{path}: line {number}: {field.strip()[:80]!r} is no node id") from None
                    except KeyError:
                        raise DataError(
                            f"{path}: line {number}: id {field.strip()} is not in the node table; "
                            "both files must come from the same data set"
                        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as an edge list: {error}") from None
    if not flat:
        raise DataError(f"{path}: no edges; expected two node ids a line")
    return np.frombuffer(flat, np.int64).reshape(-1, 2).T.copy()
