"""FedGCN's client (Yao et al., NeurIPS 2023): what other clients' neighbours add to its nodes is summed once.

With A the whole graph's adjacency and self-loops, D its degrees and P = D^-1/2 A D^-1/2, a GCN computes
``P relu(P X W1) W2``. A client lacks the columns of P at other clients' nodes. Before the first round all clients add
up, on shares, what their nodes u send to nodes v,

    1 hop:  row v of the sum is  sum_u x_u / sqrt(D_u)  over v's neighbours u at clients other than v's own
    2 hops: row v of the sum is  row v of P X, over all u; before that the degrees D are summed

and keep the rows that they need: of their nodes, and with 2 hops of those that their nodes have edges to. With 1 hop
the first layer is the whole graph's at the client's nodes, with 2 hops the network is.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp

from orchestrator.config import Config
from orchestrator.errors import ConfigError
from orchestrator.graphs.graph import Graph
from orchestrator.methods.adam_training import AdamTraining
from orchestrator.methods.fedgcn_settings import FedGCNSettings
from orchestrator.models.gcn import GraphTensors

__all__ = ["FedGCN"]


class FedGCN(AdamTraining):
    """No scores: the rule is the plain mean. Until the sums are heard, the client knows its own graph alone."""

    settings: FedGCNSettings

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        if graph.cut is None:
            raise ConfigError(
                f"clients.partition = {config.clients.partition}: method.name = fedgcn needs clients whose nodes were "
                "cut out of one graph, each for one client: disjoint, louvain or given"
            )
        super().__init__(graph, config, client)
        self._cut = graph.cut
        n, own = graph.num_nodes, graph.cut.ends[0]
        u, v = graph.edges
        loops = np.arange(n)
        self._inside = np.concatenate([u, v, loops]), np.concatenate([v, u, loops])
        self._degrees = np.bincount(self._inside[0], minlength=n) + np.bincount(own, minlength=n).astype(float)
        self._features: np.ndarray | None = graph.features.astype(np.float64)
        self._all_degrees: np.ndarray | None = None
        self._shortened = 0.0

    def statistic(self, name: str) -> np.ndarray:
        """What this client adds: its nodes' degrees, shape (N,), or rows of N nodes, row by row, shape (N f,)."""
        nodes, size, (own, other) = self._cut.nodes, self._cut.size, self._cut.ends
        if name == "degrees":
            numbers = np.zeros(size)
            numbers[nodes] = self._degrees
        else:
            assert self._features is not None
            to, of = other, own
            if self.settings.hops == 2:
                to, of = np.concatenate([other, nodes[self._inside[0]]]), np.concatenate([own, self._inside[1]])
            scale = 1 / np.sqrt(self._degrees[of])
            if self._all_degrees is not None:
                scale = scale / np.sqrt(self._all_degrees[to])
            numbers = (sp.csr_array((scale, (to, of)), shape=(size, len(nodes))) @ self._features).ravel()
        bound = next(each.bound for each in self.settings.statistics() if each.name == name)
        self._shortened = max(self._shortened, float(np.linalg.norm(numbers) > bound))
        return numbers

    def hear_total(self, name: str, total: np.ndarray) -> None:
        if name == "degrees":  # whole numbers, but for fixed point and noise
            self._all_degrees = np.maximum(np.rint(total), 1.0)
            self._all_degrees[self._cut.nodes] = self._degrees
            return
        assert self._features is not None
        rows = total.reshape(self._cut.size, -1)
        n, scale = len(self._cut.nodes), 1 / np.sqrt(self._degrees)
        to, of = self._inside
        entries = scale[to] * scale[of]
        if self._all_degrees is None:
            matrix = sp.csr_array((entries, (to, of)), shape=(n, n))
            seen = matrix @ self._features + scale[:, None] * rows[self._cut.nodes]
        else:
            own, other = self._cut.ends
            guests, places = np.unique(other, return_inverse=True)
            places = n + places
            crossing = scale[own] / np.sqrt(self._all_degrees[other])
            to, of = np.concatenate([to, own, places]), np.concatenate([of, places, own])
            entries = np.concatenate([entries, crossing, crossing])
            matrix = sp.csr_array((entries, (to, of)), shape=(n + len(guests), n + len(guests)))
            seen = rows[np.concatenate([self._cut.nodes, guests])]
        self.tensors = GraphTensors.of(seen.astype(np.float32), matrix.astype(np.float32))
        self._features = None  # in the tensors, and not needed again

    def facts(self) -> Mapping[str, float]:
        """``sums_shortened``: the share of clients whose numbers were longer than their bound."""
        return {"sums_shortened": self._shortened}
