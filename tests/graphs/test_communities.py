"""METIS, its overlapping subsets, and Louvain's communities dealt out, on random graphs and on the real ones."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orchestrator.config import ClientsConfig, DataConfig
from orchestrator.errors import DataError
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.graphs.communities import deal

N = 40
PAIRS = st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, N - 1)), min_size=30, max_size=120)
RING = [(i, (i + 1) % 400) for i in range(400)] + [(i, (i + 2) % 400) for i in range(400)]


def _clients(graph, seed=1, **settings):
    clients = client_graphs(graph, ClientsConfig(**settings), seed)
    return clients, [clients.nodes(i) for i in range(len(clients))]


def _assert_exactly_once(members, nodes):
    assert np.array_equal(np.sort(np.concatenate(members)), np.arange(nodes))
    assert all(len(part) and (np.diff(part) > 0).all() for part in members)


@settings(max_examples=40, deadline=None)
@given(PAIRS, st.integers(1, 6), st.integers(0, 2**32))
def test_disjoint_parts_cover_every_node_once(make_graph, pairs, count, seed):
    try:
        clients, members = _clients(make_graph(N, pairs), seed, partition="disjoint", count=count)
    except DataError as error:
        assert "empty" in str(error)
        assume(False)
    _assert_exactly_once(members, N)
    assert clients.communities.tolist() == list(range(count))


@settings(max_examples=40, deadline=None)
@given(PAIRS, st.integers(1, 6), st.integers(0, 5), st.integers(0, 2**32))
def test_louvain_covers_every_node_once_whatever_the_communities(make_graph, pairs, count, tolerance, seed):
    _, members = _clients(
        make_graph(N, pairs), seed, partition="louvain", count=count, tolerance=min(tolerance, N // count - 1)
    )
    _assert_exactly_once(members, N)


def test_disjoint_parts_are_even_and_cut_few_edges(make_graph):
    clients, members = _clients(make_graph(400, RING), partition="disjoint", count=8)
    assert all(45 <= len(part) <= 55 for part in members)
    assert sum(client.num_edges for client in clients) >= 800 - 2 * 8 * 3  # a clean cut of the ring costs three edges


@pytest.mark.parametrize("share", [0.29, 0.5, 1.0])
def test_overlapping_clients_are_subsets_of_one_part(make_graph, share):
    graph = make_graph(400, RING)
    _, parts = _clients(graph, partition="disjoint", count=4)
    clients, members = _clients(graph, partition="overlapping", count=12, copies=3, share=share)
    assert clients.communities.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    for nodes, part in zip(members, clients.communities, strict=True):
        assert set(nodes) <= set(parts[part]) and (np.diff(nodes) > 0).all()
        assert len(nodes) == round(len(parts[part]) * share - 0.49)
    assert np.array_equal(members[0], members[1]) == (share == 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"partition": "disjoint", "count": 5},
        {"partition": "overlapping", "count": 10},
        {"partition": "louvain", "count": 5},
    ],
)
def test_the_seed_decides(make_graph, settings):
    rng = np.random.default_rng(0)
    graph = make_graph(400, rng.integers(0, 400, (1200, 2)))
    first, again, other = (_clients(graph, seed, **settings)[1] for seed in (1, 1, 2))
    assert all(map(np.array_equal, first, again))
    assert not all(map(np.array_equal, first, other))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"partition": "disjoint", "count": 7},
            r"graph: METIS leaves 1 of 7 parts of 6 nodes empty; lower clients\.count",
        ),
        (
            {"partition": "overlapping", "count": 5, "share": 0.1},
            r"clients\.share = 0\.1 of a part of 6 nodes is none; raise it or lower clients\.count",
        ),
        (
            {"partition": "louvain", "count": 3, "tolerance": 2},
            r"clients\.tolerance = 2 leaves nothing of 6 nodes by clients\.count = 3; lower either",
        ),
    ],
)
def test_graphs_that_are_too_small(make_graph, settings, message):
    with pytest.raises(DataError, match=message) as caught:
        _clients(make_graph(6, [(0, 1), (2, 3)]), **settings)
    assert "\n" not in str(caught.value)


def test_an_empty_part_is_refused(make_graph, monkeypatch):
    def lopsided(count, adjacency, **options):
        return type("Partition", (), {"vertex_part": [0] * 6})

    monkeypatch.setattr("pymetis.part_graph", lopsided)
    with pytest.raises(DataError, match="METIS leaves 2 of 3 parts of 6 nodes empty"):
        _clients(make_graph(6, [(0, 1)]), partition="disjoint", count=3)


def _deal(sizes, count, piece, limit):
    bounds = np.cumsum([0, *sizes])
    dealt = deal([np.arange(a, b) for a, b in pairwise(bounds)], count, piece, limit)
    _assert_exactly_once([nodes for nodes in dealt if len(nodes)], bounds[-1])
    return [nodes.tolist() for nodes in dealt]


def test_large_communities_are_cut_and_dealt_in_turn():
    assert _deal([5, 2], 3, 2, 4) == [[0, 1, 4], [2, 3], [5, 6]]
    assert _deal([2, 2, 1, 1], 2, 2, 3) == [[0, 1, 4], [2, 3, 5]]
    assert _deal([3, 1, 1, 1], 2, 3, 3) == [[0, 1, 2], [3, 4, 5]]  # the full one is passed over


def test_a_piece_for_which_nobody_has_room_goes_to_the_smallest():
    assert _deal([3, 2, 2], 2, 3, 3) == [[0, 1, 2], [3, 4, 5, 6]]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20), st.integers(1, 6), st.integers(0, 10))
def test_dealing_ends_and_only_overflows_where_nothing_fits(sizes, count, tolerance):
    mean = sum(sizes) // count
    assume(mean > tolerance)
    dealt = [len(nodes) for nodes in _deal(sizes, count, mean - tolerance, mean + tolerance)]
    assert min(dealt) > 0
    assert max(dealt) <= max(mean + tolerance, min(dealt) + mean - tolerance)


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_real_graphs(planetoid, name):
    graph = load_graph(DataConfig(name=name, dir=planetoid(name), scaling="row_normalised"), 31)
    for count in (5, 10, 20):
        clients, members = _clients(graph, partition="disjoint", count=count)
        _assert_exactly_once(members, graph.num_nodes)
        assert max(map(len, members)) <= 1.04 * graph.num_nodes / count
        assert sum(client.num_edges for client in clients) > 0.8 * graph.num_edges
    for count in (10, 30, 50):
        _, members = _clients(graph, partition="overlapping", count=count)
        assert max(map(len, members)) <= 1.04 * graph.num_nodes / (count / 5) / 2
    for count in (5, 10, 20):
        _, members = _clients(graph, partition="louvain", count=count)
        _assert_exactly_once(members, graph.num_nodes)
