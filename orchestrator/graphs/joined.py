"""Clients that bring a graph each, and the whole that they make."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orchestrator.errors import DataError
from orchestrator.graphs.cleaning import MISSING, check_several
from orchestrator.graphs.graph import Graph
from orchestrator.graphs.scaling import Scaling

__all__ = ["join_clients"]


def join_clients(clients: Sequence[Graph]) -> Graph:
    """All clients' graphs as one without edges between them, on which a common model is evaluated.

    A node that two clients hold counts twice. Features are scaled as each client trains on them; the whole's scaling is
    theirs where they have the same, else up to each holder.

    Raises:
        DataError: there are none, they do not fit each other, or together they have one class or one group only.
    """
    for k, client in enumerate(clients):
        if not isinstance(client, Graph):
            raise DataError(f"clients: expected a Graph each, got {type(client).__name__} as client {k}")
        first = clients[0]
        for what, own, common in (
            ("features", client.num_features, first.num_features),
            ("classes", client.classes, first.classes),
            ("sensitive attributes", int(client.sensitive is not None), int(first.sensitive is not None)),
            ("as scaling", client.scaling.policy, first.scaling.policy),
        ):
            if own != common:
                raise DataError(f"clients: client {k} has {own} {what}, client 0 has {common}; expected the same")
        for place, pair in enumerate(zip(client.meaning.features, first.meaning.features, strict=False)):
            if pair[0] != pair[1]:
                raise DataError(
                    f"clients: feature {place} of client {k} is called {pair[0]!r}, that of client 0 {pair[1]!r}; "
                    "expected the same names in the same order"
                )
    if not clients:
        raise DataError("clients: there are none; expected a Graph each")
    starts = np.cumsum([0, *(client.num_nodes for client in clients)])
    labels = np.concatenate([client.labels for client in clients])
    groups = [client.sensitive for client in clients if client.sensitive is not None]
    check_several(labels[labels != MISSING], "clients: labels", "class")
    if groups:
        check_several(np.concatenate(groups), "clients: sensitive", "group")
    alike = clients[0].scaling
    return Graph(
        np.concatenate([client.scaled_to_train().features for client in clients]),
        np.concatenate([client.edges + start for client, start in zip(clients, starts, strict=False)], axis=1),
        labels,
        np.concatenate(groups) if groups else None,
        np.concatenate([client.train for client in clients]),
        np.concatenate([client.val for client in clients]),
        np.concatenate([client.test for client in clients]),
        "clients",
        clients[0].classes,
        clients[0].meaning.of_a_part.noting(
            *(f"client {k}: {note}" for k, client in enumerate(clients) for note in client.meaning.notes)
        ),
        alike if all(client.scaling == alike for client in clients) and alike.applied else Scaling("by_client"),
    )
