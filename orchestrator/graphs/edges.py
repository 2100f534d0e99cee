"""Edge lists: canonical form, adjacency, induced subgraphs. Always sparse, O(n + m) memory."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

__all__ = ["adjacency", "canonical_edges", "induced_edges"]


def canonical_edges(pairs: np.ndarray, num_nodes: int) -> np.ndarray:
    """Undirected edges as `Graph` wants them.

    Args:
        pairs: int64, shape (2, m); any direction, repetitions and self-loops allowed.
        num_nodes: n; every index is from 0 to n - 1.

    Returns:
        int64, shape (2, m'), m' <= m: u < v in every edge, sorted, no duplicates, no self-loops.
    """
    low, high = np.minimum(pairs[0], pairs[1]), np.maximum(pairs[0], pairs[1])
    keys = np.unique((low * num_nodes + high)[low < high])
    return np.stack(np.divmod(keys, num_nodes)).astype(np.int64)


def adjacency(edges: np.ndarray, num_nodes: int) -> csr_array:
    """Symmetric sparse adjacency, int8 ones, shape (n, n), from canonical edges."""
    rows, columns = np.concatenate([edges, edges[::-1]], axis=1)
    return csr_array((np.ones(len(rows), np.int8), (rows, columns)), shape=(num_nodes, num_nodes))


def induced_edges(edges: np.ndarray, nodes: np.ndarray, num_nodes: int) -> np.ndarray:
    """Edges with both ends among `nodes`, renumbered to positions in `nodes`.

    Args:
        edges: canonical, shape (2, m).
        nodes: distinct node indices in ascending order, shape (k,); ascending keeps the result canonical.
        num_nodes: n of the whole graph.

    Returns:
        Canonical edges over 0 .. k - 1.
    """
    position = np.full(num_nodes, -1, np.int64)
    position[nodes] = np.arange(len(nodes))
    ends = position[edges]
    return ends[:, (ends >= 0).all(axis=0)]
