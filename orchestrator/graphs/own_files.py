"""Files of one's own, by their suffix, read into a `RawGraph`; see docs/own-graph.md.

| suffix                   | nodes                                                  | edges                 |
|--------------------------|--------------------------------------------------------|-----------------------|
| .csv .tsv .tab .txt .dat | a table with a header, cells separated as the header's | two ids a line        |
| .edges .edgelist         |                                                        | the same              |
| .parquet .pq             | a table                                                | a table               |
| .npz                     | arrays by name, see `read_npz`                         | in the same file      |
| .pt .pth                 | a `Data` of PyTorch Geometric, see `read_pyg`          | in the same file      |
| .graphml                 | attributes of nodes                                    | in the same file      |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from orchestrator.config import ColumnsConfig, FilesConfig
from orchestrator.errors import DataError
from orchestrator.graphs.cells import as_text
from orchestrator.graphs.cleaning import MISSING
from orchestrator.graphs.columns import Columns, read_columns
from orchestrator.graphs.edge_tables import EdgeTable, Resolved, edge_frame, read_edge_list, resolved
from orchestrator.graphs.edges import canonical_edges
from orchestrator.graphs.faults import Faults
from orchestrator.graphs.graph_files import SPLIT_COLUMN, read_graphml, read_npz, read_pyg
from orchestrator.graphs.node_table import Table
from orchestrator.graphs.tables import RawGraph
from orchestrator.graphs.text_files import check_header, listed, read_text_table

__all__ = ["GRAPHS", "PARQUET", "TEXT", "Reading", "read_files", "read_node_table"]

TEXT = (".csv", ".tsv", ".tab", ".txt", ".dat", ".edges", ".edgelist")
PARQUET = (".parquet", ".pq")
GRAPHS: Mapping[str, Callable[[Path], tuple[pd.DataFrame, EdgeTable, list[str] | None]]] = {
    ".npz": read_npz,
    ".pt": read_pyg,
    ".pth": read_pyg,
    ".graphml": read_graphml,
}


@dataclass(frozen=True)
class Reading:
    """What files hold, and how they were understood.

    Attributes:
        raw: the graph.
        table, columns, tables: of the nodes, and the lists of edges.
        edges: how many there were in the files, before those with two directions or repetitions are one.
        loops: edges from a node to itself, left out.
        crossing: edges between nodes of different clients, left out.
        config: the settings, with the split that a graph's own masks make.
    """

    raw: RawGraph
    table: Table = field(repr=False)
    columns: Columns = field(repr=False)
    tables: tuple[EdgeTable, ...] = field(repr=False)
    edges: Resolved
    loops: int
    crossing: int
    config: FilesConfig


def read_files(config: FilesConfig, folder: Path | None, predicting: Collection[str] | None = None) -> Reading:
    """The graph of one's own files.

    Args:
        folder: what relative paths are relative to, or what holds the clients' folders; None: the working directory.
        predicting: see `read_columns`.

    Raises:
        DataFaults: with all that is wrong, as far as can be seen.
    """
    faults = Faults()
    places = _places(config, folder or Path(), faults)
    faults.raise_any()
    parts = [_part(nodes, edges, config, faults) for nodes, edges, _ in places]
    config = _with_own_split(config, [frame for frame, *_ in parts if frame is not None])
    table = _joined(places, parts, faults)
    columns = None if table is None else read_columns(table, config, faults, config.decimal, predicting)
    ids = f"column {config.id!r} of {places[0][0]}" if config.id is not None else str(places[0][0])
    tables = _edge_tables(places, parts, config, table, columns, faults)
    edges = None
    if columns is not None and len(tables) == len(places):
        edges = resolved(tables, config, columns.rows, faults, ids)
    faults.raise_any()
    assert table is not None and columns is not None and edges is not None  # else there is a fault
    return _assembled(config, places, table, columns, tables, edges)


def _places(config: FilesConfig, folder: Path, faults: Faults) -> list[tuple[Path, Path | None, str | None]]:
    """Node file, edge file, and the client whose they are."""
    is_graph = config.nodes.suffix.lower() in GRAPHS
    for setting, path, allowed in (
        ("nodes", config.nodes, (*TEXT, *PARQUET, *GRAPHS)),
        ("edges", config.edges, (*TEXT, *PARQUET)),
    ):
        if path is not None and path.suffix.lower() not in allowed:
            got = f", got {path.suffix!r}" if path.suffix else ""
            faults.add(f"{path}: data.files.{setting} must end in one of {', '.join(allowed)}{got}")
    if is_graph and config.edges is not None:
        faults.add(f"{config.edges}: {config.nodes} holds its edges; leave data.files.edges out")
    if not is_graph and config.edges is None:
        faults.add(f"{config.nodes}: is a table of nodes; data.files.edges must name a list of edges")
    if not config.client_folders:
        places = [(folder / config.nodes, None if config.edges is None else folder / config.edges)]
        owners: list[str | None] = [None]
    else:
        try:
            homes = sorted(home for home in folder.iterdir() if home.is_dir())
        except OSError as error:
            faults.add(f"{folder}: data.dir cannot be read: {error.strerror or error}")
            return []
        files = [path for path in (config.nodes, config.edges) if path is not None]
        homes = [home for home in homes if any((home / path).exists() for path in files)]
        if not homes:
            faults.add(f"{folder}: no folder in it holds {config.nodes}; expected one for each client")
        places = [(home / config.nodes, None if config.edges is None else home / config.edges) for home in homes]
        owners = [home.name for home in homes]
    for nodes, edges in places:
        for setting, file in (("nodes", nodes), ("edges", edges)):
            if file is not None and not file.is_file():
                kind = "is a folder" if file.is_dir() else "no such file"
                faults.add(f"{file}: {kind}; data.files.{setting} must name a file")
    return [(nodes, edges, owner) for (nodes, edges), owner in zip(places, owners, strict=True)]


_Part = tuple[pd.DataFrame | None, EdgeTable | None, list[str] | None]


def _part(nodes: Path, edges: Path | None, config: FilesConfig, faults: Faults) -> _Part:
    """The nodes of one file, and the edges where they are in the same."""
    try:
        if edges is None:
            return GRAPHS[nodes.suffix.lower()](nodes)
        named = {config.id, config.label, config.sensitive, config.client, config.split, *config.one_hot} - {None}
        return read_node_table(nodes, config.encoding, {str(name) for name in named}, config.decimal), None, None
    except DataError as error:
        faults.take(error)
        return None, None, None


def read_node_table(path: Path, encoding: str, text: set[str] | None, decimal: str = ".") -> pd.DataFrame:
    """A table with a header, of text or Parquet. Args: text: columns that stay text; None: all.

    Raises:
        DataError: it cannot be read, or its header cannot be used.
    """
    if path.suffix.lower() not in PARQUET:
        return read_text_table(path, text, encoding, decimal)
    try:
        frame = pd.read_parquet(path)
    except ImportError:
        raise DataError(f"{path}: Parquet needs the package's extra: pip install 'safegnn[parquet]'") from None
    except Exception as error:  # a damaged file makes pyarrow raise whatever it likes
        reason = " ".join(str(error).split())[:100]
        raise DataError(f"{path}: cannot be read as Parquet: {reason}") from None
    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index()
    frame.columns = pd.Index([str(column).strip() for column in frame.columns])
    check_header(list(frame.columns), str(path))
    return frame


def _with_own_split(config: FilesConfig, frames: list[pd.DataFrame]) -> FilesConfig:
    """A graph that holds masks is split by them, unless they are dropped."""
    arrays = config.nodes.suffix.lower() in (".npz", ".pt", ".pth")
    has_masks = arrays and any(SPLIT_COLUMN in frame for frame in frames)
    said = (config.label, config.sensitive, config.client, config.id, *config.drop, *(config.features or ()))
    if config.split is not None or not has_masks or SPLIT_COLUMN in said:
        return config
    return config.model_copy(update={"split": SPLIT_COLUMN})


def _joined(places: list[tuple[Path, Path | None, str | None]], parts: list[_Part], faults: Faults) -> Table | None:
    """The tables of all clients as one, whose columns must be the same."""
    frames = [frame for frame, *_ in parts if frame is not None]
    if len(frames) < len(parts):
        return None
    sources = tuple((str(nodes), len(frame)) for (nodes, *_), frame in zip(places, frames, strict=True))
    if places[0][2] is None:
        return Table(frames[0], sources, parts[0][2])
    fits = True
    for frame, (source, _) in zip(frames[1:], sources[1:], strict=True):
        lacking, more = (set(frames[0]) - set(frame), set(frame) - set(frames[0]))
        if lacking or more:
            fits = False
            what, has = ("no column", "has") if lacking else ("a column", "does not have")
            faults.add(
                f"{source}: {what} {listed(sorted(lacking or more))}, which {sources[0][0]} {has}; expected the same "
                "columns of every client"
            )
    if not fits:
        return None
    ids, owners = [], []
    for frame, (*_, own), (*_, owner) in zip(frames, parts, places, strict=True):
        ids += [str(row) for row in range(len(frame))] if own is None else own
        owners += [str(owner)] * len(frame)
    whole = pd.concat([frame[list(frames[0])] for frame in frames], ignore_index=True)
    return Table(whole, sources, ids, owners)


def _edge_tables(
    places: list[tuple[Path, Path | None, str | None]],
    parts: list[_Part],
    config: FilesConfig,
    table: Table | None,
    columns: Columns | None,
    faults: Faults,
) -> tuple[EdgeTable, ...]:
    """Of every file that can be read."""
    found = []
    by_owner: dict[str | None, dict[Hashable, int]] = {}
    for node, row in (columns.rows if columns is not None else {}).items():
        owner, _, own = str(node).partition("/") if places[0][2] is not None else (None, "", str(node))
        by_owner.setdefault(owner, {})[own] = row
    for (_, path, owner), (_, inside, _) in zip(places, parts, strict=True):
        edges = inside
        try:
            if path is not None and path.suffix.lower() in PARQUET:
                edges = edge_frame(read_node_table(path, config.encoding, None), config, str(path), faults)
            elif path is not None:
                known = by_owner.get(owner) if columns is not None else _some_ids(table, config)
                edges = read_edge_list(path, config, config.encoding, known, faults)
        except DataError as error:
            faults.take(error)
        if edges is not None:
            found.append(replace(edges, owner=owner))
    return tuple(found)


def _some_ids(table: Table | None, config: ColumnsConfig) -> dict[Hashable, int] | None:
    """Ids for telling a header from an edge, where columns could not be read for another reason."""
    if table is None or config.id is None or config.id not in table.frame:
        return None
    return {node: row for row, node in enumerate(as_text(table.frame[config.id]))}


def _assembled(
    config: FilesConfig,
    places: list[tuple[Path, Path | None, str | None]],
    table: Table,
    columns: Columns,
    tables: tuple[EdgeTable, ...],
    edges: Resolved,
) -> Reading:
    count = len(table.frame)
    loops = int((edges.pairs[0] == edges.pairs[1]).sum())
    pairs = canonical_edges(edges.pairs, count)
    crossing, total = 0, pairs.shape[1]
    notes = list(columns.notes)
    if edges.skipped:
        notes.append(f"left out {edges.skipped} of {edges.read} edges, whose ends are no nodes (unknown_ends: skip)")
    if loops:
        notes.append(f"left out {loops} self-loop{'s' * (loops > 1)}; networks add what they need")
    if any(own.attributes for own in tables):
        notes.append(f"ignored {', '.join(tables[0].attributes)} of edges (edge_attributes: ignore)")
    if columns.owner is not None:
        inside = columns.owner[pairs[0]] == columns.owner[pairs[1]]
        crossing = int((~inside).sum())
        pairs = pairs[:, inside]
        if crossing:
            notes.append(f"left out {crossing} of {total} edges, between nodes of different clients")
    nodes = places[0][0]
    labels = np.full(count, MISSING, np.int8) if columns.label is None else columns.label.codes
    raw = RawGraph(
        nodes.parent.parent.name or nodes.stem if config.client_folders else nodes.stem,
        columns.features,
        labels,
        None if columns.sensitive is None else columns.sensitive.codes,
        pairs,
        f"{table.source}: column {config.label!r}",
        f"{table.source}: column {config.sensitive!r}",
        tables[0].source,
        columns.classes,
        replace(columns.meaning, notes=tuple(notes)),
        columns.ids,
        columns.masks,
        columns.owner,
    )
    return Reading(raw, table, columns, tables, edges, loops, crossing, config)
