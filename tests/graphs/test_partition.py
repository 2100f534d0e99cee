"""Clients as induced subgraphs, and ego networks against a naive breadth-first search."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config import ClientsConfig
from orchestrator.errors import DataError
from orchestrator.graphs import client_graphs

PATH = [(i, i + 1) for i in range(9)]
N = 12
PAIRS = st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, N - 1)), max_size=20)


def _oracle(graph, ego, hops):
    neighbours = {node: set() for node in range(graph.num_nodes)}
    for u, v in graph.edges.T.tolist():
        neighbours[u].add(v)
        neighbours[v].add(u)
    distance, queue = {ego: 0}, [ego]
    for node in queue:
        for other in neighbours[node] - distance.keys():
            distance[other] = distance[node] + 1
            queue.append(other)
    return sorted(node for node, steps in distance.items() if steps <= hops)


def _nodes(graph, client):
    """Global indices of a client's nodes; features are distinct, so they identify nodes."""
    places = [np.flatnonzero((graph.features == row).all(axis=1)) for row in client.features]
    return [int(place) for (place,) in places]


@settings(max_examples=60)
@given(PAIRS, st.integers(0, 4), st.integers(0, 2**32))
def test_every_training_node_yields_exactly_its_neighbourhood(make_graph, pairs, hops, seed):
    graph = make_graph(N, pairs, train=[1, 4, 7, 10])
    clients = client_graphs(graph, ClientsConfig(count=4, hops=hops), seed)
    found = sorted(_nodes(graph, client) for client in clients)
    assert found == sorted(_oracle(graph, ego, hops) for ego in (1, 4, 7, 10))


@given(PAIRS, st.integers(0, 3))
def test_clients_are_induced_subgraphs(make_graph, pairs, hops):
    graph = make_graph(N, pairs, sensitive=[0, 0, 1] * 4, train=range(0, N, 3))
    for number, client in enumerate(client_graphs(graph, ClientsConfig(count=3, hops=hops), 5)):
        nodes = _nodes(graph, client)
        assert client.name == f"client {number}"
        for field in ("labels", "sensitive", "train", "val", "test"):
            assert np.array_equal(getattr(client, field), getattr(graph, field)[nodes])
        inside = [edge for edge in graph.edges.T.tolist() if set(edge) <= set(nodes)]
        assert np.array(nodes)[client.edges].T.tolist() == inside


def test_the_seed_decides(make_graph):
    graph = make_graph(10, PATH)
    config = ClientsConfig(count=3, hops=1)
    draws = [[_nodes(graph, c) for c in client_graphs(graph, config, seed)] for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_distinct_egos_differ_and_replacement_may_repeat(make_graph):
    graph = make_graph(10, PATH)
    distinct = client_graphs(graph, ClientsConfig(count=10, hops=0), 3)
    assert sorted(_nodes(graph, c) for c in distinct) == [[i] for i in range(10)]
    drawn = client_graphs(graph, ClientsConfig(count=50, hops=0, ego_sampling="with_replacement"), 3)
    assert len(drawn) == 50


@pytest.mark.parametrize("sampling", ["distinct", "with_replacement"])
def test_small_networks_are_passed_over(make_graph, sampling):
    graph = make_graph(6, [(0, 1), (1, 2)])  # 3, 4 and 5 are alone
    clients = client_graphs(graph, ClientsConfig(count=3, hops=2, min_nodes=3, ego_sampling=sampling), 0)
    assert [_nodes(graph, c) for c in clients] == [[0, 1, 2]] * 3


@pytest.mark.parametrize("sampling", ["distinct", "with_replacement"])
def test_too_few_eligible_training_nodes(make_graph, sampling):
    graph = make_graph(6, [(0, 1)])
    config = ClientsConfig(count=1, hops=1, min_nodes=3, ego_sampling=sampling)
    with pytest.raises(DataError, match=r"clients\.count = 1, but only 0 training nodes .* \(6 have a smaller one\)"):
        client_graphs(graph, config, 0)


def test_more_clients_than_training_nodes(make_graph):
    graph = make_graph(6, [(0, 1)], train=[0, 1])
    with pytest.raises(DataError, match=r"clients\.count = 3, but only 2 training nodes"):
        client_graphs(graph, ClientsConfig(count=3, hops=1), 0)


def test_truncated_features_are_rounded_towards_zero(make_graph):
    graph = make_graph(10, PATH)
    plain, truncated = (
        client_graphs(graph, ClientsConfig(count=10, hops=9, features=kind), 0)[0] for kind in ("float", "truncated")
    )
    assert np.array_equal(truncated.features, np.trunc(plain.features))
    assert truncated.features.dtype == np.float32
    assert (np.abs(truncated.features) <= np.abs(plain.features)).all()
    assert (truncated.features != plain.features).any()


def test_nodes_are_the_places_in_the_whole(make_graph):
    graph = make_graph(10, PATH)
    clients = client_graphs(graph, ClientsConfig(count=4, hops=2), 3)
    assert clients.communities.tolist() == [0, 1, 2, 3]
    for number, client in enumerate(clients):
        assert np.array_equal(clients.nodes(number), _nodes(graph, client))
    assert np.array_equal(clients.nodes(-1), clients.nodes(3))
    with pytest.raises(IndexError):
        clients.nodes(4)


def test_clients_can_be_sent_to_other_processes(make_graph):
    clients = client_graphs(make_graph(10, PATH), ClientsConfig(count=4, partition="disjoint"), 3)
    sent = pickle.loads(pickle.dumps(clients))
    assert [client.edges.tolist() for client in sent] == [client.edges.tolist() for client in clients]
    assert np.array_equal(sent.communities, clients.communities)


def test_whole(make_graph):
    graph = make_graph(10, PATH, train=[2])
    (client,) = client_graphs(graph, ClientsConfig(count=1, partition="whole"), 0)
    assert client.name == "client 0"
    for field in ("features", "edges", "labels", "sensitive", "train", "val", "test"):
        assert np.array_equal(getattr(client, field), getattr(graph, field))


@pytest.mark.parametrize("partition", ["ego", "disjoint", "overlapping", "louvain"])
def test_classes_and_no_groups_are_passed_on(make_graph, partition):
    labels = (np.arange(30) % 5).astype(np.int8)
    graph = replace(make_graph(30, [(i, i + 1) for i in range(29)]), labels=labels, sensitive=None, classes=5)
    for client in client_graphs(graph, ClientsConfig(count=5, partition=partition, tolerance=1), 0):
        assert client.classes == 5 and client.sensitive is None


def test_a_client_may_have_no_edges_no_training_nodes_and_one_class(make_graph):
    graph = make_graph(6, [(0, 1)], train=[0])
    clients = client_graphs(graph, ClientsConfig(count=6, partition="louvain", tolerance=0), 0)
    assert [client.num_nodes for client in clients] == [1] * 6
    assert sum(client.num_edges for client in clients) == 0
    assert sum(int(client.train.sum()) for client in clients) == 1
