"""Clients: induced subgraphs of one graph, and the ways to choose their nodes.

With `clients.max_memberships` a node that more clients would hold stays at so many of them (`_capped`).

| `clients.partition` | a client's nodes                                      | clients that hold a node | of      |
|---------------------|-------------------------------------------------------|--------------------------|---------|
| ego                 | all within `hops` edges of a training node            | any number               | F2GNN   |
| disjoint            | one METIS part                                        | exactly one              | FED-PUB |
| overlapping         | a random `share` of a METIS part of `copies` clients  | up to `copies`           | FED-PUB |
| louvain             | communities or pieces of them, of about equal size    | exactly one              | FedSage |
| whole               | all                                                   | the only one             |         |
| given               | those that the data say are its own                   | exactly one              |         |
| own                 | given as graphs, see `orchestrator.graphs.joined`     | as if each exactly one   |         |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
from scipy.sparse import csr_array

from orchestrator.config import ClientsConfig
from orchestrator.errors import DataError
from orchestrator.graphs.cut import Cut
from orchestrator.graphs.edges import adjacency
from orchestrator.graphs.graph import Graph
from orchestrator.seeding import seeded_generator

__all__ = ["Subgraphs", "client_graphs"]


class Subgraphs(Sequence[Graph]):
    """Induced subgraphs of one graph, named ``client 0`` onwards, in ascending node order.

    Each is cut out when it is asked for and not kept: ten thousand clients are the whole graph and lists of node
    numbers, here and in the processes that they are sent to. Cost of one: O(its nodes and all their neighbours).
    A client keeps the global masks restricted to its nodes. It may have no edges, no training nodes, or one class only.
    Features are those of the whole, which a client scales by itself where ``data.scaling`` is by_client.

    Attributes:
        communities: int64, shape (clients,); clients of one number hold nodes of the same part of the graph.
    """

    def __init__(
        self,
        graph: Graph,
        links: csr_array,
        members: Sequence[np.ndarray],
        communities: np.ndarray,
        truncate: bool = False,
        exclusive: bool = False,
    ) -> None:
        """Take the nodes of every client.

        Args:
            links: the graph's symmetric adjacency, columns sorted within a row.
            members: distinct node indices in ascending order, one array a client.
            communities: see the attribute.
            truncate: round features towards zero, as F2GNN's integer tensors do.
            exclusive: no node lies at two clients, so that clients know where they were cut.
        """
        self._graph, self._links, self._truncate, self._exclusive = graph, links, truncate, exclusive
        self._meaning = graph.meaning.of_a_part
        self._nodes = np.concatenate(members).astype(np.int32)
        self._bounds = np.cumsum([0, *map(len, members)])
        self.communities = communities

    def __len__(self) -> int:
        return len(self._bounds) - 1

    @overload
    def __getitem__(self, index: int) -> Graph: ...
    @overload
    def __getitem__(self, index: slice) -> list[Graph]: ...
    def __getitem__(self, index: int | slice) -> Graph | list[Graph]:
        places = range(len(self))[index]  # also refuses an index outside
        return self._cut(places) if isinstance(places, int) else [self._cut(place) for place in places]

    @property
    def whole(self) -> Graph:
        """What the clients are cut out of."""
        return self._graph

    def nodes(self, client: int) -> np.ndarray:
        """A client's nodes as indices in the whole graph, int32, ascending; node k of the client is the k-th."""
        place = range(len(self))[client]
        return self._nodes[self._bounds[place] : self._bounds[place + 1]]

    def _cut(self, client: int) -> Graph:
        nodes = self.nodes(client)
        features, sensitive = self._graph.features[nodes], self._graph.sensitive
        edges, ends = self._edges(nodes)
        cut = Cut(nodes.astype(np.int64), self._graph.num_nodes, ends) if self._exclusive else None
        return Graph(
            np.trunc(features) if self._truncate else features,
            edges,
            self._graph.labels[nodes],
            None if sensitive is None else sensitive[nodes],
            self._graph.train[nodes],
            self._graph.val[nodes],
            self._graph.test[nodes],
            f"client {client}",
            self._graph.classes,
            self._meaning,
            self._graph.scaling,
            cut=cut,
        )

    def _edges(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Canonical edges between two of the nodes, as positions in `nodes`, and `Cut.ends` of those to other nodes."""
        rows = self._links[nodes]
        u = np.repeat(np.arange(len(nodes)), np.diff(rows.indptr))
        v = np.minimum(np.searchsorted(nodes, rows.indices), len(nodes) - 1)
        here = nodes[v] == rows.indices
        inside = here & (u < v)
        edges, ends = np.stack([u[inside], v[inside]]), np.stack([u[~here], rows.indices[~here]])
        return edges.astype(np.int64), ends.astype(np.int64)


def client_graphs(graph: Graph, clients: ClientsConfig, seed: int) -> Subgraphs:
    """`clients.count` clients, cut out as `clients.partition` says; the same seed gives the same clients.

    Raises:
        DataError: the graph is too small for that many clients, or clients are to be given and were not.
    """
    if clients.partition == "own":
        raise DataError("clients.partition = own: the clients' graphs are given in Python, train(clients=...)")
    links = adjacency(graph.edges, graph.num_nodes)
    links.sort_indices()
    communities, egos = np.arange(clients.count), None
    if clients.partition == "ego":
        members, egos = _ego_networks(graph, links, clients, seed)
    elif clients.partition == "whole":
        members = [np.arange(graph.num_nodes)]
    elif clients.partition == "given":
        members = _owned(graph, clients.count)
    else:
        from orchestrator.graphs.communities import louvain, metis, overlapping  # NetworkX takes long to import

        if clients.partition == "disjoint":
            members = metis(graph, links, clients.count, seed)
        elif clients.partition == "louvain":
            members = louvain(graph, clients.count, clients.tolerance, seed)
        else:
            parts = metis(graph, links, clients.count // clients.copies, seed)
            members = overlapping(graph, parts, clients.copies, clients.share, seed)
            communities = communities // clients.copies
    exclusive = clients.partition not in ("ego", "overlapping")
    if clients.max_memberships is not None and not exclusive:
        members = _capped(graph, members, egos, clients.max_memberships, seed)
    return Subgraphs(graph, links, members, communities, clients.features == "truncated", exclusive)


def _owned(graph: Graph, count: int) -> list[np.ndarray]:
    """Each client's own nodes. Raises DataError where data do not say whose they are, or name more or fewer clients."""
    if graph.owner is None:
        raise DataError(f"{graph.name}: clients.partition = given: the data do not say whose each node is")
    names = graph.meaning.clients or tuple(map(str, range(int(graph.owner.max(initial=-1)) + 1)))
    if len(names) != count:
        shown = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
        raise DataError(
            f"clients.count = {count}, but the data name {len(names)} clients, {shown}; set clients.count to "
            f"{len(names)}"
        )
    members = [np.flatnonzero(graph.owner == client) for client in range(count)]
    if empty := [name for name, nodes in zip(names, members, strict=True) if not len(nodes)]:
        raise DataError(f"{graph.name}: client {empty[0]!r} has no node left; data.nodes: all keeps every node")
    return members


def _capped(
    graph: Graph, members: Sequence[np.ndarray], egos: Sequence[int] | None, most: int, seed: int
) -> list[np.ndarray]:
    """The same clients, of whom at most so many hold a node.

    A node stays at the clients whose ego it is, and then where it comes first: clients stand in a circle in an order of
    the seed's, and every node counts from a place of its own. So which of its clients keep a node depends on the seed
    and on that node's clients alone, whatever data say and whoever else is there.

    Raises:
        DataError: a client would be left without nodes.
    """
    rng, count = seeded_generator(seed, "memberships"), len(members)
    place, start = rng.permutation(count), rng.integers(count, size=graph.num_nodes)
    client, node = np.repeat(np.arange(count), [len(nodes) for nodes in members]), np.concatenate(members)
    order = (place[client] - start[node]) % count
    if egos is not None:
        order[node == np.asarray(egos)[client]] = -1
    ranked = np.lexsort((client, order, node))
    first = np.searchsorted(node[ranked], node[ranked])
    kept = np.zeros(len(node), dtype=bool)
    kept[ranked[np.arange(len(node)) - first < most]] = True
    capped = [
        nodes[own] for nodes, own in zip(members, np.split(kept, np.cumsum([*map(len, members)])[:-1]), strict=True)
    ]
    if empty := [k for k, nodes in enumerate(capped) if not len(nodes)]:
        raise DataError(
            f"{graph.name}: clients.max_memberships = {most} leaves client {empty[0]} without nodes; raise it, or ask "
            "for fewer clients (clients.count)"
        )
    return capped


def _ego_networks(
    graph: Graph, links: csr_array, clients: ClientsConfig, seed: int
) -> tuple[list[np.ndarray], list[int]]:
    """Nodes of k-hop networks around training nodes, and these nodes.

    A network holds every node within `clients.hops` edges of its ego, whatever mask that node is in. Egos whose network
    is smaller than `clients.min_nodes` are passed over. ``distinct`` egos differ (their networks may still coincide);
    ``with_replacement`` draws each ego anew, which is what redrawing until the network is large enough amounts to.

    Raises:
        DataError: too few training nodes have a network of that size.
    """
    rng = seeded_generator(seed, "clients")
    pool = rng.permutation(np.flatnonzero(graph.train))
    distinct = clients.ego_sampling == "distinct"
    networks: list[np.ndarray] = []
    egos: list[int] = []
    small = 0
    while len(networks) < clients.count:
        taken = len(networks) + small if distinct else 0  # of a distinct pool, the front is used up
        if taken == len(pool):
            raise DataError(
                f"{graph.name}: clients.count = {clients.count}, but only {len(networks) if distinct else 0} training "
                f"nodes have a {clients.hops}-hop network of at least {clients.min_nodes} nodes "
                f"({small} have a smaller one)"
            )
        drawn = taken if distinct else int(rng.integers(len(pool)))
        nodes = _within(links, int(pool[drawn]), clients.hops)
        if len(nodes) >= clients.min_nodes:
            networks.append(nodes)
            egos.append(int(pool[drawn]))
        else:
            small += 1
            pool = pool if distinct else np.delete(pool, drawn)
    return networks, egos


def _within(links: csr_array, ego: int, hops: int) -> np.ndarray:
    """Nodes at distance <= hops, ascending; stops as soon as nothing new is reached."""
    reached = frontier = np.array([ego])
    for _ in range(hops):
        frontier = np.setdiff1d(links[frontier].indices, reached)
        if not len(frontier):
            break
        reached = np.union1d(reached, frontier)
    return reached
