"""One's own files: every way in gives the same graph, and what is wrong is told before anything is trained."""

from __future__ import annotations

import io
import pickle
import warnings

import networkx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

from orchestrator.config import ClientsConfig
from orchestrator.errors import DataError
from orchestrator.graphs import client_graphs
from orchestrator.graphs.faults import DataFaults
from orchestrator.graphs.graph import Graph
from tests.graphs.own_data import EDGES, MEANT, NODES, column, lines, load, write
from tests.graphs.test_own import assert_same

HEADER, *BODY = NODES
FRAME = pd.DataFrame(BODY, columns=HEADER).astype({"age": int, "bmi": float})
LINKS = np.array([[int(end[1:]) for end in edge] for edge in EDGES]).T
PLACE = {f"p{k}": k for k in range(12)}


def faults(folder, **changes) -> tuple[str, ...]:
    with pytest.raises(DataError) as caught:
        load(folder, **changes)
    assert "\n" not in str(caught.value)
    return caught.value.lines if isinstance(caught.value, DataFaults) else (str(caught.value),)


@pytest.fixture
def plain(tmp_path):
    """The graph of the files as they are, in a folder of their own."""
    folder = tmp_path / "plain"
    folder.mkdir()
    write(folder)
    return load(folder)


def test_a_pair_of_files(plain):
    assert (plain.num_nodes, plain.num_edges, plain.meaning.features) == (12, 24, ("age", "bmi"))
    assert plain.labels.tolist() == [k // 2 % 2 for k in range(12)] and plain.meaning.labels == ("no", "yes")
    assert plain.sensitive.tolist() == [1 - k % 2 for k in range(12)] and plain.meaning.groups == ("m", "f")
    assert plain.meaning.notes == ()


def same(folder, plain, **changes) -> Graph:
    graph = load(folder, **changes)
    assert_same(graph, Graph(**{**vars(plain), "name": graph.name}))
    return graph


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


TRIPLES = [(*edge, "0.5") for edge in EDGES]


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


X = FRAME[["age", "bmi"]].to_numpy()
Y, SEX = (FRAME.hired == "yes").to_numpy(int), (FRAME.sex == "f").to_numpy(int)
IN_ONE = {"edges": None, "id": None, "label": "y", "sensitive": "sex", "positive": None, "protected": None}


def test_npz(tmp_path, plain):
    arrays = {"x": X, "edge_index": LINKS, "y": Y, "sex": SEX, "feature_names": ["age", "bmi"]}
    np.savez(tmp_path / "graph.npz", **arrays)
    graph = same(tmp_path, plain, nodes="graph.npz", **IN_ONE)
    assert graph.meaning.features == ("age", "bmi")
    np.savez(
        tmp_path / "graph.npz", **arrays | {"y": FRAME.hired.to_numpy(str), "sex": FRAME.sex.to_numpy(str)[:, None]}
    )
    same(tmp_path, plain, nodes="graph.npz", **IN_ONE | {"positive": "yes", "protected": "f"})


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
    graph = Graph.from_pandas(FRAME, pd.DataFrame(EDGES), scaling="standardised", **meant)
    assert_same(graph, Graph(**{**vars(plain), "name": "graph"}))
    assert graph.meaning == plain.meaning
    write(tmp_path, [*NODES, NODES[1]])
    [told] = faults(tmp_path)
    with pytest.raises(DataError) as caught:
        Graph.from_pandas(pd.DataFrame([*BODY, BODY[0]], columns=HEADER), pd.DataFrame(EDGES), **meant)
    assert str(caught.value).partition("column")[2] == told.partition("column")[2] != ""


class Evil:
    def __reduce__(self):
        return (open, ("/tmp/ran-code", "w"))


def test_nothing_in_a_file_runs(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(
        "builtins.open", lambda *a, _open=open, **k: ran.append(a) if "ran-code" in str(a[0]) else _open(*a, **k)
    )
    torch.save({"x": Evil()}, tmp_path / "graph.pt")
    [told] = faults(tmp_path, nodes="graph.pt", **IN_ONE)
    assert "could run code; nothing of it was run" in told
    (tmp_path / "graph.pt").write_bytes(pickle.dumps(Evil()))
    faults(tmp_path, nodes="graph.pt", **IN_ONE)
    np.savez(tmp_path / "graph.npz", x=np.array([Evil()], object), edge_index=LINKS)
    [told] = faults(tmp_path, nodes="graph.npz", **IN_ONE)
    assert "graph.npz: cannot be read" in told
    torch.save(HeteroData(), tmp_path / "graph.pt")
    [told] = faults(tmp_path, nodes="graph.pt", **IN_ONE)
    assert "expected" in told or "holds something else" in told
    entity = '<?xml version="1.0"?><!DOCTYPE g [<!ENTITY a "b">]><graphml/>'
    for raw in (entity.encode(), entity.encode("utf-16")):
        (tmp_path / "g.graphml").write_bytes(raw)
        [told] = faults(tmp_path, nodes="g.graphml", **IN_ONE)
        assert told.endswith("declares a document type or entities, which are not read; write it without")
    assert ran == []


# What is refused, and how. Every kind with members of its own.


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("id,age,,sex,hired", "column 3 has no name; name it in the header"),
        (",age,bmi,sex,hired", "column 1 has no name; name it in the header, or write the file without row numbers"),
        ("id,age,bmi,sex,  ", "column 5 has no name"),
        ("id,age,age,sex,hired", "columns 2 and 3 are all called 'age'; expected different names"),
        ("id,age, age ,sex,hired", "columns 2 and 3 are all called 'age'"),
        ("0,0,0.1,sex,hired", "columns 1 and 2 are all called '0'"),  # pandas makes 0.1 of the second
    ],
)
def test_a_header_is_not_repaired(tmp_path, header, told):
    write(tmp_path, header + "\n" + lines(BODY))
    assert any(f"nodes.csv: {told}" in line for line in faults(tmp_path))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"label": "sex"}, "column 'sex' is label and sensitive; a column has one meaning"),
        ({"id": "hired"}, "column 'hired' is id and label; a column has one meaning"),
        ({"drop": ["hired"]}, "column 'hired' is label and drop; a column has one meaning"),
        ({"drop": ["id"]}, "column 'id' is id and drop; a column has one meaning"),
        ({"drop": ["sex"]}, "column 'sex' is sensitive and drop; a column has one meaning"),
        ({"features": ["age", "hired"]}, "column 'hired' is label and features; a column has one meaning"),
        ({"one_hot": ["bmi"], "drop": ["bmi"]}, "column 'bmi' is drop and one_hot; a column has one meaning"),
        ({"split": "id"}, "column 'id' is id and split; a column has one meaning"),
        ({"client": "hired"}, "column 'hired' is label and client; a column has one meaning"),
        ({"label": "Hired"}, "no column 'Hired', data.files.label (did you mean 'hired'?)"),
        ({"sensitive": "sexx"}, "no column 'sexx', data.files.sensitive (did you mean 'sex'?)"),
        ({"drop": ["Age"]}, "no column 'Age', data.files.drop (did you mean 'age'?)"),
        ({"one_hot": ["ward"]}, "no column 'ward', data.files.one_hot; there are 'id', 'age', 'bmi', 'sex', 'hired'"),
    ],
)
def test_a_column_has_one_meaning(tmp_path, changes, told):
    write(tmp_path)
    assert any(line.endswith(told) for line in faults(tmp_path, **changes))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (range(12), "numbers the rows; drop it, or name it in data.files.features if it is one"),
        (range(1, 13), "numbers the rows"),
        ([f"{k}.0" for k in range(12)], "numbers the rows"),
    ],
)
def test_a_column_that_numbers_the_rows_is_no_feature(tmp_path, values, told):
    write(tmp_path, column("Unnamed: 0", values))
    [line] = faults(tmp_path)
    assert told in line
    assert load(tmp_path, features=["Unnamed: 0", "age"]).num_features == 2
    assert load(tmp_path, drop=["Unnamed: 0"]).num_features == 2


@pytest.mark.parametrize(
    ("values", "changes", "told"),
    [
        (["approved", "denied"] * 6, {}, "has 2 values, 'approved', 'denied'; data.files.positive must say which"),
        (["1", "2"] * 6, {}, "has 2 values, '1', '2'; data.files.positive must say"),
        (
            ["-1", "1"] * 6,
            {},
            "data.files.positive must say which is the positive class; -1 may be data.files.missing_",
        ),
        (["True", "False"] * 6, {}, "has 2 values, 'False', 'True'; data.files.positive must"),
        (["0", "0.5"] * 6, {}, "has 2 values, '0', '0.5'; data.files.positive must"),
        (
            ["lo", "mid", "hi"] * 4,
            {},
            "has 3 values, 'hi', 'lo', 'mid'; data.files.positive must say which is the posit",
        ),
        (["yes"] * 12, {}, "has only 'yes'; expected two values or more"),
        (["yes"] * 12, {"positive": "yes"}, "has only 'yes', all of them data.files.positive"),
        (
            ["yes", "no"] * 6,
            {"positive": "Yes"},
            "data.files.positive is 'Yes', which does not occur (did you mean 'yes'?)",
        ),
        (["yes", "Yes", "no"] * 4, {"positive": "yes"}, "'yes' and 'Yes' differ in case or blanks only; name both"),
        (["a", "b", "c"] * 4, {"label_values": ["a", "b"]}, "'c' is not among 'a', 'b'"),
        ([""] * 12, {}, "every label is missing"),
    ],
)
def test_which_class_is_positive_is_not_guessed(tmp_path, values, changes, told):
    write(tmp_path, column("hired", values))
    [line] = faults(tmp_path, **{"positive": None} | changes)
    assert f"column 'hired': {told}" in line


@pytest.mark.parametrize(
    ("values", "changes", "codes", "names"),
    [
        (["0", "1"] * 6, {}, [0, 1] * 6, ("0", "1")),
        (["0.0", "1.00"] * 6, {}, [0, 1] * 6, ("0", "1")),
        (["0", "1", "2"] * 4, {}, [0, 1, 2] * 4, ("0", "1", "2")),
        (["approved", "denied"] * 6, {"positive": "approved"}, [1, 0] * 6, ("denied", "approved")),
        (["a", "b", "c"] * 4, {"positive": "b"}, [0, 1, 0] * 4, ("a, c", "b")),
        (["a", "b", "c"] * 4, {"positive": ["a", "b"]}, [1, 1, 0] * 4, ("c", "a, b")),
        (["hi", "lo", "mid"] * 4, {"label_values": ["lo", "mid", "hi"]}, [2, 0, 1] * 4, ("lo", "mid", "hi")),
        (["1", "2"] * 6, {"positive": 2}, [0, 1] * 6, ("1", "2")),
        (["-1", "0", "1"] * 4, {"missing_label": "-1"}, [-1, 0, 1] * 4, ("0", "1")),
        (["", "yes", "no"] * 4, {"positive": "yes"}, [-1, 1, 0] * 4, ("no", "yes")),
    ],
)
def test_labels_are_what_settings_say(tmp_path, values, changes, codes, names):
    write(tmp_path, column("hired", values))
    graph = load(tmp_path, **{"positive": None} | changes)
    assert graph.labels.tolist() == codes and graph.meaning.labels == names


@pytest.mark.parametrize(
    ("values", "changes", "told"),
    [
        (["f", "m"] * 6, {}, "has 2 values, 'f', 'm'; data.files.protected must say which is the protected group"),
        (["a", "b", "c"] * 4, {}, "which is the protected group; the others are compared with it together"),
        (["0", "1", "2"] * 4, {}, "has 3 values, '0', '1', '2'; data.files.protected must say"),
        (["f", ""] * 6, {"protected": "f"}, "column 'sex', row 2: empty, as 6 of 12 are; expected the group of every"),
        (["f", "m"] * 6, {"protected": "w"}, "data.files.protected is 'w', which does not occur"),
    ],
)
def test_which_group_is_protected_is_not_guessed(tmp_path, values, changes, told):
    write(tmp_path, column("sex", values))
    assert any(told in line for line in faults(tmp_path, **{"protected": None} | changes))


def test_one_group_is_compared_with_all_others(tmp_path):
    write(tmp_path, column("sex", ["a", "b", "c"] * 4))
    graph = load(tmp_path, protected=["b"])
    assert graph.sensitive.tolist() == [0, 1, 0] * 4 and graph.meaning.groups == ("a, c", "b")


def test_what_is_no_number_is_told_column_by_column(tmp_path):
    rows = column("ward", ["heart", "lung", "bone"] * 4)
    rows = column("born", ["1990-01-02", "2.3.1991"] * 6, rows)
    rows = column("left", [f"0{k % 9 + 1}/02/2020" for k in range(12)], rows)
    rows = column("note", [f"text {k}" for k in range(12)], rows)
    rows = column("score", ["NA", "n/a", "?", "-", "", *"1234567"], rows)
    rows = column("weight", ["inf", "1e300", *"1234567890"], rows)
    rows = column("size", ["12 cm", *"12345678901"], rows)
    write(tmp_path, rows)
    told = faults(tmp_path)
    kinds = (
        "ward': holds text of 3 values",
        "born': holds dates",
        "left': holds dates",
        "note': holds text of 12 values",
    )
    kinds += ("score': 5 of 12 numbers are missing", "weight': 2 numbers are infinite", "size': 1 of 12 are no number")
    assert len(told) == 7 and all(any(kind in line for line in told) for kind in kinds)
    drop = ["born", "left", "note", "weight"]
    graph = load(tmp_path, drop=drop, one_hot=["ward"], impute="mean", missing=["12 cm", "NA", "n/a", "?", "-", ""])
    assert graph.meaning.features == ("age", "bmi", "ward=bone", "ward=heart", "ward=lung", "score", "size")
    assert graph.meaning.notes == (
        "filled in 5 missing cells of 'score' (mean)",
        "filled in 1 missing cells of 'size' (mean)",
    )


def test_flags_are_numbers(tmp_path):
    write(tmp_path, column("smokes", ["TRUE", "false", ""] * 4))
    graph = load(tmp_path, impute="zero")
    assert (graph.features[:, 2] > 0).tolist() == [True, False, False] * 4


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (lines(TRIPLES), "beside two ids there is also field 3, such as '0.5'; no network here sees weights"),
        (lines([("from", "to", "km"), *TRIPLES], "\t"), "beside two ids there is also 'km'"),
        (lines([("u", "v", "since"), *TRIPLES]), "beside two ids there is also 'since'"),
        (lines([*EDGES, ("p1", "zz"), ("yy", "p2")]), "line 25: id zz is not in column 'id' of"),
        (lines([("p1", "P2"), *EDGES]), "line 1: id P2 is not in column 'id'"),
        (lines([("anna", "bert"), *EDGES]), "if line 1 is a header, data.files.source and target name its columns"),
        (
            lines([("id", "source", "target"), *TRIPLES]),
            "'source' may be an end of the edges too; data.files.source and",
        ),
        (lines([*EDGES, ("p1",)]), "line 25 has 1 fields, line 1 has 2"),
        (lines([*EDGES, ("p1", "p2", "p3")]), "line 25 has 3 fields, line 1 has 2"),
        (lines([("p1",), ("p2",)]), "line 1: expected two node ids, got 'p1'"),
        ("# none\n\n", "no edges, only comments; expected two node ids a line"),
        ("", "empty; expected two node ids a line"),
        ("p1,p1\np2,p2\n", "no edge between two different nodes; expected at least one"),
    ],
)
def test_faults_of_edge_lists(tmp_path, content, told):
    write(tmp_path, edges=content)
    [line] = faults(tmp_path)
    assert told in line and "edges.csv: " in line


def test_unknown_ends_and_loops_are_left_out_and_counted(tmp_path, plain):
    write(tmp_path, edges=[*EDGES, ("p1", "zz"), ("yy", "xx"), ("p3", "p3")])
    graph = same(tmp_path, plain, unknown_ends="skip")
    assert graph.meaning.notes == (
        "left out 2 of 27 edges, whose ends are no nodes (unknown_ends: skip)",
        "left out 1 self-loop; networks add what they need",
    )


def test_ids_that_frequent_mistakes_explain(tmp_path):
    write(tmp_path, [row[1:] for row in NODES], lines((PLACE[u] + 1, PLACE[v] + 1) for u, v in EDGES))
    assert "rows are counted from 0, and these may count from 1" in faults(tmp_path, id=None)[0]
    write(tmp_path, column("id", [f"{k:03}" for k in range(12)]), lines((PLACE[u], PLACE[v]) for u, v in EDGES))
    assert "ids are compared as text, so 7 is not 007" in faults(tmp_path)[0]


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("latin-1", "Zoë"), ("cp1252", "€ Zoë"), ("utf-16", "Zoë"), ("utf-16-be", "Zoë"), ("utf-32", "Zoë")],
)
def test_another_encoding_is_named_and_read_on_request(tmp_path, plain, encoding, shown):
    rows = column("sex", [shown, "m"] * 6)
    edges = lines(EDGES).encode(encoding)
    write(tmp_path, lines(rows).encode(encoding), edges)
    assert f"data.files.encoding: {encoding}" in faults(tmp_path, protected=shown)[0]
    same(tmp_path, plain, protected=shown, encoding=encoding)


@pytest.mark.parametrize("encoding", ["latin-2", "klingon", "base64", "utf-16"])
def test_an_encoding_that_is_none_or_not_the_files(tmp_path, encoding):
    write(tmp_path)
    if encoding == "latin-2":
        load(tmp_path, encoding=encoding)
    else:
        assert (
            "encoding" in faults(tmp_path, encoding=encoding)[0]
            or "is not utf-16" in faults(tmp_path, encoding=encoding)[0]
        )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"nodes": "nobody.csv"}, "nobody.csv: no such file; data.files.nodes must name a file"),
        ({"edges": "nothing.txt"}, "nothing.txt: no such file; data.files.edges must name a file"),
        ({"nodes": "nodes.xlsx"}, "nodes.xlsx: data.files.nodes must end in one of .csv, .tsv"),
        ({"edges": "edges.csv.gz"}, "edges.csv.gz: data.files.edges must end in one of .csv"),
        ({"edges": None}, "nodes.csv: is a table of nodes; data.files.edges must name a list of edges"),
        ({"nodes": "graph.npz"}, "edges.csv: graph.npz holds its edges; leave data.files.edges out"),
    ],
)
def test_which_files(tmp_path, changes, told):
    write(tmp_path)
    assert any(told in line for line in faults(tmp_path, **changes))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"edge_index": LINKS.T},
            "edge_index: expected whole numbers of shape (2, m), got int64 of shape (24, 2); transp",
        ),
        ({"edge_index": LINKS * 1.0}, "edge_index: expected whole numbers of shape (2, m), got float64"),
        ({"edge_index": LINKS + 1}, "id 12 is not in"),
        ({"x": X[:, 0]}, "x: expected real numbers of shape (n, f), got float64 of shape (12,)"),
        ({"y": Y[:11]}, "y: expected one value a node, shape (12,), got shape (11,)"),
        ({"y": np.eye(12)[:, :3]}, "y: expected one value a node, shape (12,), got shape (12, 3)"),
        ({"edge_weight": LINKS[0] * 0.5}, "beside two ids there is also 'edge_weight'"),
        ({"feature_names": ["a"]}, "feature_names: 1 names of 2 features"),
        ({"feature_names": ["a", "y"]}, "are all called 'y'"),
        (
            {"train_mask": np.ones((12, 10), bool)},
            "train_mask: expected a boolean mask of shape (12,), got bool of shape",
        ),
        ({"train_mask": np.ones(12, bool), "val_mask": np.ones(12, bool)}, "val_mask: overlaps another mask"),
    ],
)
def test_faults_of_arrays_in_a_file(tmp_path, changes, told):
    np.savez(tmp_path / "graph.npz", **{"x": X, "edge_index": LINKS, "y": Y, "sex": SEX} | changes)
    assert any(told in line for line in faults(tmp_path, nodes="graph.npz", **IN_ONE))


# Silent loss.


def test_own_data_keep_everything_and_a_loss_is_said(tmp_path):
    write(tmp_path, edges=[(f"p{k}", f"p{k + 1}") for k in range(0, 12, 2)])
    graph = load(tmp_path)
    assert (graph.num_nodes, graph.num_edges, graph.meaning.notes) == (12, 6, ())
    [line] = faults(tmp_path, nodes_kept="labelled_component")
    assert "kept 2 of 12 nodes (largest component; data.nodes: all keeps them)" in line
    write(tmp_path, column("hired", ["no", "yes", "", *["no", "yes"] * 4, ""]))
    graph = load(tmp_path, nodes_kept="labelled_component")
    kept = "kept 10 of 12 nodes (labelled nodes' largest component; data.nodes: all keeps them)"
    assert graph.num_nodes == 10 and graph.meaning.notes == (kept,) and graph.meaning.read == 12


def test_a_constant_feature_is_left_out_and_named(tmp_path):
    write(tmp_path, column("site", [3] * 12))
    graph = load(tmp_path)
    assert graph.meaning.features == ("age", "bmi") and graph.meaning.notes == ("left out constant features: site",)


# Clients and splits that are given.


def test_a_column_says_whose_each_node_is(tmp_path):
    write(tmp_path, column("ward", ["10", "9", "9"] * 4))
    graph = load(tmp_path, client="ward")
    assert graph.meaning.clients == ("9", "10") and graph.owner.tolist() == [1, 0, 0] * 4
    same_ward = {k: (k % 3 > 0) for k in range(12)}
    inside = [edge for edge in graph.edges.T.tolist() if same_ward[edge[0]] == same_ward[edge[1]]]
    assert graph.num_edges == len(inside) == 16
    assert graph.meaning.notes == ("left out 8 of 24 edges, between nodes of different clients",)
    clients = client_graphs(graph, ClientsConfig(partition="given", count=2), 0)
    assert [client.num_nodes for client in clients] == [8, 4]
    with pytest.raises(DataError, match=r"clients.count = 3, but the data name 2 clients, '9', '10'; set .* to 2"):
        client_graphs(graph, ClientsConfig(partition="given", count=3), 0)
    write(tmp_path, column("ward", ["10", "", "9"] * 4))
    assert "column 'ward', row 2: empty, as 4 of 12 are" in faults(tmp_path, client="ward")[0]


def test_a_folder_a_client(tmp_path):
    for name, part in (("b", BODY[:5]), ("a", BODY[5:])):
        (tmp_path / name).mkdir()
        rows = [HEADER, *((f"p{k}", *row[1:]) for k, row in enumerate(part))]  # the same ids in both
        write(tmp_path / name, rows, [("from", "to"), *((f"p{k}", f"p{k + 1}") for k in range(len(part) - 1))])
    (tmp_path / "notes").mkdir()
    graph = load(tmp_path, client_folders=True)
    assert graph.meaning.clients == ("a", "b") and graph.owner.tolist() == [0] * 7 + [1] * 5
    assert graph.num_edges == 4 + 6 and graph.meaning.notes == ()
    (tmp_path / "b" / "nodes.csv").write_text(lines([row[:2] + row[3:] for row in NODES]))
    [line] = faults(tmp_path, client_folders=True)
    assert "b/nodes.csv: no column 'bmi', which" in line
    (tmp_path / "b" / "nodes.csv").unlink()
    assert "b/nodes.csv: no such file" in faults(tmp_path, client_folders=True)[0]


def test_a_column_says_which_nodes_are_for_training(tmp_path):
    write(tmp_path, column("set", ["Train", "valid", "TEST", ""] * 3))
    graph = load(tmp_path, split="set")
    assert [mask.tolist() for mask in (graph.train, graph.val, graph.test)] == [
        [k % 4 == part for k in range(12)] for part in range(3)
    ]
    write(tmp_path, column("set", ["0", "1", "2", "0"] * 3))
    assert load(tmp_path, split="set", split_values=[0, 1, 2]).train.sum() == 6
    assert "'0', '1', '2' are not one of 'train', 'val', 'test'" in faults(tmp_path, split="set")[0]
    write(tmp_path, column("set", ["test"] * 12))
    assert "no node with a label is for training" in faults(tmp_path, split="set")[0]


# Whatever files hold ends in a graph or in one line.

CELLS = st.sampled_from(
    ["", "0", "1", "2", "a", "b", "NA", "1,5", '"', "é", "1e400", "2020-01-01", "p1", "#", "-1", "\x00"]
)
TABLES = st.lists(st.lists(CELLS, min_size=1, max_size=5), max_size=6)
NAMES = st.sampled_from(["id", "age", "sex", "hired", "", "x"])


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    header=st.one_of(st.just(list(HEADER)), st.lists(NAMES, max_size=6)),
    rows=TABLES,
    edges=TABLES,
    separator=st.sampled_from([",", ";", "\t", " ", "|"]),
    changes=st.dictionaries(
        st.sampled_from(["id", "sensitive", "client", "split", "source", "positive", "protected", "one_hot", "impute"]),
        st.sampled_from([None, "id", "sex", "1", "x"]),
        max_size=3,
    ),
    encoding=st.sampled_from(["utf-8", "latin-1", "utf-16"]),
)
def test_random_tables_end_in_a_graph_or_one_line(tmp_path, header, rows, edges, separator, changes, encoding):
    changes = {key: value for key, value in changes.items() if key not in ("one_hot", "impute")} | {
        "one_hot": ["x"] if "one_hot" in changes else [],
        "impute": "mean" if "impute" in changes else None,
    }
    write(tmp_path, lines([header, *rows], separator).encode(encoding, "replace"), lines(edges, separator))
    _ends_well(tmp_path, **changes)
    write(tmp_path, NODES, lines(edges, separator).encode(encoding, "replace"))
    _ends_well(tmp_path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=200), suffix=st.sampled_from(["csv", "npz", "pt", "graphml", "tsv", "parquet"]))
def test_random_bytes_end_in_one_line(tmp_path, raw, suffix):
    (tmp_path / f"nodes.{suffix}").write_bytes(raw)
    write(tmp_path)
    (tmp_path / "edges.txt").write_bytes(raw)
    pair = {} if suffix in ("csv", "tsv", "parquet") else IN_ONE
    _ends_well(tmp_path, nodes=f"nodes.{suffix}", **pair)
    _ends_well(tmp_path, edges="edges.txt")


SHAPES = st.sampled_from([(), (0,), (3,), (3, 1), (3, 2), (2, 3), (2, 0), (1, 3)])
ARRAYS = st.builds(
    lambda shape, kind, fill: np.full(shape, fill).astype(kind), SHAPES, st.sampled_from("fiU?"), st.integers(-1, 3)
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    arrays=st.dictionaries(
        st.sampled_from(["x", "edge_index", "y", "sex", "train_mask", "ids", "feature_names"]), ARRAYS
    )
)
def test_random_arrays_end_in_a_graph_or_one_line(tmp_path, arrays):
    archive = io.BytesIO()
    np.savez(archive, **arrays)
    (tmp_path / "graph.npz").write_bytes(archive.getvalue())
    _ends_well(tmp_path, nodes="graph.npz", **IN_ONE)


def _ends_well(folder, **changes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            load(folder, **changes)
        except DataError as error:
            assert str(error) and "\n" not in str(error)
