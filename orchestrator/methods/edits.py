"""EDITS (Dong et al., WWW 2022): a graph is debiased before a network is trained on it.

How unlike two groups are in an attribute is the Wasserstein-1 distance of its distributions over their nodes.
*Attribute bias* is the mean of these distances over the attributes, *structural bias* the same after each of some
propagations along the edges. The attributes that differ most are set to 0; then edges are taken away along which the
difference spreads. Everything afterwards is FedAvg's, on the graph that is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from orchestrator.config import Config
from orchestrator.errors import ConfigError
from orchestrator.graphs.graph import Graph
from orchestrator.methods.adam_training import AdamTraining
from orchestrator.methods.reference_settings import EditsSettings

__all__ = ["Edits", "Groups", "debiased", "distances", "propagations"]

_CANDIDATES = 41
"""Numbers of edges that are tried."""


class Groups:
    """The measured nodes of both groups, and what their quantiles have to be compared at.

    Attributes:
        compared: whether both groups have nodes; else every distance is 0.
    """

    def __init__(self, graph: Graph) -> None:
        """Training nodes are measured: what is known of the others' groups is for validation and test."""
        assert graph.sensitive is not None
        self._nodes = [torch.from_numpy(np.flatnonzero(graph.train & (graph.sensitive == g))) for g in (0, 1)]
        sizes = [len(nodes) for nodes in self._nodes]
        self.compared = min(sizes) > 0
        if not self.compared:
            return
        # Both quantile functions are steps; between two neighbouring ends of steps of either, both are constant.
        ends = np.unique(np.concatenate([np.arange(1, size + 1) / size for size in sizes]))
        starts = np.concatenate([[0.0], ends[:-1]])
        middle = (starts + ends) / 2
        self._places = [torch.from_numpy((middle * size).astype(np.int64)) for size in sizes]
        self._widths = torch.from_numpy(ends - starts)

    def distance(self, values: Tensor) -> Tensor:
        """Wasserstein-1 distance between the groups, shape (f,); differentiable. Args: values: shape (n, f)."""
        if not self.compared:
            return values.new_zeros(values.shape[1])
        first, second = (
            values[nodes].sort(dim=0).values[p] for nodes, p in zip(self._nodes, self._places, strict=True)
        )
        return self._widths.to(values.dtype) @ (first - second).abs()


def propagations(graph: Graph, weights: Tensor, values: Tensor, hops: int) -> list[Tensor]:
    """Values after 1 to `hops` products with ``D^-1/2 (A + I) D^-1/2``, where A has a weight at each edge.

    Args:
        weights: float32, shape (m,), differentiable; D is the degrees of the unweighted graph.
        values: float32, shape (n, f).
    """
    n = graph.num_nodes
    u, v = torch.from_numpy(graph.edges)
    loops = torch.arange(n)
    rows, columns = torch.cat([u, v, loops]), torch.cat([v, u, loops])
    scale = torch.bincount(rows, minlength=n).float().rsqrt()
    entries = torch.cat([weights, weights, torch.ones(n)]) * scale[rows] * scale[columns]
    matrix = torch.sparse_coo_tensor(torch.stack([rows, columns]), entries, (n, n), check_invariants=True)
    found = []
    for _ in range(hops):
        values = torch.sparse.mm(matrix, values)
        found.append(values)
    return found


def distances(graph: Graph, hops: int) -> tuple[np.ndarray, np.ndarray]:
    """The groups' distances by attribute, shape (f,): of the attributes themselves, and summed over the hops.

    Every attribute counts as a column of Euclidean norm 1, whatever its unit.
    """
    groups, x = Groups(graph), _columns(graph)
    far = [groups.distance(values) for values in propagations(graph, torch.ones(graph.num_edges), x, hops)]
    return groups.distance(x).numpy(), torch.stack(far).sum(dim=0).numpy()


def debiased(graph: Graph, settings: EditsSettings) -> Graph:
    """The graph without the attributes and the edges that set the groups apart most; see the settings.

    Edges whose weight fell most go first, and so many as make the objective of the weights least, with 0 for an edge
    that is gone and 1 for the others: never is structural bias larger than with all of them.
    """
    near, far = distances(graph, settings.hops)
    order = np.argsort(-(near + far), kind="stable")[: settings.masked]
    features = graph.features.copy()
    features[:, order[(near + far)[order] > 0]] = 0
    graph = replace(graph, features=features)
    present = distances(graph, settings.hops)[1].sum()
    if not present or not graph.num_edges:
        return graph
    weights = _edge_weights(graph, settings)
    first = np.argsort(weights, kind="stable")
    candidates = []
    for count in np.unique(np.linspace(0, (weights < 1).sum(), _CANDIDATES).astype(np.int64)):
        kept = replace(graph, edges=graph.edges[:, np.sort(first[count:])])
        bias = distances(kept, settings.hops)[1].sum() / present
        candidates.append((bias + settings.edge_penalty * count / graph.num_edges, kept))
    return min(candidates, key=lambda candidate: candidate[0])[1]


def _edge_weights(graph: Graph, settings: EditsSettings) -> np.ndarray:
    """In [0, 1], shape (m,): little structural bias, relative to the present one, and little change of the graph."""
    groups, x = Groups(graph), _columns(graph)
    weights = torch.ones(graph.num_edges, requires_grad=True)
    adam = torch.optim.Adam([weights], lr=settings.edge_rate)
    present = 0.0
    for _ in range(settings.edge_steps):
        bias = torch.stack([groups.distance(v).sum() for v in propagations(graph, weights, x, settings.hops)]).sum()
        present = present or float(bias.detach())
        adam.zero_grad()
        (bias / present + settings.edge_penalty * (1 - weights).square().mean()).backward()
        adam.step()
        weights.data.clamp_(0, 1)
    return weights.detach().numpy()


def _columns(graph: Graph) -> Tensor:
    """The attributes, columns of norm 1, or 0; float32, shape (n, f)."""
    x = torch.from_numpy(graph.features)
    return x / x.norm(dim=0).clamp(min=torch.finfo(torch.float32).tiny)


class Edits(AdamTraining):
    """FedAvg's client on its own graph, debiased. No scores: the rule is the plain mean."""

    settings: EditsSettings

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        assert isinstance(config.method, EditsSettings)
        if graph.sensitive is None:
            raise ConfigError("method.name = edits is for data with a sensitive attribute")
        if config.evaluation.where != "clients":
            raise ConfigError(
                "method.name = edits predicts on the graph that it debiased: set evaluation.where to clients"
            )
        after = debiased(graph, config.method)
        self._facts = {}
        for when, each in (("before", graph), ("after", after)):
            for kind, far in zip(("attribute", "structural"), distances(each, config.method.hops), strict=True):
                self._facts[f"{kind}_bias_{when}"] = float(far.mean()) if len(far) else 0.0
        self._facts["edges_kept"] = after.num_edges / graph.num_edges if graph.num_edges else 1.0
        super().__init__(after, config, client)

    def facts(self) -> Mapping[str, float]:
        """Both biases before and after, and the share of edges that are left."""
        return self._facts
