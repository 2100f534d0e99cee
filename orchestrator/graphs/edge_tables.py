"""Lists of edges as people have them: headers, comments, quotes, weights, ids in several notations, unknown ids."""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.config import ColumnsConfig
from orchestrator.graphs.cells import as_text, meant, whole
from orchestrator.graphs.faults import Faults
from orchestrator.graphs.text_files import SEPARATORS, decoded, listed

__all__ = ["EdgeTable", "edge_frame", "read_edge_list", "resolved"]

_WORDS = "src|source|from|dst|dest|destination|target|to|node|id|user|person|head|tail|start|end|left|right|[uvijab]"
_END = re.compile(rf"({_WORDS})[ _-]*(node|id|user)?[ _-]*[0-9ab]?", re.IGNORECASE)
"""What a column of ends is called."""


@dataclass(frozen=True)
class EdgeTable:
    """Edges by the ids of their ends.

    Attributes:
        ends: the two columns, as text.
        lines: int64, where each edge stands in its file, counted from 1.
        unit: what is counted, "line" or "row".
        attributes: what further columns there are.
        source: what messages call it.
        reading: how the file was understood, for a report.
        owner: the client whose file it is; its ids are that client's own.
    """

    ends: tuple[Sequence[str], Sequence[str]] = field(repr=False)
    lines: np.ndarray = field(repr=False)
    unit: str
    attributes: tuple[str, ...]
    source: str
    reading: str = ""
    owner: str | None = None


@dataclass(frozen=True)
class Resolved:
    """Attributes: pairs: node indices, int64, shape (2, m). read: edges there were. skipped: of unknown ends."""

    pairs: np.ndarray = field(repr=False)
    read: int
    skipped: int


def edge_frame(frame: pd.DataFrame, config: ColumnsConfig, source: str, faults: Faults) -> EdgeTable | None:
    """The edges of a table with a header. Returns None, with a fault, where it does not say which columns are ends."""
    columns = [str(column) for column in frame.columns]
    chosen = _ends(columns, config, source, faults)
    if chosen is None:
        return None
    ends = tuple(as_text(frame.iloc[:, k]) for k in chosen)
    others = tuple(column for k, column in enumerate(columns) if k not in chosen)
    return EdgeTable((ends[0], ends[1]), np.arange(1, len(frame) + 1), "row", others, source)


def read_edge_list(
    path: Path, config: ColumnsConfig, encoding: str, known: Mapping[Hashable, int] | None, faults: Faults
) -> EdgeTable | None:
    """Two ids a line, and what else there is.

    The first line that is no comment says what separates the ids. It is a header if the settings name columns, or if
    neither of its fields is a node's id and they look like names of columns.

    Args:
        known: the ids that there are; None: they could not be read, and nothing is said of them.

    Raises:
        DataError: the file cannot be read as text.
    """
    content = decoded(path, encoding).replace("\r\n", "\n").replace("\r", "\n")
    if not content.strip("\n \t"):
        faults.add(f"{path}: empty; expected two node ids a line")
        return None
    comments, found = 0, []
    for number, line in enumerate(content.split("\n"), start=1):
        stripped = line.strip()
        if stripped.startswith(("#", "%")) and not _is_known(re.split(r"[\s,;|]", stripped)[0], known or {}):
            comments += 1
        elif stripped:
            found.append((number, stripped))
    if not found:
        faults.add(f"{path}: no edges, only comments; expected two node ids a line")
        return None
    separator = next((mark for mark in "\t;,|" if mark in found[0][1]), " ")
    rows = _fields(found, separator)
    _, first = head = next(rows)
    chosen = 0, 1
    names: list[str] = []
    if config.source is not None or config.target is not None or _is_header(first, known):
        names = first
        named = _ends(names, config, str(path), faults)
        if named is None:
            return None
        chosen = named
    else:
        rows = iter([head, *rows])
    ignored, needed = config.edge_attributes == "ignore", max(chosen) + 1
    ends, lines, wrong = ([], []), array("q"), []  # type: tuple[list[str], list[str]], array[int], list[tuple[int, int]]
    for number, fields in rows:
        if len(fields) < needed or (len(fields) != len(first) and not ignored):
            wrong.append((number, len(fields)))
            continue
        ends[0].append(fields[chosen[0]])
        ends[1].append(fields[chosen[1]])
        lines.append(number)
    if len(first) < 2:
        faults.add(f"{path}: line {head[0]}: expected two node ids, got {found[0][1][:80]!r}")
        return None
    if wrong:
        more = f", and so do others, {len(wrong)} lines altogether" if len(wrong) > 1 else ""
        faults.add(f"{path}: line {wrong[0][0]} has {wrong[0][1]} fields, line {head[0]} has {len(first)}{more}")
        return None
    attributes = tuple(name for k, name in enumerate(names) if k not in chosen)
    if not names:
        attributes = tuple(f"field {k + 1}, such as {text!r}" for k, text in enumerate(first) if k not in chosen)
    reading = f"ids separated by {SEPARATORS[separator]}"
    reading += f", line {head[0]} is a header of {listed(names)}" if names else ""
    reading += f", {comments} {'line' if comments == 1 else 'lines'} of comment" if comments else ""
    return EdgeTable(ends, np.array(lines, np.int64), "line", attributes, str(path), reading)


def _fields(lines: Sequence[tuple[int, str]], separator: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in lines:
        if '"' in line:
            try:
                fields = next(csv.reader([line], delimiter=separator, skipinitialspace=True))
            except csv.Error:  # a field longer than any id
                fields = []
            yield number, [field.strip() for field in fields]
        else:
            yield number, line.split() if separator == " " else [field.strip() for field in line.split(separator)]


def _is_known(text: str, known: Mapping[Hashable, int]) -> bool:
    return text in known or whole(text) in known


def _is_header(fields: Sequence[str], known: Mapping[Hashable, int] | None) -> bool:
    ends = fields[:2]
    if known and any(_is_known(text, known) for text in ends):
        return False
    if all(_END.fullmatch(text) for text in ends):
        return True
    return bool(known) and all(str(node).isdigit() for node in known or ()) and not any(map(_is_number, ends))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _ends(names: Sequence[str], config: ColumnsConfig, source: str, faults: Faults) -> tuple[int, int] | None:
    """Which two columns of a header are the ends."""
    if twice := sorted({name for name in names if list(names).count(name) > 1}):
        faults.add(f"{source}: two columns are called {twice[0]!r}; expected different names")
        return None
    if len(names) < 2:
        faults.add(f"{source}: expected two columns of node ids, got {listed(names) or 'none'}")
        return None
    wanted = {"source": config.source, "target": config.target}
    given = [name for name in wanted.values() if name is not None]
    if not given:
        if also := [name for name in names[2:] if _END.fullmatch(name)]:
            faults.add(
                f"{source}: of {listed(names, 10)} {also[0]!r} may be an end of the edges too; data.files.source and "
                "data.files.target must say which two are"
            )
            return None
        return 0, 1
    for role, name in wanted.items():
        if name is None:
            faults.add(f"{source}: data.files.{role} must be given beside the other end")
        elif name not in names:
            faults.add(
                f"{source}: no column {name!r}, data.files.{role}{meant(name, names)}; there {listed(names, 10)}"
            )
    if len(given) < 2 or not set(given) <= set(names):
        return None
    if given[0] == given[1]:
        faults.add(f"{source}: data.files.source and target are both {given[0]!r}; expected two columns")
        return None
    return list(names).index(given[0]), list(names).index(given[1])


def resolved(
    tables: Sequence[EdgeTable], config: ColumnsConfig, known: Mapping[Hashable, int], faults: Faults, ids: str
) -> Resolved | None:
    """Ids as node indices. Returns None, with faults, where an id is unknown and that is not asked for.

    Args:
        ids: where ids of nodes come from, for messages.
    """
    pairs, read, skipped = [np.empty((2, 0), np.int64)], 0, 0
    refused = False
    for table in tables:
        if table.attributes and config.edge_attributes == "refuse":
            faults.add(
                f"{table.source}: beside two ids there is also {_attributes(table.attributes)}; no network here sees "
                "weights or other attributes of edges, data.files.edge_attributes: ignore leaves them out",
                edge_attributes="ignore",
            )
            refused = True
        ends = np.stack([_indices(column, table.owner, known) for column in table.ends])
        unknown = np.flatnonzero((ends < 0).any(axis=0))
        if len(unknown) and config.unknown_ends == "refuse":
            first = int(unknown[0])
            end = 0 if ends[0, first] < 0 else 1
            where = f"{table.source}: {table.unit} {table.lines[first]}: id {table.ends[end][first][:80]}"
            count = f"{len(unknown)} of {ends.shape[1]} edges have such an end{_hint(table, known, config)}"
            cure = "data.files.unknown_ends: skip leaves such edges out"
            faults.add(f"{where} is not in {ids}; {count}; {cure}", unknown_ends="skip")
            refused = True
        read += ends.shape[1]
        skipped += len(unknown)
        pairs.append(np.delete(ends, unknown, axis=1))
    if refused:
        return None
    if not read:
        faults.add(f"{tables[0].source}: no edges; expected two node ids a line")
        return None
    return Resolved(np.concatenate(pairs, axis=1), read, skipped)


def _attributes(names: Collection[str]) -> str:
    return ", ".join(name if name.startswith("field ") else repr(name) for name in list(names)[:5])


def _indices(column: Sequence[str], owner: str | None, known: Mapping[Hashable, int]) -> np.ndarray:
    """-1 where an id is unknown."""
    seen: dict[str, int] = {}
    before = "" if owner is None else f"{owner}/"
    for text in column:
        if text not in seen:
            seen[text] = known.get(before + text, known.get(before + whole(text), -1))
    return np.array([seen[text] for text in column], np.int64)


def _hint(table: EdgeTable, known: Mapping[Hashable, Any], config: ColumnsConfig) -> str:
    """What a frequent mistake is recognised by."""
    count = len(set(known.values()))
    if config.id is None and str(count) in (*table.ends[0], *table.ends[1]) and str(count) not in known:
        return "; rows are counted from 0, and these may count from 1: give the nodes a column of ids"
    bare = {str(node).lstrip("0") for node in known if str(node).startswith("0")} - {""}
    if any(text in bare for column in table.ends for text in column):
        return "; ids are compared as text, so 7 is not 007"
    if table.unit == "line" and not any(_is_known(column[0], known) or _is_number(column[0]) for column in table.ends):
        return f"; if line {table.lines[0]} is a header, data.files.source and target name its columns"
    return ""
