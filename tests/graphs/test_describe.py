"""Facts about a graph and its clients."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.config import ClientsConfig, DataConfig, SyntheticConfig
from orchestrator.graphs import client_graphs, describe_graph, group_balance, load_graph


def test_by_hand(make_graph):
    graph = make_graph(5, [(0, 1), (0, 2), (2, 4), (3, 4)], sensitive=[0, 0, 0, 1, 1], train=[0])
    graph = replace(graph, labels=np.array([0, 1, 0, 1, -1], np.int8))
    facts = describe_graph(graph)
    assert facts == {
        "name": "graph",
        "nodes": 5,
        "nodes_read": 5,
        "notes": [],
        "edges": 4,
        "components": {"count": 1, "largest": 5, "isolated_nodes": 0},
        "features": 2,
        "feature_names": [],
        "label_names": [],
        "group_names": [],
        "split": {"train": 1, "val": 0, "test": 0},
        "labels": {"0": 2, "1": 2, "missing": 1},
        "groups": {"0": 3, "1": 2},
        "joint": {"y=0, s=0": 2, "y=0, s=1": 0, "y=1, s=0": 1, "y=1, s=1": 1},
        "label_homophily": 0.5,
        "group_homophily": 0.75,
        "balance": 0.5,
        "clients": {"count": 0},
    }


def test_clients():
    graph = load_graph(DataConfig(synthetic=SyntheticConfig(nodes=300, edges=600)), 1)
    clients = client_graphs(graph, ClientsConfig(count=5, hops=2), 1)
    facts = json.loads(json.dumps(describe_graph(graph, clients), allow_nan=False))["clients"]
    sizes = sorted(client.num_nodes for client in clients)
    assert facts["nodes"] == {"min": sizes[0], "median": sizes[2], "max": sizes[4]}
    assert facts["balances"] == pytest.approx([group_balance(client) for client in clients])


def test_a_share_of_nothing_is_none(make_graph):
    facts = describe_graph(make_graph(3, []), [make_graph(1, [])])
    assert facts["label_homophily"] is None and facts["group_homophily"] is None
    assert facts["balance"] == 0
    json.dumps(facts, allow_nan=False)


def test_many_classes_without_groups(make_graph):
    graph = make_graph(5, [(0, 1), (0, 2), (2, 4), (3, 4)], train=[0, 1])
    graph = replace(graph, labels=np.array([0, 2, 0, 1, -1], np.int8), sensitive=None, classes=4)
    facts = describe_graph(graph, client_graphs(graph, ClientsConfig(count=2, hops=0), 1))
    json.dumps(facts, allow_nan=False)
    assert facts["labels"] == {"0": 2, "1": 1, "2": 1, "3": 0, "missing": 1}
    assert facts["label_homophily"] == 0.5
    assert all(facts[key] is None for key in ("groups", "joint", "group_homophily", "balance"))
    one = {"min": 1, "median": 1.0, "max": 1}
    none = {"min": 0, "median": 0.0, "max": 0}
    assert facts["clients"] == {
        "count": 2,
        "nodes": one,
        "edges": none,
        "train_nodes": one,
        "train_classes": one,
        "balance": None,
        "balances": None,
    }
