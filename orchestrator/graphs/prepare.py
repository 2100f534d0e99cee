"""From a data set as it lies on disk to the graph that is trained on: which nodes, which features, which split."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from scipy.sparse.csgraph import connected_components

from orchestrator.errors import DataError
from orchestrator.graphs.edges import adjacency, canonical_edges, induced_edges
from orchestrator.graphs.graph import MISSING, Graph
from orchestrator.graphs.tables import RawGraph
from orchestrator.seeding import seeded_generator

__all__ = ["prepare_graph"]

_ROUNDING = 1e-6
"""What floating point may take from a count that is whole, such as 0.29 of 100 nodes."""


def prepare_graph(
    raw: RawGraph,
    nodes: Literal["labelled_component", "all"],
    seed: int,
    features: Literal["standardised", "row_normalised"] = "standardised",
    split: tuple[float, float, float] = (0.5, 0.25, 0.25),
) -> Graph:
    """Choose nodes, clean edges, scale features and split.

    - ``labelled_component``: nodes without label go, with their edges; of the rest the largest connected component
      stays (of equally large ones the one with the smallest node index). This is what F2GNN trains on.
    - ``all``: every node stays; labels are masked by being in no mask.
    - Edges become undirected and unique; self-loops go.
    - ``standardised``: features that are constant over the kept nodes go, the others are scaled to mean 0 and (n - 1)
      variance 1 over the kept nodes.
    - ``row_normalised``: the features of a node are divided by their sum, as counts of words are. Every column stays,
      constant ones too, and so does a node whose features are all 0.
    - A seeded shuffle of the labelled nodes is cut at the cumulative shares of `split`, rounded down, into training,
      validation and test nodes.

    Raises:
        DataError: no edges, one class or one group only, or only constant features are left; a feature is negative
            where rows are to be normalised; there are too few labelled nodes for the split.
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
    labels = raw.labels[kept]
    sensitive = None if raw.sensitive is None else raw.sensitive[kept]
    _check_several(labels[labels != MISSING], raw.label_from, "class")
    if sensitive is not None:
        _check_several(sensitive, raw.sensitive_from, "group")
    train, val, test = _split(labels, split, raw.label_from, seed)
    scaled = (_standardised if features == "standardised" else _row_normalised)(raw.features[kept], raw.name)
    return Graph(scaled, edges, labels, sensitive, train, val, test, raw.name, raw.classes)


def _largest_component(edges: np.ndarray, num_nodes: int) -> np.ndarray:
    _, component = connected_components(adjacency(edges, num_nodes), directed=False)
    return np.flatnonzero(component == np.bincount(component).argmax())


def _check_several(values: np.ndarray, source: str, what: str) -> None:
    if len(found := np.unique(values)) < 2:
        got = ", ".join(map(str, found)) or "none"
        raise DataError(f"{source}: the kept nodes have only {what} {got}; expected two or more")


def _standardised(features: np.ndarray, name: str) -> np.ndarray:
    """Column by column in float64, so that memory stays at one float32 copy."""
    varying = np.flatnonzero(features.min(axis=0) < features.max(axis=0))
    if not len(varying):
        raise DataError(f"{name}: every feature is constant over the kept nodes")
    scaled = np.empty((len(features), len(varying)), np.float32)
    for position, column in enumerate(varying):
        values = features[:, column].astype(np.float64)
        scaled[:, position] = (values - values.mean()) / values.std(ddof=1)
    return scaled


def _row_normalised(features: np.ndarray, name: str) -> np.ndarray:
    if features.min(initial=0) < 0:
        raise DataError(f"{name}: data.features = row_normalised needs features that are not negative")
    total = features.sum(axis=1, keepdims=True, dtype=np.float64)
    return (features / np.where(total > 0, total, 1)).astype(np.float32)


def _split(labels: np.ndarray, shares: tuple[float, float, float], source: str, seed: int) -> np.ndarray:
    """Masks of training, validation and test nodes, bool, shape (3, n)."""
    order = seeded_generator(seed, "split").permutation(np.flatnonzero(labels != MISSING))
    needed = math.ceil(1 / min(share for share in shares if share) - _ROUNDING)
    if len(order) < needed:
        wanted = "/".join(f"{100 * share:g}" for share in shares)
        raise DataError(f"{source}: {len(order)} labelled nodes are left; a {wanted} split needs at least {needed}")
    ends = [math.floor(len(order) * share + _ROUNDING) for share in (shares[0], shares[0] + shares[1])]
    masks = np.zeros((3, len(labels)), bool)
    for mask, part in zip(masks, np.split(order, ends), strict=True):
        mask[part] = True
    return masks
