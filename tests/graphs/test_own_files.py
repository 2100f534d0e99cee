"""One's own files: every format and every dialect gives the same graph."""

from __future__ import annotations

import pickle
from pathlib import Path

import networkx
import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from orchestrator.errors import DataError
from orchestrator.graphs.graph import Graph
from tests.graphs.own_data import (
    BODY,
    EDGES,
    FRAME,
    HEADER,
    IN_ONE,
    LINKS,
    MEANT,
    NODES,
    PLACE,
    SEX,
    TRIPLES,
    X,
    Y,
    column,
    faults,
    lines,
    load,
    same,
    write,
)
from tests.graphs.test_own import assert_same


def test_a_pair_of_files(plain):
    assert (plain.num_nodes, plain.num_edges, plain.meaning.features) == (12, 24, ("age", "bmi"))
    assert plain.labels.tolist() == [k // 2 % 2 for k in range(12)] and plain.meaning.labels == ("no", "yes")
    assert plain.sensitive.tolist() == [1 - k % 2 for k in range(12)] and plain.meaning.groups == ("m", "f")
    assert plain.meaning.notes == ()


# Dialects: whatever text is like, it is the same graph.


@pytest.mark.parametrize(
    ("content", "changes"),
    [
        (lines(NODES, ";"), {}),
        (lines(NODES, "\t"), {}),
        (lines(NODES, "|"), {}),
        (lines(NODES, ", "), {}),
        ("\ufeff" + lines(NODES), {}),
        ("\n\n" + lines(NODES).replace("\n", "\r\n"), {}),
        ("sep=;\r\n" + lines(NODES, ";"), {}),
        ("# exported, from the ward\n% on Monday\n" + lines(NODES, ";"), {}),
        ("\n".join(",".join(f'"{cell}"' for cell in row) for row in NODES), {}),
        (lines(NODES, ";").replace(".", ","), {"decimal": ","}),
        (lines(NODES).encode("utf-16"), {"encoding": "utf-16"}),
        (lines(NODES).encode("utf-16-le"), {"encoding": "utf-16-le"}),
        (lines([tuple(f" {cell} " for cell in row) for row in NODES], ";"), {}),
    ],
)
def test_dialects_of_tables(tmp_path, plain, content, changes):
    write(tmp_path, content, EDGES if "encoding" not in changes else lines(EDGES).encode(changes["encoding"]))
    same(tmp_path, plain, **changes)


@pytest.mark.parametrize(
    ("content", "changes"),
    [
        (lines(EDGES, "\t"), {}),
        (lines(EDGES, ";"), {}),
        (lines(EDGES, "   "), {}),
        (lines(EDGES, " , "), {}),
        (lines([("Source", "Target"), *EDGES]), {}),
        (lines([("node_id_1", "node_id_2"), *EDGES], "\t"), {}),
        (lines([("who", "whom"), *EDGES]), {"source": "who", "target": "whom"}),
        (lines([("since", "whom", "who"), *((3, v, u) for u, v in EDGES)]), {"source": "who", "target": "whom"}),
        ("%%MatrixMarket\n# 12 nodes\n\n" + lines(EDGES, " ") + "# end\n", {}),
        (lines([[f'"{end}"' for end in edge] for edge in EDGES], " "), {}),
        (lines(TRIPLES), {}),
        (lines(TRIPLES)[:-4], {}),  # the last line has no weight
        (lines([(*edge, "{'since': 1, 'kind': 'a'}") for edge in EDGES]), {}),
        (lines(EDGES).replace("\n", "\r"), {}),
        (lines(EDGES + [(v, u) for u, v in EDGES]), {}),
    ],
)
def test_dialects_of_edge_lists(tmp_path, plain, content, changes):
    write(tmp_path, edges=content)
    same(tmp_path, plain, edge_attributes="ignore", **changes)


@pytest.mark.parametrize("number", [lambda k: k, float, lambda k: f"{k:.2e}", lambda k: f"+{k}", lambda k: f"{k}."])
def test_whole_numbers_are_ids_in_every_notation(tmp_path, plain, number):
    write(tmp_path, column("id", range(12)), [tuple(number(PLACE[end]) for end in edge) for edge in EDGES])
    same(tmp_path, plain)
    write(tmp_path, column("id", map(float, range(12))), lines((PLACE[u], PLACE[v]) for u, v in EDGES))
    same(tmp_path, plain)
    write(tmp_path, [row[1:] for row in NODES], lines((PLACE[u], PLACE[v]) for u, v in EDGES))
    same(tmp_path, plain, id=None)


def test_ids_beyond_what_floats_hold_are_exact(tmp_path, plain):
    big = 1_170_000_000_000_000_001  # and its successor are one float64
    write(tmp_path, column("id", range(big, big + 12)), [tuple(big + PLACE[end] for end in edge) for edge in EDGES])
    same(tmp_path, plain)


def test_a_hash_may_begin_an_id_and_stand_in_one(tmp_path, plain):
    """NetworkX takes the rest of the line for a comment, and the edge is gone."""
    names = ["#a", "b#1", "%c", *(f"x{k}" for k in range(9))]
    write(tmp_path, column("id", names), [tuple(names[PLACE[end]] for end in edge) for edge in EDGES])
    same(tmp_path, plain)


# The same through every format.


def test_parquet(tmp_path, plain):
    pytest.importorskip("pyarrow")
    FRAME.to_parquet(tmp_path / "nodes.parquet")
    pd.DataFrame(EDGES, columns=["u", "v"]).to_parquet(tmp_path / "edges.parquet")
    same(tmp_path, plain, nodes="nodes.parquet", edges="edges.parquet")
    FRAME.set_index("id").to_parquet(tmp_path / "nodes.parquet")
    write(tmp_path)
    same(tmp_path, plain, nodes="nodes.parquet")
    typed = FRAME.assign(hired=FRAME.hired == "yes", sex=FRAME.sex.astype("category"), age=FRAME.age.astype("Int64"))
    typed.to_parquet(tmp_path / "nodes.parquet")
    assert load(tmp_path, nodes="nodes.parquet", positive="True").labels.tolist() == plain.labels.tolist()


def test_npz(tmp_path, plain):
    arrays = {"x": X, "edge_index": LINKS, "y": Y, "sex": SEX, "feature_names": ["age", "bmi"]}
    np.savez(tmp_path / "graph.npz", **arrays)
    graph = same(tmp_path, plain, nodes="graph.npz", **IN_ONE)
    assert graph.meaning.features == ("age", "bmi")
    np.savez(
        tmp_path / "graph.npz", **arrays | {"y": FRAME.hired.to_numpy(str), "sex": FRAME.sex.to_numpy(str)[:, None]}
    )
    same(tmp_path, plain, nodes="graph.npz", **IN_ONE | {"positive": "yes", "protected": "f"})
    np.savez(tmp_path / "graph.npz", **arrays, ids=FRAME.id.to_numpy(str)[::-1])  # edges are of indices nevertheless
    same(tmp_path, plain, nodes="graph.npz", **IN_ONE)
    np.savez(tmp_path / "graph.npz", **arrays | {"edge_index": LINKS + 1}, ids=np.arange(1, 13))
    [told] = faults(tmp_path, nodes="graph.npz", **IN_ONE)
    assert "edge_index: edge " in told and told.endswith("expected node indices from 0 to 11")


def data(**more) -> Data:
    return Data(torch.tensor(X), torch.tensor(LINKS), y=torch.tensor(Y), sex=torch.tensor(SEX), **more)


def test_pyg(tmp_path, plain):
    torch.save(data(), tmp_path / "graph.pt")
    same(tmp_path, plain, nodes="graph.pt", **IN_ONE)
    masks = {f"{part}_mask": torch.arange(12) % 4 == k for k, part in enumerate(("train", "val", "test"))}
    torch.save((data(**masks).to_dict(), None, Data), tmp_path / "graph.pt")  # as an InMemoryDataset keeps it
    graph = load(tmp_path, nodes="graph.pt", **IN_ONE)
    given = Graph.from_pyg(data(**masks), "sex")
    np.testing.assert_array_equal(graph.train, given.train)
    np.testing.assert_array_equal(graph.test, given.test)
    same(tmp_path, plain, nodes="graph.pt", drop=["split"], **IN_ONE)


def test_graphml(tmp_path, plain):
    graph = networkx.Graph()
    for name, *values in FRAME.itertuples(index=False):
        graph.add_node(name, **dict(zip(HEADER[1:], values, strict=True)))
    graph.add_edges_from(EDGES)
    networkx.write_graphml(graph, tmp_path / "graph.graphml")
    same(tmp_path, plain, nodes="graph.graphml", **IN_ONE | {k: MEANT[k] for k in ("label", "positive", "protected")})


def test_tables_in_memory_are_read_as_files_are(tmp_path, plain):
    meant = {key: value for key, value in MEANT.items() if key not in ("nodes", "edges")}
    graph = Graph.from_pandas(FRAME, pd.DataFrame(EDGES), scaling="by_client", **meant)
    assert_same(graph, Graph(**{**vars(plain), "name": "graph"}))
    assert graph.meaning == plain.meaning
    write(tmp_path, [*NODES, NODES[1]])
    [told] = faults(tmp_path)
    with pytest.raises(DataError) as caught:
        Graph.from_pandas(pd.DataFrame([*BODY, BODY[0]], columns=HEADER), pd.DataFrame(EDGES), **meant)
    assert str(caught.value).partition("column")[2] == told.partition("column")[2] != ""


class Evil:
    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return (Path.touch, (self.folder / "it ran",))


def test_nothing_in_a_file_runs(tmp_path):
    evil = Evil(tmp_path)
    torch.save({"x": evil}, tmp_path / "graph.pt")
    [told] = faults(tmp_path, nodes="graph.pt", **IN_ONE)
    assert "could run code; nothing of it was run" in told
    (tmp_path / "graph.pt").write_bytes(pickle.dumps(evil))
    faults(tmp_path, nodes="graph.pt", **IN_ONE)
    np.savez(tmp_path / "graph.npz", x=np.array([evil], object), edge_index=LINKS)
    [told] = faults(tmp_path, nodes="graph.npz", **IN_ONE)
    assert "graph.npz: cannot be read" in told
    torch.save(HeteroData(), tmp_path / "graph.pt")
    [told] = faults(tmp_path, nodes="graph.pt", **IN_ONE)
    assert "expected" in told or "holds something else" in told
    entity = '<?xml version="1.0"?><!DOCTYPE g [<!ENTITY a "b">]><graphml/>'
    only_a_type = b"<!DOCTYPE graphml><graphml/>"
    for raw in (entity.encode(), entity.encode("utf-16"), only_a_type):
        (tmp_path / "g.graphml").write_bytes(raw)
        [told] = faults(tmp_path, nodes="g.graphml", **IN_ONE)
        assert told.endswith("declares a document type or entities, which are not read; write it without")
    assert not (tmp_path / "it ran").exists()
    pickle.loads(pickle.dumps(evil))
    assert (tmp_path / "it ran").exists()
