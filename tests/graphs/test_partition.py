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


def holders(clients, nodes):
    found = [[] for _ in range(nodes)]
    for number in range(len(clients)):
        for node in clients.nodes(number):
            found[node].append(number)
    return found


@given(PAIRS, st.integers(1, 4), st.integers(0, 2**32))
def test_at_most_so_many_clients_hold_a_node_and_no_more_leave_than_must(make_graph, pairs, most, seed):
    graph = make_graph(N, pairs, train=[1, 4, 7, 10])
    egos = ClientsConfig(count=4, hops=2)
    free = holders(client_graphs(graph, egos, seed), N)
    capped = holders(client_graphs(graph, egos.model_copy(update={"max_memberships": most}), seed), N)
    for before, after in zip(free, capped, strict=True):
        assert set(after) <= set(before) and len(after) == min(most, len(before))
    clients = client_graphs(graph, egos.model_copy(update={"max_memberships": 1}), seed)
    held = sorted(int(node) for number in range(4) for node in clients.nodes(number) if graph.train[node])
    assert held == [1, 4, 7, 10] and all(len(clients.nodes(number)) for number in range(4))  # egos stay at their own


@pytest.mark.parametrize("partition", ["ego", "overlapping"])
def test_who_keeps_a_node_depends_on_nobody_elses_edges(make_graph, partition):
    """So that a person moves up to so many clients, whatever it is replaced with, and no other one."""
    n, count = 60, 6
    clients = ClientsConfig(count=count, hops=1, max_memberships=2, partition=partition, copies=3, share=0.9)
    pairs = [(i, i + step) for step in (1, 2, 3, 7) for i in range(n - step)]
    if partition == "overlapping":
        graph = make_graph(n, pairs, train=range(0, n, 2))
        assert max(map(len, holders(client_graphs(graph, clients, 3), n))) == 2
        return
    for seed in range(20):
        graph = make_graph(n, pairs, train=range(0, n, 10))
        held = holders(client_graphs(graph, clients, seed), n)
        person = 5
        other = make_graph(n, [pair for pair in pairs if person not in pair], train=range(0, n, 10))
        without = holders(client_graphs(other, clients, seed), n)
        assert [nodes for k, nodes in enumerate(held) if k != person] == [
            nodes for k, nodes in enumerate(without) if k != person
        ]


def test_a_cap_that_leaves_a_client_nothing_is_refused(make_graph):
    graph = make_graph(3, [], train=[0])
    clients = ClientsConfig(count=3, hops=1, max_memberships=2, ego_sampling="with_replacement")
    with pytest.raises(DataError, match=r"clients.max_memberships = 2 leaves client \d without nodes"):
        client_graphs(graph, clients, 1)


def test_what_is_public_about_memberships():
    cases = {
        "ego": None,
        "given": None,
        "disjoint": 1,
        "louvain": 1,
    }
    for partition, most in cases.items():
        assert ClientsConfig(partition=partition).memberships == most
        assert ClientsConfig(partition=partition, max_memberships=3).memberships == 3
    assert ClientsConfig(partition="overlapping", copies=5).memberships == 5
    assert ClientsConfig(count=2, max_memberships=3).memberships == 2
