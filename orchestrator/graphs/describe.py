"""Facts about a graph and its clients, as plain JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from orchestrator.graphs.balance import group_balance
from orchestrator.graphs.graph import MISSING, Graph

__all__ = ["describe_graph"]


def describe_graph(graph: Graph, clients: Sequence[Graph] = (), self_loops: bool = False) -> dict[str, Any]:
    """Sizes, counts, homophilies, and the same for the clients.

    Args:
        graph: the whole.
        clients: its parts; none: the entry ``clients`` has count 0 only.
        self_loops: how each client's B counts; see `group_balance`.

    Returns:
        Only str, int, float, None, list and dict. A share over nothing is None. ``label_homophily`` is the share of
        same-label edges among those with two labelled ends, ``group_homophily`` the share of intra-group edges.
    """
    ends = graph.labels[graph.edges]
    labelled = (ends != MISSING).all(axis=0)
    return {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "split": {mask: int(getattr(graph, mask).sum()) for mask in ("train", "val", "test")},
        "labels": {
            key: int((graph.labels == value).sum()) for key, value in (("0", 0), ("1", 1), ("missing", MISSING))
        },
        "groups": {str(s): int((graph.sensitive == s).sum()) for s in (0, 1)},
        "joint": {
            f"y={y}, s={s}": int(((graph.labels == y) & (graph.sensitive == s)).sum()) for y in (0, 1) for s in (0, 1)
        },
        "label_homophily": _share(ends[0][labelled] == ends[1][labelled]),
        "group_homophily": _share(np.equal(*graph.sensitive[graph.edges])),
        "balance": group_balance(graph, self_loops),
        "clients": _clients(clients, self_loops),
    }


def _clients(clients: Sequence[Graph], self_loops: bool) -> dict[str, Any]:
    if not clients:
        return {"count": 0}
    balances = [group_balance(client, self_loops) for client in clients]
    return {
        "count": len(clients),
        "nodes": _spread([client.num_nodes for client in clients]),
        "edges": _spread([client.num_edges for client in clients]),
        "train_nodes": _spread([int(client.train.sum()) for client in clients]),
        "balance": _spread(balances),
        "balances": balances,
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"min": min(values), "median": float(np.median(values)), "max": max(values)}


def _share(hits: np.ndarray) -> float | None:
    return float(hits.mean()) if len(hits) else None
