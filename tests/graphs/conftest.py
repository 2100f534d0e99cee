"""Where the real data lies, and small graphs for every test of this folder."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.graphs.edges import canonical_edges
from orchestrator.graphs.graph import Graph
from tests.graphs.own_data import load, write


@pytest.fixture(scope="session")
def make_graph():
    """``make_graph(n, pairs, sensitive=..., train=...)``: a graph with two features and alternating labels."""

    def build(n: int, pairs, sensitive=None, train=None) -> Graph:
        rng = np.random.default_rng(n)
        masks = np.zeros((3, n), bool)
        masks[0] = True if train is None else np.isin(np.arange(n), train)
        return Graph(
            rng.normal(scale=2, size=(n, 2)).astype(np.float32),
            canonical_edges(np.array(pairs, np.int64).reshape(-1, 2).T, n),
            (np.arange(n) % 2).astype(np.int8),
            np.array([0] * n if sensitive is None else sensitive, np.int8),
            *masks,
        )

    return build


@pytest.fixture
def plain(tmp_path):
    """The graph of `own_data`, read from files in a folder of their own."""
    folder = tmp_path / "plain"
    folder.mkdir()
    write(folder)
    return load(folder)
