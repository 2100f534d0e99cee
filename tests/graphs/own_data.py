"""Small files of one's own, and what becomes of them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from orchestrator.config import load_config
from orchestrator.errors import DataError
from orchestrator.graphs import load_graph
from orchestrator.graphs.faults import DataFaults
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
    header = rows[0]
    place = header.index(name) if name in header else len(header)
    return [(*row[:place], value, *row[place + 1 :]) for row, value in zip(rows, (name, *values), strict=True)]


def write(folder: Path, nodes=NODES, edges=EDGES) -> None:
    """Args: nodes, edges: rows, or text, or bytes."""
    for name, content in (("nodes.csv", nodes), ("edges.csv", edges)):
        if isinstance(content, list):
            content = lines(content)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def load(folder: Path, nodes_kept=None, scaling="by_client", **settings) -> Graph:
    data = {"name": "files", "dir": str(folder), "nodes": nodes_kept, "scaling": scaling, "files": MEANT | settings}
    given = "client" in settings or "client_folders" in settings
    return load_graph(load_config().changed(data=data, clients={"partition": "given" if given else "ego"}).data, 31)


HEADER, *BODY = NODES
FRAME = pd.DataFrame(BODY, columns=HEADER).astype({"age": int, "bmi": float})
LINKS = np.array([[int(end[1:]) for end in edge] for edge in EDGES]).T
PLACE = {f"p{k}": k for k in range(12)}


def faults(folder, **changes) -> tuple[str, ...]:
    with pytest.raises(DataError) as caught:
        load(folder, **changes)
    assert "\n" not in str(caught.value)
    return caught.value.lines if isinstance(caught.value, DataFaults) else (str(caught.value),)


def same(folder, plain, **changes) -> Graph:
    graph = load(folder, **changes)
    for field in fields(Graph):
        if field.name not in ("meaning", "name"):
            np.testing.assert_array_equal(getattr(graph, field.name), getattr(plain, field.name), field.name)
    return graph


X = FRAME[["age", "bmi"]].to_numpy()
Y, SEX = (FRAME.hired == "yes").to_numpy(int), (FRAME.sex == "f").to_numpy(int)
IN_ONE = {"edges": None, "id": None, "label": "y", "sensitive": "sex", "positive": None, "protected": None}


TRIPLES = [(*edge, "0.5") for edge in EDGES]
