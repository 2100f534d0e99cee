"""Node tables and edge lists on disk, read into a `RawGraph`; every fault names its file and place.

Rows are counted from 1 below the header, lines from 1 at the top of the file. Identifiers never pass through
floating point: Twitter ids, for example, exceed 2^53.
"""

from __future__ import annotations

import contextlib
import warnings
from array import array
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.errors import DataError
from orchestrator.graphs.meaning import UNKNOWN, Meaning

__all__ = [
    "RawGraph",
    "coded",
    "numeric",
    "present",
    "read_edges",
    "read_features",
    "read_ids",
    "read_table",
    "value_names",
]


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
        meaning: what features, classes and groups are called.
        ids: what the nodes are called in the files; None: by their number from 0.
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
    """Read a comma-separated table with a header.

    Args:
        path: UTF-8 text.
        text: columns that must exist and stay text, so that ids are exact; empty fields become ``""``.
        required: further columns that must exist.

    Raises:
        DataError: unreadable, empty, ragged, or a column is missing.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            frame = pd.read_csv(
                path,
                dtype=dict.fromkeys(text, str),
                encoding="utf-8-sig",
                index_col=False,
                keep_default_na=False,  # an id may be the text "NA"; only an empty field is missing
                na_values=[""],
                low_memory=False,
            )
    except pd.errors.EmptyDataError:
        raise DataError(f"{path}: empty; expected a header and one row a node") from None
    except pd.errors.ParserWarning:
        raise DataError(f"{path}: rows have more fields than the header has columns") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:  # pandas' ParserError is a ValueError
        raise DataError(f"{path}: cannot be read as a comma-separated table: {' '.join(str(error).split())}") from None
    missing = [column for column in (*text, *required) if column not in frame.columns]
    if missing:
        raise DataError(f"{path}: no column {', '.join(map(repr, missing))}; expected in the header line")
    if frame.empty:
        raise DataError(f"{path}: no rows below the header; expected one row a node")
    for column in text:
        frame[column] = frame[column].fillna("").str.strip()
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


def coded(
    frame: pd.DataFrame,
    column: str,
    path: Path | str,
    missing: str | None,
    missing_code: int,
    most: int = 2,
    order: Sequence[str] | None = None,
) -> np.ndarray:
    """A text column of two to `most` values as int8 of shape (n,): the place of each in the order of the values.

    Values are ordered as numbers if all are numbers, else as text.

    Args:
        missing: the text that means "unknown", coded as `missing_code`; None: there is none.
        order: the values in their order, of which some may be lacking, instead.

    Raises:
        DataError: there are fewer or more values, one is not in `order`, or a field is empty without being `missing`.
    """
    fields = frame[column].to_numpy(object)
    values = value_names(frame[column], missing)
    wrong = next((value for value in values if not value or (order is not None and value not in order)), None)
    if wrong is not None:
        row, got = int(np.flatnonzero(fields == wrong)[0]), repr(wrong) if wrong else "empty"
        expected = "one of two values" if order is None else f"one of {', '.join(map(repr, order))}"
        raise DataError(f"{path}: column {column!r}, row {row + 1}: {got}; expected {expected}")
    if order is None and not 2 <= len(values) <= most:
        shown = ", ".join(map(repr, values[:5])) + (", ..." if len(values) > 5 else "")
        expected = "two values" if most == 2 else f"2 to {most} values"
        raise DataError(f"{path}: column {column!r}: expected {expected}, got {len(values)}: {shown}")
    codes = {value: code for code, value in enumerate(values if order is None else order)}
    return np.array([missing_code if field == missing else codes[field] for field in fields], np.int8)


def value_names(fields: pd.Series, missing: str | None) -> list[str]:
    """The distinct texts but `missing`, in the order of numbers if all are numbers, else of text."""
    values = sorted({field for field in fields if field != missing})
    with contextlib.suppress(ValueError):
        values.sort(key=float)
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
