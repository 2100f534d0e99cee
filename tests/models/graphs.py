"""Random graphs on which networks are tested."""

from __future__ import annotations

import numpy as np

from orchestrator.graphs.graph import Graph
from orchestrator.seeding import seeded_generator


def make_graph(nodes: int = 25, edges: int = 60, features: int = 7) -> Graph:
    rng = seeded_generator(1, "graph", nodes, edges)
    pairs = np.sort(rng.integers(0, nodes, (2, edges)), axis=0)
    pairs = np.unique(pairs[:, pairs[0] < pairs[1]], axis=1).astype(np.int64).reshape(2, -1)
    none = np.zeros(nodes, bool)
    return Graph(
        features=rng.normal(size=(nodes, features)).astype(np.float32),
        edges=pairs,
        labels=np.zeros(nodes, np.int8),
        sensitive=np.zeros(nodes, np.int8),
        train=none,
        val=none,
        test=none,
    )
