"""What bare files may mean, by the names of their columns; `safegnn data check` prints it, and nothing trains on it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from orchestrator.errors import DataError
from orchestrator.graphs.cells import as_text, whole
from orchestrator.graphs.faults import Choice, DataFaults
from orchestrator.graphs.own_files import GRAPHS, PARQUET, TEXT, read_node_table
from orchestrator.graphs.text_files import decoded, listed, separator_of

__all__ = ["guessed"]

_NAMES = {
    "id": "id|nodeid|node|userid|user|personid|person|patientid|patient|customerid|customer|pid|uid|name|key",
    "label": "label|labels|y|target|class|outcome|hired|default|defaulted|approved|decision|readmitted|diagnosis",
    "sensitive": "sensitive|sex|gender|race|ethnicity|ethnicgroup|religion|nationality|agegroup|disability|group",
    "client": "client|clientid|hospital|bank|branch|site|clinic|institution|centre|center|owner|silo|party",
    "split": "split|set|subset|fold|partition",
}
_SPLITS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing", ""}
_EDGES = re.compile(r"edge|link|relation|adj|graph|knows|contact|pairs|network|follow|friend", re.IGNORECASE)


def guessed(files: Sequence[Path], given: Mapping[str, Any]) -> tuple[dict[str, Any], Path | None, Choice]:
    """Settings of ``data.files`` for files whose columns nobody has described, the folder ``data.dir``, and what may be
    the label where no column is called so.

    Args:
        files: a graph; a table of nodes and a list of edges in any order; or a folder that holds these, or that holds
            a folder of them for each client.
        given: what is said already; it is not guessed, and used, as an encoding is.

    Raises:
        DataError: files are missing, or it cannot be told which is what.
        DataFaults: a file cannot be read.
    """
    folder: Path | None = None
    found: dict[str, Any] = {}
    if len(files) == 1 and files[0].is_dir():
        folder = files[0]
        homes = [home for home in sorted(folder.iterdir()) if home.is_dir() and _readable(home)]
        if not _readable(folder) and homes:
            found["client_folders"] = True
            files = _readable(homes[0])
        else:
            files = _readable(folder)
    for path in files:
        if path.is_dir() or not path.exists():
            raise DataError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}; expected data files")
    graphs = [path for path in files if path.suffix.lower() in GRAPHS]
    if graphs and len(files) == 1:
        nodes, edges = graphs[0], None
    elif len(files) == 2 and not graphs:
        nodes, edges = sorted(files, key=lambda path: _is_edges(path, given))
    elif len(files) == 1:
        raise DataError(f"{files[0]}: expected a list of edges too: safegnn data check NODES EDGES")
    else:
        names = listed([path.name for path in files]) or "nothing"
        raise DataError(f"expected a graph, or a table of nodes and a list of edges, got {names}")
    if folder is not None:
        home = nodes.parent if found else folder
        found |= {"nodes": str(nodes.relative_to(home)), "edges": edges and str(edges.relative_to(home))}
    else:
        found |= {"nodes": str(nodes), "edges": edges and str(edges)}
    frame = _frame(nodes, given)
    columns = _columns(frame, edges, given, "client_folders" in found)
    return {**found, **columns}, folder, _labels(frame, {**given, **columns})


def _readable(folder: Path) -> list[Path]:
    suffixes = (*TEXT, *PARQUET, *GRAPHS)
    return sorted(path for path in folder.iterdir() if path.is_file() and path.suffix.lower() in suffixes)


def _is_edges(path: Path, given: Mapping[str, Any]) -> tuple[bool, int, int]:
    """Sorts a list of edges behind a table of nodes: by name, then as it has fewer columns, then as it is longer."""
    named = bool(_EDGES.search(path.stem)) and not re.search(r"node|people|person|patient", path.stem, re.IGNORECASE)
    try:
        if path.suffix.lower() in PARQUET:
            frame = read_node_table(path, "utf-8", None)
            return named, -len(frame.columns), len(frame)
        content = decoded(path, str(given.get("encoding", "utf-8")))
        line = next((line for line in content.splitlines() if line.strip() and line[0] not in "#%"), "")
        separator = separator_of(line)
        return named, -len(line.split(separator)), content.count("\n")
    except DataError:
        return named, -99, 0


def _frame(path: Path, given: Mapping[str, Any]) -> pd.DataFrame:
    if path.suffix.lower() in GRAPHS:
        return GRAPHS[path.suffix.lower()](path)[0]
    encoding = str(given.get("encoding", "utf-8"))
    try:
        return read_node_table(path, encoding, None)
    except DataFaults as faults:  # in another encoding the rest can be guessed nevertheless
        return read_node_table(path, str(faults.cures["encoding"]), None)


def _columns(frame: pd.DataFrame, edges: Path | None, given: Mapping[str, Any], owned: bool) -> dict[str, Any]:
    """Which column is what, of those that are free."""
    taken = {value for value in given.values() if isinstance(value, str)}
    taken |= {name for value in given.values() if isinstance(value, list | tuple) for name in map(str, value)}
    found: dict[str, Any] = {}
    for role, names in _NAMES.items():
        if role in given or (role == "id" and edges is None) or (role == "client" and owned):
            continue
        pattern = re.compile(names)
        for column in frame.columns:
            plain = re.sub(r"[^a-z0-9]", "", str(column).casefold())
            if pattern.fullmatch(plain) and column not in taken and _fits(role, as_text(frame[column])):
                found[role] = str(column)
                taken.add(column)
                break
    if "id" not in found and "id" not in given and edges is not None:
        named = _named_by(edges, frame, given)
        found |= {} if named is None else {"id": named}
    return found


def _fits(role: str, texts: Sequence[str]) -> bool:
    values = {whole(text) for text in texts}
    if role == "id":
        return len(values) == len(texts) or 10 * len(values) > 9 * len(texts)
    if role == "split":
        return {value.casefold() for value in values} <= _SPLITS
    if role == "client":
        return 2 <= len(values) <= len(texts) // 2
    return 2 <= len(values) <= max(2, len(texts) // 2)


def _labels(frame: pd.DataFrame, taken: Mapping[str, Any]) -> Choice:
    """Columns of two values that mean nothing else, of which one may be the label."""
    free = [column for column in frame.columns if column not in taken.values()]
    return Choice(str(column) for column in free if len({*as_text(frame[column])} - {""}) == 2)


def _named_by(edges: Path, frame: pd.DataFrame, given: Mapping[str, Any]) -> str | None:
    """The column whose values are the ends of the first edges."""
    try:
        if edges.suffix.lower() in PARQUET:
            ends = {
                text for _, column in read_node_table(edges, "utf-8", None).head(20).items() for text in as_text(column)
            }
        else:
            lines = decoded(edges, str(given.get("encoding", "utf-8"))).splitlines()[:20]
            ends = {text for line in lines if line[:1] not in "#%" for text in re.split(r"[\s,;|\"]+", line) if text}
    except DataError:
        return None
    for column in frame.columns:
        texts = as_text(frame[column])
        values = {*texts, *map(whole, texts)}
        known = sum(whole(end) in values or end in values for end in ends)
        if len({*texts}) == len(texts) and ends and 2 * known >= len(ends):
            return str(column)
    return None
