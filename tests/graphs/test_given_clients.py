"""Nothing is lost without a word; clients and splits that files name are theirs."""

from __future__ import annotations

import pandas as pd
import pytest

from orchestrator.config import ClientsConfig
from orchestrator.errors import DataError
from orchestrator.graphs import client_graphs, describe_graph, graph_facts
from orchestrator.graphs.graph import Graph
from tests.graphs.own_data import (
    BODY,
    EDGES,
    HEADER,
    MEANT,
    NODES,
    column,
    faults,
    lines,
    load,
    write,
)


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
    graph = load(tmp_path, scaling="pooled")
    assert graph.num_features == 2 and graph.meaning.notes == ("left out constant features: site",)
    assert graph.meaning.features == ("age", "bmi", "site")  # as they came
    assert describe_graph(graph)["feature_names"] == graph_facts(graph)["features"] == ["age", "bmi"]
    nodes, meant = pd.read_csv(tmp_path / "nodes.csv"), {k: v for k, v in MEANT.items() if k not in ("nodes", "edges")}
    kept = Graph.from_pandas(nodes, pd.DataFrame(EDGES), scaling="pooled", **meant)
    assert kept.meaning == graph.meaning and kept.num_features == 2
    graph = load(tmp_path)
    assert graph.num_features == 3 and graph.meaning.notes == ()


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
