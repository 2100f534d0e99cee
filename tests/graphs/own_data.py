"""Small files of one's own, and what becomes of them."""

from __future__ import annotations

from pathlib import Path

from orchestrator.config import DataConfig
from orchestrator.graphs import load_graph
from orchestrator.graphs.graph import Graph

NODES = [("id", "age", "bmi", "sex", "hired")] + [
    (f"p{k}", str(20 + k * 7 % 30), str(18 + k * k % 11 / 2), "fm"[k % 2], ("no", "yes")[k // 2 % 2]) for k in range(12)
]
EDGES = [(f"p{k}", f"p{(k + step) % 12}") for k in range(12) for step in (1, 3)]
MEANT = {"nodes": "nodes.csv", "edges": "edges.csv", "id": "id", "label": "hired", "sensitive": "sex"}
MEANT |= {"positive": "yes", "protected": "f"}


def lines(rows, separator: str = ",") -> str:
    return "".join(separator.join(map(str, row)) + "\n" for row in rows)


def column(name: str, values, rows=NODES) -> list[tuple[str, ...]]:
    """The table with one more column, or with another one of this name."""
    header, *body = rows
    place = header.index(name) if name in header else len(header)
    return [(*row[:place], value, *row[place + 1 :]) for row, value in zip(rows, (name, *values), strict=True)]


def write(folder: Path, nodes=NODES, edges=EDGES) -> None:
    """Args: nodes, edges: rows, or text, or bytes."""
    for name, content in (("nodes.csv", nodes), ("edges.csv", edges)):
        if isinstance(content, list):
            content = lines(content)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def load(folder: Path, nodes_kept=None, **settings) -> Graph:
    return load_graph(DataConfig(name="files", dir=folder, nodes=nodes_kept, files=MEANT | settings), 31)
