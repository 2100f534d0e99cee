"""From a data set as it lies on disk to the graph that is trained on: which nodes, which features, which split."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from scipy.sparse.csgraph import connected_components

from orchestrator.errors import DataError
from orchestrator.graphs.cleaning import MISSING, check_several, row_normalised, split_masks, standardised
from orchestrator.graphs.edges import adjacency, canonical_edges, induced_edges
from orchestrator.graphs.graph import Graph
from orchestrator.graphs.meaning import Meaning
from orchestrator.graphs.tables import RawGraph

__all__ = ["prepare_graph"]


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
    - What goes is counted in the graph's `meaning`, and masks and owners that the data bring are kept.
    - Without masks a seeded shuffle of the labelled nodes is cut at the cumulative shares of `split`, rounded down,
      into training, validation and test nodes.

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
    loss = ""
    if len(kept) < total:
        kind = "labelled nodes' largest component" if (raw.labels == MISSING).any() else "largest component"
        loss = f"kept {len(kept)} of {total} nodes ({kind}; data.nodes: all keeps them)"
    labels = raw.labels[kept]
    sensitive = None if raw.sensitive is None else raw.sensitive[kept]
    check_several(labels[labels != MISSING], raw.label_from, "class", loss and f"; {loss}")
    if sensitive is not None:
        check_several(sensitive, raw.sensitive_from, "group", loss and f"; {loss}")
    masks = split_masks(labels, split, raw.label_from, seed) if raw.masks is None else raw.masks[:, kept]
    scaled = (standardised if features == "standardised" else row_normalised)(raw.features[kept], raw.name)
    owner = None if raw.owner is None else raw.owner[kept]
    meaning = _still_meant(raw, kept, scaled.shape[1], loss)
    train, val, test = masks
    return Graph(scaled, edges, labels, sensitive, train, val, test, raw.name, raw.classes, owner, meaning)


def _still_meant(raw: RawGraph, kept: np.ndarray, features: int, loss: str) -> Meaning:
    """Without the names of constant features, where these went, and with what was left out here."""
    names, notes = raw.meaning.features, list(raw.meaning.notes)
    if features < len(names):
        values = raw.features[kept]
        varies = values.min(axis=0) < values.max(axis=0)
        constant = [name for name, one in zip(names, varies, strict=True) if not one]
        names = tuple(name for name, one in zip(names, varies, strict=True) if one)
        notes.append(f"left out constant features: {', '.join(constant)}")
    notes += [loss] if loss else []
    return replace(raw.meaning, features=names, read=len(raw.labels), notes=tuple(notes))


def _largest_component(edges: np.ndarray, num_nodes: int) -> np.ndarray:
    _, component = connected_components(adjacency(edges, num_nodes), directed=False)
    return np.flatnonzero(component == np.bincount(component).argmax())
