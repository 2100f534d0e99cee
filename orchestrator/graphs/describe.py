"""Facts about a graph and its clients, as plain JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from orchestrator.graphs.balance import group_balance
from orchestrator.graphs.edges import adjacency
from orchestrator.graphs.graph import MISSING, Graph

__all__ = ["client_facts", "describe_graph", "graph_facts"]


def graph_facts(graph: Graph) -> dict[str, Any]:
    """How much there is, how much there was, and what the numbers stand for; as plain JSON values.

    ``meaning`` is a line for people, empty where nothing has a name.
    """
    meaning = graph.meaning
    parts = []
    for kind, names in (("class", meaning.labels), ("group", meaning.groups)):
        shown = ", ".join(f"{kind} {k} is {name or 'none'}" for k, name in enumerate(names[:5]))
        parts += [shown + (", ..." if len(names) > 5 else "")] if names else []
    return {
        "nodes": graph.num_nodes,
        "nodes_read": graph.num_nodes if meaning.read is None else meaning.read,
        "features": _feature_names(graph),
        "labels": list(meaning.labels),
        "groups": list(meaning.groups),
        "clients": list(meaning.clients),
        "notes": list(meaning.notes),
        "meaning": "; ".join(parts),
    }


def describe_graph(graph: Graph, clients: Sequence[Graph] = (), self_loops: bool = False) -> dict[str, Any]:
    """Sizes, counts, homophilies, and the same for the clients.

    Args:
        graph: the whole.
        clients: its parts; none: the entry ``clients`` has count 0 only.
        self_loops: how each client's B counts; see `group_balance`.

    Returns:
        Only str, int, float, None, list and dict. A share over nothing is None, and so is every fact about groups where
        there is no sensitive attribute. ``label_homophily`` is the share of same-label edges among those with two
        labelled ends, ``group_homophily`` the share of intra-group edges. Of more than two classes it is also said how
        many each client has among its training nodes.
    """
    y, s, meaning = graph.labels, graph.sensitive, graph.meaning
    parts, isolated = _components(graph)
    ends = graph.labels[graph.edges]
    labelled = (ends != MISSING).all(axis=0)
    return {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "nodes_read": graph.num_nodes if meaning.read is None else meaning.read,
        "notes": list(meaning.notes),
        "edges": graph.num_edges,
        "components": {"count": len(parts), "largest": int(parts.max(initial=0)), "isolated_nodes": isolated},
        "features": graph.num_features,
        "feature_names": _feature_names(graph),
        "label_names": list(meaning.labels),
        "group_names": list(meaning.groups),
        "split": {mask: int(getattr(graph, mask).sum()) for mask in ("train", "val", "test")},
        "labels": {**{str(k): int((y == k).sum()) for k in range(graph.classes)}, "missing": int((y == MISSING).sum())},
        "groups": None if s is None else {str(g): int((s == g).sum()) for g in (0, 1)},
        "joint": None
        if s is None
        else {f"y={k}, s={g}": int(((y == k) & (s == g)).sum()) for k in range(graph.classes) for g in (0, 1)},
        "label_homophily": _share(ends[0][labelled] == ends[1][labelled]),
        "group_homophily": None if s is None else _share(np.equal(*s[graph.edges])),
        "balance": None if s is None else group_balance(graph, self_loops),
        "clients": _clients(clients, self_loops),
    }


def client_facts(clients: Sequence[Graph], self_loops: bool = False) -> list[dict[str, float | None]]:
    """A row a client: sizes, its training nodes, nodes and labelled positives of each group, and its balance.

    These are exact: of a run whose privacy is accounted for no one may publish them.
    """
    return [_client(client, self_loops) | _by_group(client) for client in clients]


def _by_group(client: Graph) -> dict[str, float | None]:
    if client.sensitive is None:
        return {}
    of_group = [client.sensitive == group for group in (0, 1)]
    counts: dict[str, float | None] = {f"nodes_s{g}": int(own.sum()) for g, own in enumerate(of_group)}
    if client.classes == 2:
        counts |= {f"positives_s{g}": int((own & (client.labels == 1)).sum()) for g, own in enumerate(of_group)}
    return counts


def _feature_names(graph: Graph) -> list[str]:
    """Of those that are left."""
    return [name for k, name in enumerate(graph.meaning.features) if k not in graph.scaling.gone]


def _components(graph: Graph) -> tuple[np.ndarray, int]:
    """Nodes of each connected component, and how many nodes have no edge."""
    links = adjacency(graph.edges, graph.num_nodes)
    _, component = connected_components(links, directed=False)
    return np.bincount(component), int((np.diff(links.indptr) == 0).sum())


def _clients(clients: Sequence[Graph], self_loops: bool) -> dict[str, Any]:
    if not clients:
        return {"count": 0}
    rows = [_client(client, self_loops) for client in clients]
    facts = {key: _spread([row[key] for row in rows]) for key in rows[0]}
    return {"count": len(rows), **facts, "balances": facts["balance"] and [row["balance"] for row in rows]}


def _client(client: Graph, self_loops: bool) -> dict[str, float | None]:
    several = {"train_classes": len(np.unique(client.labels[client.train]))} if client.classes > 2 else {}
    return {
        "nodes": client.num_nodes,
        "edges": client.num_edges,
        "train_nodes": int(client.train.sum()),
        **several,
        "balance": None if client.sensitive is None else group_balance(client, self_loops),
    }


def _spread(values: Sequence[float | None]) -> dict[str, float] | None:
    defined = [value for value in values if value is not None]
    if len(defined) < len(values):
        return None
    return {"min": min(defined), "median": float(np.median(defined)), "max": max(defined)}


def _share(hits: np.ndarray) -> float | None:
    return float(hits.mean()) if len(hits) else None
