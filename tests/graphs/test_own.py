"""Graphs of one's own: the same from every source, and one line for every fault."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from orchestrator.errors import DataError
from orchestrator.graphs.graph import Graph
from orchestrator.graphs.meaning import Meaning

X = np.arange(24, dtype=np.float64).reshape(8, 3) / 7
EDGES = np.array([[0, 1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7]])
Y, S = np.array([0, 1] * 4), np.array([0, 0, 1, 1] * 2)
IDS = list("abcdefgh")
NUMBERED = {"label_values": ["no", "yes"], "positive": None, "protected": None}
MEANT = {"id": "id", "label": "hired", "sensitive": "sex", "positive": "yes", "protected": "m"}


def assert_same(first: Graph, second: Graph) -> None:
    for field in fields(Graph):
        if field.name == "meaning":
            continue  # only tables have them
        one, other = getattr(first, field.name), getattr(second, field.name)
        np.testing.assert_array_equal(one, other, field.name)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)


def data(**changes) -> Data:
    arrays = {"x": X, "edge_index": EDGES, "y": Y, "sex": S} | changes
    return Data(**{name: value if value is None else torch.tensor(value) for name, value in arrays.items()})


def frames(**columns) -> tuple[pd.DataFrame, pd.DataFrame]:
    nodes = pd.DataFrame(X, columns=["x0", "x1", "x2"])
    text = {"id": IDS, "hired": np.where(Y, "yes", "no"), "sex": np.where(S, "m", "f")}
    edges = pd.DataFrame({"from": [IDS[u] for u in EDGES[0]], "to": [IDS[v] for v in EDGES[1]]})
    return nodes.assign(**text | columns), edges


def from_frames(nodes, edges, **options) -> Graph:
    return Graph.from_pandas(nodes, edges, **MEANT | options)


@pytest.mark.parametrize("options", [{}, {"split": (0.25, 0.25, 0.5), "seed": 5}, {"scaling": "pooled"}])
def test_arrays_pyg_and_pandas_give_the_same_graph(options):
    arrays = Graph.from_arrays(X, EDGES, Y, S, **options)
    assert_same(arrays, Graph.from_pyg(data(), "sex", **options))
    assert_same(arrays, Graph.from_pyg(SimpleNamespace(x=X.tolist(), edge_index=EDGES, y=Y), S, **options))
    assert_same(arrays, from_frames(*frames(), **options))


def test_what_a_graph_of_arrays_holds():
    graph = Graph.from_arrays(X, EDGES, Y, S)
    np.testing.assert_array_equal(graph.features, X.astype(np.float32))
    np.testing.assert_array_equal(graph.edges, EDGES)
    assert graph.labels.tolist() == Y.tolist() and graph.sensitive.tolist() == S.tolist() and graph.classes == 2
    assert [int(mask.sum()) for mask in (graph.train, graph.val, graph.test)] == [4, 2, 2]
    assert (graph.train | graph.val | graph.test).all()


def test_the_split_is_that_of_files_read_by_the_settings(tmp_path):
    from orchestrator.config import DataConfig
    from orchestrator.graphs import load_graph

    nodes, edges = frames()
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    edges.to_csv(tmp_path / "edges.csv", index=False, header=False)
    files = {"nodes": "nodes.csv", "edges": "edges.csv", **MEANT}
    for scaling in ("by_client", "pooled", "row_normalised", "none"):
        for stratified in (True, False):
            settings = DataConfig(name="files", dir=tmp_path, files=files, scaling=scaling, stratified=stratified)
            own = from_frames(nodes, edges, scaling=scaling, stratified=stratified, name="nodes")
            read = load_graph(settings, 31)
            assert_same(read, own)
            assert read.meaning == own.meaning == Meaning(("x0", "x1", "x2"), ("no", "yes"), ("f", "m"), read=8)


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda e: e[0] != e[1]), min_size=1))
def test_edges_have_no_direction_and_count_once(pairs):
    graph = Graph.from_arrays(X, np.array(pairs).T, Y)
    assert {tuple(edge) for edge in graph.edges.T.tolist()} == {(min(pair), max(pair)) for pair in pairs}


def test_masks_that_are_given_are_kept():
    train, val, test = (np.arange(8) % 4 == k for k in range(3))
    masks = {"train_mask": train, "val_mask": val, "test_mask": test}
    for graph in (
        Graph.from_arrays(X, EDGES, Y, S, train=train, val=val, test=test),
        Graph.from_pyg(data(**masks), "sex"),
        from_frames(*frames(), train=train, val=val, test=test),
    ):
        np.testing.assert_array_equal([graph.train, graph.val, graph.test], [train, val, test])
    other = Graph.from_pyg(data(**masks), "sex", split=(0.5, 0.25, 0.25))  # asked for, it takes their place
    assert_same(other, Graph.from_arrays(X, EDGES, Y, S))


def test_a_node_without_label_stays_and_is_in_no_mask():
    y = np.where(np.arange(8) == 3, np.nan, Y)
    nodes, edges = frames(hired=["no", "yes", "no", None, "no", "yes", "no", "yes"])
    unknown = frames(hired=["no", "yes", "no", "?", "no", "yes", "no", "yes"])[0]
    expected = Graph.from_arrays(X, EDGES, np.where(np.arange(8) == 3, -1, Y), S)
    assert expected.num_nodes == 8 and not (expected.train | expected.val | expected.test)[3]
    for graph in (
        Graph.from_arrays(X, EDGES, y, S),
        from_frames(nodes, edges),
        from_frames(unknown, edges, missing_label="?"),
    ):
        assert_same(graph, expected)


def test_labels_may_have_more_values_and_numbers_are_ordered_as_such():
    grade = [1.0, 10, 2, 10, None, 1, 2, 1]  # the gap makes floats of them
    graph = from_frames(*frames(hired=grade), sensitive=None, drop=["sex"], **NUMBERED | {"label_values": [1, 2, 10]})
    assert graph.labels.tolist() == [0, 2, 1, 2, -1, 0, 1, 0] and graph.classes == 3 and graph.sensitive is None
    assert graph.num_features == 3


def test_a_part_numbers_values_as_the_whole_does():
    part = {"hired": ["yes"] * 8, "sex": ["m"] * 8}
    graph = from_frames(*frames(**part), **NUMBERED, sensitive_values=["f", "m"])
    assert graph.labels.tolist() == [1] * 8 and graph.sensitive.tolist() == [1] * 8 and graph.classes == 2
    assert_same(graph, Graph.from_arrays(X, EDGES, [1] * 8, [1] * 8, classes=2))
    assert Graph.from_arrays(X, np.empty((2, 0), int), [1] * 8, classes=3).classes == 3


def test_numbers_of_a_column_with_a_gap_are_those_without_one():
    hired = [0, 1, 0, None, 0, 1, 0, 1]  # 0.0 and 1.0
    graph = from_frames(*frames(hired=hired), positive=1)
    assert graph.labels.tolist() == [0, 1, 0, -1, 0, 1, 0, 1]
    whole = from_frames(*frames(hired=[-1 if y is None else y for y in hired]), missing_label=-1, positive=1)
    assert_same(graph, whole)


def test_whole_numbers_are_ids_as_they_are():
    big = 1_170_000_000_000_000_001  # and its successor are one float64
    nodes, edges = frames(id=[big + k for k in range(8)])
    edges = pd.DataFrame(EDGES.T + big)
    assert_same(from_frames(nodes, edges), Graph.from_arrays(X, EDGES, Y, S))


BAD = np.where(np.arange(24).reshape(8, 3) == 7, np.nan, X)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": X[0]}, "features: expected real numbers of shape (n, f), got float64 of shape (3,)"),
        ({"features": [["a"]] * 8}, "features: expected real numbers of shape (n, f), got <U1 of shape (8, 1)"),
        ({"features": [[1], [2, 3]]}, "features: expected real numbers of shape (n, f), got none"),
        ({"features": BAD}, "features: node 2, feature 1 is NaN or infinite"),
        ({"features": X * 1e40}, "features: node 0, feature 1 is NaN or infinite"),
        ({"edges": EDGES.T}, "edges: expected whole numbers of shape (2, m), got int64 of shape (7, 2); transpose it"),
        ({"edges": EDGES * 1.0}, "edges: expected whole numbers of shape (2, m), got float64 of shape (2, 7)"),
        ({"edges": EDGES + 1}, "edges: edge 6 is (7, 8); expected node indices from 0 to 7"),
        (
            {"edges": np.minimum(EDGES, 5)},
            "edges: edge 5 joins node 5 to itself, as 2 do; leave them out, networks add what they need",
        ),
        (
            {"edges": EDGES[:, :0]},
            "edges: there are none; expected one or more, or classes = C for a part of a graph",
        ),
        ({"labels": Y[:7]}, "labels: expected numbers of shape (8,), got int64 of shape (7,)"),
        (
            {"labels": ["no", "yes"] * 4},
            "labels: expected numbers of shape (8,), got <U3 of shape (8,); Graph.from_pandas numbers text",
        ),
        ({"labels": Y + 0.5}, "labels: node 0 has 0.5; expected 0 to 127, or -1 where it is unknown"),
        ({"labels": Y + 1}, "labels: no node has label 0; expected 0 to C - 1 of C classes, or give classes = 3"),
        ({"labels": 2 * Y - 1}, "labels: no node has label 0; expected 0 to C - 1 of C classes, or give classes = 2"),
        (
            {"labels": 0 * Y},
            "labels: the kept nodes have only class 0; expected two or more, or classes = C for a part of a graph",
        ),
        ({"classes": 1}, "labels: classes = 1; expected 2 to 128"),
        ({"labels": 2 * Y, "classes": 2}, "labels: node 1 has 2; expected 0 to 1, or -1 where it is unknown"),
        ({"sensitive": S + 1}, "sensitive: node 2 has 2; expected 0 to 1"),
        ({"sensitive": [0.0, np.nan] * 4}, "sensitive: node 1 has nan; expected 0 to 1"),
        (
            {"sensitive": 0 * S},
            "sensitive: the kept nodes have only group 0; expected two or more, or classes = C for a part of a graph",
        ),
        ({"train": Y == 0}, "masks: got train; expected train, val and test, or only a split"),
        (
            {"train": Y == 0, "val": Y == 1, "test": Y == 2, "split": (0.5, 0.5, 0)},
            "masks: got train, val, test; expected train, val and test, or only a split",
        ),
        ({"train": Y, "val": Y, "test": Y}, "train: expected a boolean mask of shape (8,)"),
        (
            {"split": (0.5, 0.6, 0)},
            "data.split = [0.5, 0.6, 0.0]: expected three shares that sum to 1, of which only the validation's "
            "and the test's may be 0",
        ),
        ({"split": (0.9, 0.05, 0.05)}, "graph: 8 labelled nodes are left; a 90/5/5 split needs at least 20"),
        ({"scaling": "standardised"}, "scaling: expected by_client, pooled, row_normalised, none, got 'standardised'"),
    ],
)
def test_faults_of_arrays(changes, message):
    arrays = {"features": X, "edges": EDGES, "labels": Y, "sensitive": S} | changes
    with pytest.raises(DataError) as caught:
        Graph.from_arrays(**arrays)
    assert str(caught.value).removeprefix("graph: ") == message.removeprefix("graph: ")


@pytest.mark.parametrize(
    ("changes", "sensitive", "message"),
    [
        ({}, "age", "graph: data.age: there is none; data have edge_index, sex, x, y"),
        ({"x": None}, "sex", "graph: data.x: there is none; data have edge_index, sex, y"),
        (
            {"edge_attr": EDGES[0]},
            "sex",
            "graph: data.edge_attr: edges have no attributes here; remove it, data.edge_attr = None",
        ),
        (
            {"train_mask": np.ones((8, 10), bool)},
            "sex",
            "graph: data.train_mask: expected shape (n,), got (8, 10); choose one split, [:, 0]",
        ),
        ({"train_mask": Y == 0}, "sex", "graph: masks: got train; expected train, val and test, or only a split"),
    ],
)
def test_faults_of_pyg(changes, sensitive, message):
    with pytest.raises(DataError) as caught:
        Graph.from_pyg(data(**changes), sensitive)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({}, {"label": "pay"}, "no column 'pay', label; there are 'x0', 'x1', 'x2', 'id', 'hired', 'sex'"),
        ({}, {"label": "Hired "}, "no column 'Hired ', label (did you mean 'hired'?)"),
        ({}, {"drop": ["y9"]}, "no column 'y9', drop; there are 'x0', 'x1', 'x2', 'id', 'hired', 'sex'"),
        ({}, {"drop": ["sex"]}, "column 'sex' is sensitive and drop; a column has one meaning"),
        ({"id": ["a", *"abcdefg"]}, {}, "column 'id': id a occurs twice, in row 1 and row 2"),
        ({"id": [None, *"bcdefgh"]}, {}, "column 'id', row 1: empty, as 1 of 8 are; expected the id of every node"),
        ({"hired": "no"}, {"positive": None}, "column 'hired': has only 'no'; expected two values or more"),
        (
            {},
            {"label_values": ["no", "maybe"], "positive": None},
            "column 'hired': 'yes' is not among 'no', 'maybe'",
        ),
        (
            {"sex": list("fmdfmdfm")},
            {"protected": None},
            "column 'sex': has 3 values, 'd', 'f', 'm'; protected must say which is the protected group; the others "
            "are compared with it together",
        ),
        (
            {"sex": [None, *"fmmfmff"]},
            {},
            "column 'sex', row 1: empty, as 1 of 8 are; expected the group of every node",
        ),
        (
            {"x1": list("01234567x")[1:]},
            {},
            "column 'x1': 1 of 8 are no number, such as 'x' in row 8; correct them, name them in missing if they stand "
            "for nothing, or drop it",
        ),
        (
            {"x1": [None, *range(7)]},
            {},
            "column 'x1': 1 of 8 numbers are missing, the first in row 1; impute fills them in (mean, median, zero), "
            "or drop it",
        ),
        (
            {"born": pd.date_range("2000", periods=8)},
            {},
            "column 'born': holds dates (datetime64[us]); drop it, or write what matters of them as a number",
        ),
    ],
)
def test_faults_of_a_node_table(columns, options, message):
    with pytest.raises(DataError) as caught:
        from_frames(*frames(**columns), **options)
    assert str(caught.value) == f"graph: nodes: {message}"


def test_faults_of_an_edge_table():
    nodes, edges = frames()
    numbered = nodes.assign(id=range(8))
    for table, links, message in (
        (nodes, edges.assign(weight=1), "beside two ids there is also 'weight'; no network here sees weights"),
        (nodes, edges[["from"]], "expected two columns of node ids, got 'from'"),
        (nodes, edges.replace("h", "z"), "row 7: id z is not in the table of nodes; 1 of 7 edges have such an end"),
        (numbered, edges, "row 1: id a is not in the table of nodes; 7 of 7 edges have such an end"),
    ):
        with pytest.raises(DataError) as caught:
            from_frames(table, links)
        assert str(caught.value).startswith(f"graph: edges: {message}")
    with pytest.raises(DataError, match=r"graph: nodes: two columns are called 'x0'; expected one"):
        from_frames(pd.concat([nodes, nodes[["x0"]]], axis=1), edges)
    with pytest.raises(DataError, match=r"graph: nodes: no rows; expected one row a node"):
        from_frames(nodes[:0], edges)


def test_a_graph_to_predict_has_no_labels():
    nodes, edges = frames()
    for graph in (
        Graph.from_arrays(X, EDGES, None),
        from_frames(nodes.drop(columns=["hired", "sex"]), edges, label=None),
    ):
        assert (graph.labels == -1).all() and not (graph.train | graph.val | graph.test).any()
        np.testing.assert_array_equal(graph.features, X.astype(np.float32))
