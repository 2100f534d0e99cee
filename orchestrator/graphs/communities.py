"""Parts of a graph that are more densely linked within than between: METIS (FED-PUB) and Louvain (FedSage)."""

from __future__ import annotations

import networkx
import numpy as np
import pymetis
from scipy.sparse import csr_array

from orchestrator.errors import DataError
from orchestrator.graphs.graph import Graph
from orchestrator.seeding import derived_seed, seeded_generator

__all__ = ["deal", "louvain", "metis", "overlapping"]


def metis(graph: Graph, links: csr_array, count: int, seed: int) -> list[np.ndarray]:
    """Parts of about equal size with few edges between them, by METIS' k-way method.

    Args:
        links: the graph's symmetric adjacency.
        count: parts.

    Returns:
        `count` arrays of node indices, each ascending; every node is in exactly one.

    Raises:
        DataError: a part is empty.
    """
    part = np.arange(graph.num_nodes)
    if count <= graph.num_nodes:  # more are too many for METIS, which then fills the standard output
        options = pymetis.Options(seed=derived_seed(seed, "metis") % 2**31)
        adjacency = pymetis.CSRAdjacency(links.indptr, links.indices)
        part = np.array(pymetis.part_graph(count, adjacency, recursive=False, options=options).vertex_part)
    parts = [np.flatnonzero(part == k) for k in range(count)]
    if empty := sum(not len(nodes) for nodes in parts):
        raise DataError(
            f"{graph.name}: METIS leaves {empty} of {count} parts of {graph.num_nodes} nodes empty; lower clients.count"
        )
    return parts


def overlapping(graph: Graph, parts: list[np.ndarray], copies: int, share: float, seed: int) -> list[np.ndarray]:
    """`copies` random subsets of every part, each of its `share` rounded down; those of one part are consecutive.

    Raises:
        DataError: a subset would be empty.
    """
    rng = seeded_generator(seed, "overlapping")
    members = []
    for part in parts:
        size = int(len(part) * share + 1e-6)  # 0.29 of 100 is 29, not 28.999...
        if not size:
            raise DataError(
                f"{graph.name}: clients.share = {share:g} of a part of {len(part)} nodes is none; "
                "raise it or lower clients.count"
            )
        members += [np.sort(rng.choice(part, size, replace=False)) for _ in range(copies)]
    return members


def louvain(graph: Graph, count: int, tolerance: int, seed: int) -> list[np.ndarray]:
    """Louvain's communities, dealt to `count` clients of about equal size; see `deal`.

    Returns:
        `count` arrays of node indices, each ascending; every node is in exactly one.

    Raises:
        DataError: there are not more than `tolerance` nodes a client.
    """
    whole = networkx.Graph()
    whole.add_nodes_from(range(graph.num_nodes))
    whole.add_edges_from(graph.edges.T.tolist())
    mean = graph.num_nodes // count
    if mean <= tolerance:
        raise DataError(
            f"{graph.name}: clients.tolerance = {tolerance} leaves nothing of {graph.num_nodes} nodes by "
            f"clients.count = {count}; lower either"
        )
    found = networkx.community.louvain_communities(whole, seed=derived_seed(seed, "louvain"))
    return deal([np.sort(np.fromiter(nodes, np.int64)) for nodes in found], count, mean - tolerance, mean + tolerance)


def deal(communities: list[np.ndarray], count: int, piece: int, limit: int) -> list[np.ndarray]:
    """Cut communities into consecutive pieces of at most `piece` nodes and deal them out, the largest first.

    Each goes to the next client, in turn, that stays within `limit` nodes with it. Where none does, which FedSage's
    rule does not foresee, it goes to the smallest: so every node finds a client, but a client may exceed the limit.

    Returns:
        `count` arrays of node indices, each ascending. None is empty if there are `count` pieces and piece <= limit.
    """
    pieces = [nodes[start : start + piece] for nodes in communities for start in range(0, len(nodes), piece)]
    clients: list[list[int]] = [[] for _ in range(count)]
    turn = 0
    for nodes in sorted(pieces, key=len, reverse=True):
        order = [(turn + step) % count for step in range(count)]
        room = (client for client in order if len(clients[client]) + len(nodes) <= limit)
        chosen = next(room, min(order, key=lambda client: len(clients[client])))
        clients[chosen] += nodes.tolist()
        turn = (chosen + 1) % count
    return [np.array(sorted(nodes), np.int64) for nodes in clients]
