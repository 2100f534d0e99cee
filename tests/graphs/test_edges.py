"""Canonical and induced edges against sets of pairs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.graphs.edges import adjacency, canonical_edges, induced_edges

N = 8
PAIRS = st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, N - 1)), max_size=30)


def _array(pairs):
    return np.array(pairs, np.int64).reshape(-1, 2).T


@given(PAIRS)
def test_canonical_edges_are_the_sorted_set_of_pairs(pairs):
    expected = sorted({(min(p), max(p)) for p in pairs if p[0] != p[1]})
    edges = canonical_edges(_array(pairs), N)
    assert edges.dtype == np.int64
    assert list(map(tuple, edges.T.tolist())) == expected
    assert np.array_equal(canonical_edges(edges[::-1], N), edges)


@given(PAIRS)
def test_adjacency_is_symmetric_and_holds_every_edge_twice(pairs):
    edges = canonical_edges(_array(pairs), N)
    matrix = adjacency(edges, N).toarray()
    assert np.array_equal(matrix, matrix.T)
    assert matrix.sum() == 2 * edges.shape[1]


@given(PAIRS, st.sets(st.integers(0, N - 1)))
def test_induced_edges_have_both_ends_inside(pairs, members):
    nodes = np.array(sorted(members), np.int64)
    edges = canonical_edges(_array(pairs), N)
    kept = nodes[induced_edges(edges, nodes, N)]
    assert kept.T.tolist() == [e for e in edges.T.tolist() if set(e) <= members]
