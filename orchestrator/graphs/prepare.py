"""From a data set as it lies on disk to the graph that is trained on: which nodes, which features, which split."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from scipy.sparse.csgraph import connected_components

from orchestrator.errors import DataError
from orchestrator.graphs.cleaning import MISSING, check_several, check_varying, split_masks
from orchestrator.graphs.edges import adjacency, canonical_edges, induced_edges
from orchestrator.graphs.graph import Graph
from orchestrator.graphs.scaling import Policy, Scaling
from orchestrator.graphs.tables import RawGraph

__all__ = ["prepare_graph"]


def prepare_graph(
    raw: RawGraph,
    nodes: Literal["labelled_component", "all"],
    seed: int,
    scaling: Policy = "by_client",
    split: tuple[float, float, float] = (0.5, 0.25, 0.25),
    stratified: bool = True,
    part: bool = False,
) -> Graph:
    """Choose nodes, clean edges, split, and scale features where that is not left to the clients.

    - ``labelled_component``: nodes without label go, with their edges; of the rest the largest connected component
      stays (of equally large ones the one with the smallest node index). This is what F2GNN trains on.
    - ``all``: every node stays; labels are masked by being in no mask.
    - Edges become undirected and unique; self-loops go.
    - Features are scaled as `orchestrator.graphs.scaling` says. ``pooled``: those that are constant over the kept nodes
      go, the others get mean 0 and (n - 1) variance 1 over them. ``by_client``: they stay as they are until a client
      scales its own.
    - Masks and owners that the data bring are kept; without masks the labelled nodes become training, validation and
      test nodes by the shares of `split`, see `split_masks`.
    - What goes is counted in the graph's `meaning`.

    Args:
        part: the data are one client's own, which may lack a class or a group.

    Raises:
        DataError: no edges, of the whole one class or one group only, or only constant features are left; a feature is
            negative where rows are to be normalised; there are too few labelled nodes for the split.
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
    loss = ""
    if len(kept) < total:
        kind = "labelled nodes' largest component" if (raw.labels == MISSING).any() else "largest component"
        loss = f"kept {len(kept)} of {total} nodes ({kind}; data.nodes: all keeps them)"
    labels = raw.labels[kept]
    sensitive = None if raw.sensitive is None else raw.sensitive[kept]
    if not part:
        check_several(labels[labels != MISSING], raw.label_from, "class", loss and f"; {loss}")
    if sensitive is not None and not part:
        check_several(sensitive, raw.sensitive_from, "group", loss and f"; {loss}")
    if raw.masks is None:
        masks = split_masks(labels, sensitive, split, stratified, raw.label_from, seed)
    else:
        masks = raw.masks[:, kept]
    train, val, test = masks
    features = raw.features[kept]
    check_varying(features, raw.name)
    fitted = Scaling.of(scaling, features)
    features = fitted.apply(features, raw.name)
    owner = None if raw.owner is None else raw.owner[kept]
    meaning = replace(raw.meaning, read=total).noting(fitted.loss(raw.meaning.features), loss)
    name, classes = raw.name, raw.classes
    return Graph(features, edges, labels, sensitive, train, val, test, name, classes, meaning, fitted, owner)


def _largest_component(edges: np.ndarray, num_nodes: int) -> np.ndarray:
    _, component = connected_components(adjacency(edges, num_nodes), directed=False)
    return np.flatnonzero(component == np.bincount(component).argmax())
