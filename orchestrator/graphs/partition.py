"""Clients: k-hop ego networks around training nodes."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from orchestrator.config import ClientsConfig
from orchestrator.errors import DataError
from orchestrator.graphs.edges import adjacency, induced_edges
from orchestrator.graphs.graph import Graph
from orchestrator.seeding import seeded_generator

__all__ = ["ego_networks", "induced_subgraph"]


def ego_networks(graph: Graph, clients: ClientsConfig, seed: int) -> list[Graph]:
    """`clients.count` induced subgraphs, named ``client 0`` onwards, in ascending node order.

    A network holds every node within `clients.hops` edges of its ego, whatever mask that node is in; each client
    keeps the global masks restricted to its nodes. Egos whose network is smaller than `clients.min_nodes` are passed
    over. ``distinct`` egos differ (their networks may still coincide); ``with_replacement`` draws each ego anew, which
    is what redrawing until the network is large enough amounts to.

    Cost: O(size of the network) to find it, O(n + m) to cut it out.

    Raises:
        DataError: too few training nodes have a network of that size.
    """
    links = adjacency(graph.edges, graph.num_nodes)
    rng = seeded_generator(seed, "clients")
    pool = rng.permutation(np.flatnonzero(graph.train))
    networks: list[np.ndarray] = []
    small = 0
    while len(networks) < clients.count:
        if not len(pool):
            usable = len(networks) if clients.ego_sampling == "distinct" else 0
            raise DataError(
                f"{graph.name}: clients.count = {clients.count}, but only {usable} training nodes have a "
                f"{clients.hops}-hop network of at least {clients.min_nodes} nodes ({small} have a smaller one)"
            )
        drawn = 0 if clients.ego_sampling == "distinct" else int(rng.integers(len(pool)))
        nodes = _within(links, int(pool[drawn]), clients.hops)
        fits = len(nodes) >= clients.min_nodes
        if fits:
            networks.append(nodes)
        if clients.ego_sampling == "distinct" or not fits:
            pool = np.delete(pool, drawn)
        small += not fits
    truncate = clients.features == "truncated"
    return [induced_subgraph(graph, nodes, f"client {i}", truncate) for i, nodes in enumerate(networks)]


def induced_subgraph(graph: Graph, nodes: np.ndarray, name: str, truncate: bool = False) -> Graph:
    """The nodes, in ascending order, with every edge between two of them.

    Args:
        nodes: distinct indices in ascending order, shape (k,).
        truncate: round features towards zero, as the reference code's integer tensors do.
    """
    features = graph.features[nodes]
    return Graph(
        np.trunc(features) if truncate else features,
        induced_edges(graph.edges, nodes, graph.num_nodes),
        graph.labels[nodes],
        graph.sensitive[nodes],
        graph.train[nodes],
        graph.val[nodes],
        graph.test[nodes],
        name,
    )


def _within(links: csr_array, ego: int, hops: int) -> np.ndarray:
    """Nodes at distance <= hops, ascending; stops as soon as nothing new is reached."""
    reached = frontier = np.array([ego])
    for _ in range(hops):
        frontier = np.setdiff1d(links[frontier].indices, reached)
        if not len(frontier):
            break
        reached = np.union1d(reached, frontier)
    return reached
