"""Small graphs on which the methods are tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from orchestrator.graphs.graph import Graph
from orchestrator.seeding import seeded_generator


def build_graph(nodes: int = 40, edges: int = 90, features: int = 6, train: str = "half") -> Graph:
    """Two noisy feature clusters that say the label; random edges; two groups.

    Args:
        train: "half", "none", "one class", "one group" or "one node": which labelled nodes are training nodes.
    """
    rng = seeded_generator(5, "graph", nodes, edges, features)
    labels = (np.arange(nodes) % 2).astype(np.int8)
    sensitive = (np.arange(nodes) // 2 % 2).astype(np.int8)
    x = rng.normal(size=(nodes, features)) + np.where(labels == 1, 1.0, -1.0)[:, None]
    pairs = np.sort(rng.integers(0, nodes, (2, edges)), axis=0)
    pairs = np.unique(pairs[:, pairs[0] < pairs[1]], axis=1).astype(np.int64)
    masks = {
        "half": np.arange(nodes) < max(1, nodes // 2),
        "none": np.zeros(nodes, bool),
        "one class": labels == 1,
        "one group": sensitive == 0,
        "one node": np.arange(nodes) == 0,
    }
    rest = ~masks[train]
    return Graph(
        features=x.astype(np.float32),
        edges=pairs.reshape(2, -1),
        labels=labels,
        sensitive=sensitive,
        train=masks[train],
        val=rest,
        test=np.zeros(nodes, bool),
    )


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Graphs this small only lose by threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def make_graph() -> Callable[..., Graph]:
    return build_graph
