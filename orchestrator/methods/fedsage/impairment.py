"""Hiding nodes of a graph and appending generated ones: what FedSage+ does to a client's graph before and after.

Zhang et al., Subgraph federated learning with missing neighbor generation (NeurIPS 2021), sections 4.1 and 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from orchestrator.graphs.edges import adjacency, induced_edges
from orchestrator.graphs.graph import MISSING, Graph

__all__ = ["Impairment", "impair", "mend"]


@dataclass(frozen=True)
class Impairment:
    """A graph of n nodes of which k remain.

    Attributes:
        graph: the remaining nodes in ascending order and the edges among them.
        kept: int64, shape (k,); their numbers in the whole graph.
        hidden_neighbours: sparse ones, shape (k, n); entry (v, u): the hidden node u of the whole graph is a neighbour
            of the remaining node v.
    """

    graph: Graph
    kept: np.ndarray
    hidden_neighbours: csr_array

    @property
    def counts(self) -> np.ndarray:
        """n_v, the hidden neighbours of every remaining node: int64, shape (k,)."""
        return np.diff(self.hidden_neighbours.indptr).astype(np.int64)


def impair(
    graph: Graph, hidden_share: float, hide_from: Literal["all", "validation"], rng: np.random.Generator
) -> Impairment:
    """Hide a random share of the nodes together with their edges.

    Args:
        hidden_share: h, below 1; rounded down to whole nodes, so at least one node of a graph remains.
        hide_from: of which nodes it is the share. ``all`` is the text; ``validation``, only the nodes that are for
            neither training nor test, is the reference code.
    """
    n = graph.num_nodes
    pool = np.arange(n) if hide_from == "all" else np.flatnonzero(~(graph.train | graph.test))
    hidden = np.zeros(n, bool)
    hidden[rng.choice(pool, int(hidden_share * len(pool)), replace=False)] = True
    kept = np.flatnonzero(~hidden)
    links = adjacency(graph.edges, n)[kept].tocoo()
    across = hidden[links.col]
    missing = csr_array((links.data[across], (links.row[across], links.col[across])), shape=(len(kept), n))
    remaining = replace(
        graph,
        features=graph.features[kept],
        edges=induced_edges(graph.edges, kept, n),
        labels=graph.labels[kept],
        sensitive=None if graph.sensitive is None else graph.sensitive[kept],
        train=graph.train[kept],
        val=graph.val[kept],
        test=graph.test[kept],
    )
    return Impairment(remaining, kept, missing)


def mend(graph: Graph, owners: np.ndarray, features: np.ndarray) -> Graph:
    """The graph and, after its own nodes, generated ones with one edge each.

    A generated node has no label and is in no mask. Where nodes have a sensitive attribute it takes its owner's:
    a third value does not exist, and this one leaves the groups' proportions around a node as they were.

    Args:
        owners: int64, shape (r,); the node that each generated node is a neighbour of.
        features: float32, shape (r, f).
    """
    n, r = graph.num_nodes, len(owners)
    added = np.stack([owners, np.arange(n, n + r)])
    edges = np.concatenate([graph.edges, added], axis=1)
    outside = np.zeros(r, bool)
    return replace(
        graph,
        features=np.concatenate([graph.features, features]),
        edges=edges[:, np.lexsort(edges[::-1])],
        labels=np.concatenate([graph.labels, np.full(r, MISSING, graph.labels.dtype)]),
        sensitive=None if graph.sensitive is None else np.concatenate([graph.sensitive, graph.sensitive[owners]]),
        train=np.concatenate([graph.train, outside]),
        val=np.concatenate([graph.val, outside]),
        test=np.concatenate([graph.test, outside]),
    )
