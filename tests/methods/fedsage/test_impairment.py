"""Hiding nodes and mending graphs, checked against the definitions."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.graphs.edges import adjacency
from orchestrator.graphs.graph import MISSING
from orchestrator.methods.fedsage.impairment import impair, mend
from orchestrator.seeding import seeded_generator


def rng(seed=0):
    return seeded_generator(seed, "test")


@pytest.mark.parametrize("hide_from", ["all", "validation"])
def test_what_is_hidden_and_what_remains(make_graph, hide_from):
    graph = make_graph()
    result = impair(graph, 0.3, hide_from, rng())
    hidden = np.setdiff1d(np.arange(graph.num_nodes), result.kept)
    assert len(hidden) == (12 if hide_from == "all" else 6)
    assert hide_from == "all" or not (graph.train | graph.test)[hidden].any()
    links = adjacency(graph.edges, graph.num_nodes).toarray()
    np.testing.assert_array_equal(result.graph.features, graph.features[result.kept])
    np.testing.assert_array_equal(result.graph.train, graph.train[result.kept])
    kept = adjacency(result.graph.edges, result.graph.num_nodes).toarray()
    np.testing.assert_array_equal(kept, links[np.ix_(result.kept, result.kept)])
    for row, v in enumerate(result.kept):
        expected = hidden[links[v, hidden] == 1]
        np.testing.assert_array_equal(np.sort(result.hidden_neighbours[[row]].indices), expected)
        assert result.counts[row] == len(expected)
    assert result.counts.sum() > 0


def test_hiding_follows_the_generator(make_graph):
    graph = make_graph()
    first, again, other = (impair(graph, 0.3, "all", rng(seed)).kept for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_a_node_of_a_tiny_graph_remains(make_graph, nodes):
    result = impair(make_graph(nodes=nodes, edges=nodes - 1), 0.99, "all", rng())
    assert len(result.kept) == 1 and result.graph.num_edges == 0


def test_nothing_is_hidden_where_all_nodes_are_for_training(make_graph):
    graph = make_graph(nodes=1, edges=0, train="one node")
    assert len(impair(graph, 0.9, "validation", rng()).kept) == 1


def test_a_mended_graph_is_the_graph_and_labelless_nodes_of_one_edge(make_graph):
    graph = make_graph()
    owners = np.array([3, 3, 17, 39])
    features = rng().normal(size=(4, graph.num_features)).astype(np.float32)
    mended = mend(graph, owners, features)  # its constructor validates what a Graph must be
    n = graph.num_nodes
    np.testing.assert_array_equal(mended.features, np.concatenate([graph.features, features]))
    for field in ("labels", "sensitive", "train", "val", "test"):
        np.testing.assert_array_equal(getattr(mended, field)[:n], getattr(graph, field))
    assert (mended.labels[n:] == MISSING).all()
    np.testing.assert_array_equal(mended.sensitive[n:], graph.sensitive[owners])
    assert not (mended.train | mended.val | mended.test)[n:].any()
    added = mended.edges[1] >= n
    np.testing.assert_array_equal(mended.edges[:, ~added], graph.edges)
    assert set(zip(*mended.edges[:, added].tolist(), strict=True)) == {(3, n), (3, n + 1), (17, n + 2), (39, n + 3)}
    assert mended.name == graph.name


def test_mending_with_nothing_changes_nothing(make_graph):
    graph = make_graph()
    mended = mend(graph, np.zeros(0, np.int64), np.zeros((0, graph.num_features), np.float32))
    for field in ("features", "edges", "labels", "sensitive", "train", "val", "test"):
        np.testing.assert_array_equal(getattr(mended, field), getattr(graph, field))
