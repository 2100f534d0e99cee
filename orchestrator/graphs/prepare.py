"""From a data set as it lies on disk to the graph that is trained on: which nodes, which features, which split."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.sparse.csgraph import connected_components

from orchestrator.errors import DataError
from orchestrator.graphs.edges import adjacency, canonical_edges, induced_edges
from orchestrator.graphs.graph import MISSING, Graph
from orchestrator.graphs.tables import RawGraph
from orchestrator.seeding import seeded_generator

__all__ = ["prepare_graph"]


def prepare_graph(raw: RawGraph, nodes: Literal["labelled_component", "all"], seed: int) -> Graph:
    """Choose nodes, clean edges, scale features and split.

    - ``labelled_component``: nodes without label go, with their edges; of the rest the largest connected component
      stays (of equally large ones the one with the smallest node index). This is what F2GNN trains on.
    - ``all``: every node stays; labels are masked by being in no mask.
    - Edges become undirected and unique; self-loops go.
    - Features that are constant over the kept nodes go, the others are scaled to mean 0 and (n - 1) variance 1 over
      the kept nodes.
    - A seeded shuffle of the labelled nodes gives 50 % training, 25 % validation, 25 % test nodes.

    Raises:
        DataError: no edges, one class or one group only, or only constant features are left.
    """
    total = len(raw.labels)
    edges = canonical_edges(raw.edges, total)
    kept = np.arange(total)
    if nodes == "labelled_component":
        kept = np.flatnonzero(raw.labels != MISSING)
        if not len(kept):
            raise DataError(f"{raw.label_from}: every label is missing")
        kept = kept[_largest_component(induced_edges(edges, kept, total), len(kept))]
        edges = induced_edges(edges, kept, total)
    if not edges.size:
        which = "labelled nodes" if nodes == "labelled_component" else "different nodes"
        raise DataError(f"{raw.edges_from}: no edge between two {which}; expected at least one")
    labels, sensitive = raw.labels[kept], raw.sensitive[kept]
    _check_both(labels[labels != MISSING], raw.label_from, "class")
    _check_both(sensitive, raw.sensitive_from, "group")
    train, val, test = _split(labels, raw.label_from, seed)
    return Graph(_scaled(raw.features[kept], raw.name), edges, labels, sensitive, train, val, test, raw.name)


def _largest_component(edges: np.ndarray, num_nodes: int) -> np.ndarray:
    _, component = connected_components(adjacency(edges, num_nodes), directed=False)
    return np.flatnonzero(component == np.bincount(component).argmax())


def _check_both(values: np.ndarray, source: str, what: str) -> None:
    if len(found := np.unique(values)) != 2:
        got = ", ".join(map(str, found)) or "none"
        raise DataError(f"{source}: the kept nodes have only {what} {got}; expected both 0 and 1")


def _scaled(features: np.ndarray, name: str) -> np.ndarray:
    """Column by column in float64, so that memory stays at one float32 copy."""
    varying = np.flatnonzero(features.min(axis=0) < features.max(axis=0))
    if not len(varying):
        raise DataError(f"{name}: every feature is constant over the kept nodes")
    scaled = np.empty((len(features), len(varying)), np.float32)
    for position, column in enumerate(varying):
        values = features[:, column].astype(np.float64)
        scaled[:, position] = (values - values.mean()) / values.std(ddof=1)
    return scaled


def _split(labels: np.ndarray, source: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order = seeded_generator(seed, "split").permutation(np.flatnonzero(labels != MISSING))
    if len(order) < 4:
        raise DataError(f"{source}: {len(order)} labelled nodes are left; a 50/25/25 split needs at least 4")
    parts = np.split(order, [len(order) // 2, len(order) * 3 // 4])
    masks = np.zeros((3, len(labels)), bool)
    for mask, part in zip(masks, parts, strict=True):
        mask[part] = True
    return masks[0], masks[1], masks[2]
