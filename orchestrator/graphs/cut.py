"""Where a client's graph was cut out of a larger one, each of whose nodes one client holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Cut"]


@dataclass(frozen=True)
class Cut:
    """What a client knows of its place: who its nodes are to everybody, and its edges to nodes of others.

    Attributes:
        nodes: the client's n nodes as numbers in the whole graph, int64, ascending.
        size: nodes of the whole graph.
        ends: int64, shape (2, k); of each edge to another client's node the own one, as a position in `nodes`, and the
            other one, as a number in the whole graph.
    """

    nodes: np.ndarray
    size: int
    ends: np.ndarray
