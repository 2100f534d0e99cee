"""The one in-memory graph: what a client owns, and what the evaluator holds of the whole."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from orchestrator.errors import DataError
from orchestrator.graphs.cleaning import MISSING
from orchestrator.graphs.cut import Cut
from orchestrator.graphs.meaning import UNKNOWN, Meaning
from orchestrator.graphs.own import OwnData
from orchestrator.graphs.scaling import AS_GIVEN, Scaling

__all__ = ["MISSING", "Graph"]


@dataclass(frozen=True)
class Graph(OwnData):
    """An attributed, undirected graph that validates itself; `from_arrays` and the like make one of one's own data.

    Attributes:
        features: float32, shape (n, f), finite.
        edges: int64, shape (2, m); each undirected edge once, as (u, v) with u < v, sorted, no duplicates.
        labels: int8, shape (n,); 0 .. `classes` - 1, or `MISSING`.
        sensitive: int8, shape (n,); 0 or 1; None: the data know no sensitive attribute.
        train, val, test: bool, shape (n,); disjoint, labelled nodes only. A client's graph may have empty masks.
        name: what messages call this graph.
        classes: C, from 2 to 128; a client's graph may lack some.
        meaning: what the numbers stand for, where that is known.
        scaling: how `features` were scaled, or, with ``by_client`` before it is applied, are to be by whoever holds
            them: see `scaled_to_train` and `scaled_to_predict`.
        owner: int64, shape (n,), the client whose node it is, counted from 0 without gaps; None: nobody says.
        cut: of a client's graph, where in a larger one it lies; None: nobody says, or nodes lie at several clients.

    Raises:
        DataError: on construction, naming the graph and the field at fault.
    """

    features: np.ndarray
    edges: np.ndarray
    labels: np.ndarray
    sensitive: np.ndarray | None
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    name: str = "graph"
    classes: int = 2
    meaning: Meaning = UNKNOWN
    scaling: Scaling = AS_GIVEN
    owner: np.ndarray | None = None
    cut: Cut | None = None

    def __post_init__(self) -> None:
        n = len(self.labels)
        if self.features.dtype != np.float32 or self.features.ndim != 2 or len(self.features) != n:
            self._refuse("features", f"expected float32 of shape ({n}, f)")
        if not np.isfinite(self.features).all():
            row, column = np.argwhere(~np.isfinite(self.features))[0]
            self._refuse("features", f"node {row}, feature {column} is NaN or infinite")
        if not 2 <= self.classes <= 128:
            self._refuse("classes", f"expected 2 to 128, got {self.classes}")
        if self.labels.dtype != np.int8 or not ((self.labels >= MISSING) & (self.labels < self.classes)).all():
            self._refuse("labels", f"expected int8 from 0 to {self.classes - 1}, or -1 (missing)")
        s = np.zeros(n, np.int8) if self.sensitive is None else self.sensitive
        if s.dtype != np.int8 or s.shape != (n,) or not np.isin(s, (0, 1)).all():
            self._refuse("sensitive", f"expected {n} int8 of 0 or 1")
        for field in ("train", "val", "test"):
            mask = getattr(self, field)
            if mask.dtype != np.bool_ or mask.shape != (n,):
                self._refuse(field, f"expected a boolean mask of shape ({n},)")
            if (mask & (self.labels == MISSING)).any():
                self._refuse(field, "holds a node without label")
        if (self.train & self.val).any() or (self.train & self.test).any() or (self.val & self.test).any():
            self._refuse("train/val/test", "the masks overlap")
        if self.edges.dtype != np.int64 or self.edges.ndim != 2 or len(self.edges) != 2:
            self._refuse("edges", "expected int64 of shape (2, m)")
        if self.edges.size:
            if self.edges.min() < 0 or self.edges.max() >= n:
                self._refuse("edges", f"expected node indices from 0 to {n - 1}")
            if (self.edges[0] >= self.edges[1]).any():
                self._refuse("edges", "expected u < v in every edge, so no self-loops")
            key = self.edges[0] * n + self.edges[1]
            if (np.diff(key) <= 0).any():
                self._refuse("edges", "expected sorted edges without duplicates")

        owner = self.owner
        if owner is not None and (owner.dtype != np.int64 or owner.shape != (n,) or owner.min(initial=0) < 0):
            self._refuse("owner", f"expected int64 of shape ({n},), not negative")

    def _refuse(self, field: str, reason: str) -> None:
        raise DataError(f"{self.name}: {field}: {reason}")

    def scaled_to_train(self) -> Graph:
        """As a client trains on it: scaled by itself over its nodes that are for neither validation nor test.

        Where nothing is to be scaled any more, itself.
        """
        return self if self.scaling.applied else self._scaled(~(self.val | self.test))

    def scaled_to_predict(self) -> Graph:
        """As whoever only predicts or evaluates sees it, who holds out nothing: scaled over all of its nodes.

        Where nothing is to be scaled any more, itself.
        """
        return self if self.scaling.applied else self._scaled(np.ones(self.num_nodes, bool))

    def _scaled(self, fitted_on: np.ndarray) -> Graph:
        scaling = Scaling.by_client(self.features, fitted_on)
        return replace(self, features=scaling.apply(self.features, self.name), scaling=scaling)

    @property
    def num_nodes(self) -> int:
        return len(self.labels)

    @property
    def num_edges(self) -> int:
        """Undirected edges."""
        return self.edges.shape[1]

    @property
    def num_features(self) -> int:
        return self.features.shape[1]
