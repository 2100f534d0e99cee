"""Networks for any number of classes: FED-PUB's GCN and FedSage's GraphSAGE.

Unlike `gcn`, which is made for many small clients, these take one client after the other.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, SAGEConv

from orchestrator.graphs.edges import adjacency
from orchestrator.graphs.graph import Graph
from orchestrator.models.gcn import GraphTensors
from orchestrator.models.network import Network, dropout_factors

__all__ = ["GCNClassifier", "GraphSAGE", "Neighbourhoods", "OneByOne"]


class OneByOne(Network):
    """Joined graphs are a tuple of graphs."""

    def join(self, parts: Sequence[Any]) -> Any:
        return parts[0] if len(parts) == 1 else _Several(parts)

    def logits(self, models: Tensor, graphs: Any, noises: Sequence[np.random.Generator] | None = None) -> Tensor:
        each = graphs.parts if isinstance(graphs, _Several) else [graphs]
        return torch.cat(
            [
                self._logits([part[k] for part in self.split(models)], graph, None if noises is None else noises[k])
                for k, graph in enumerate(each)
            ]
        )

    @abstractmethod
    def _logits(self, parameters: Sequence[Tensor], graph: Any, noise: np.random.Generator | None) -> Tensor:
        """Of one client; parameters in the shapes of `shapes`."""

    def _dropped(self, values: Tensor, noise: np.random.Generator | None) -> Tensor:
        if noise is None or self.config.dropout == 0:
            return values
        return values * dropout_factors(tuple(values.shape), self.config.dropout, noise)


class _Several:
    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts
        self.sizes = [size for part in parts for size in part.sizes]


class GCNClassifier(OneByOne):
    """``GCNConv -> h -> ReLU -> dropout -> GCNConv -> h -> ReLU -> dropout -> linear -> C``, as in FED-PUB."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        f, h, c = self.num_features, self.config.hidden, self.classes
        return {
            "layer1.weight": (h, f),
            "layer1.bias": (h,),
            "layer2.weight": (h, h),
            "layer2.bias": (h,),
            "classifier.weight": (c, h),
            "classifier.bias": (c,),
        }

    def _initialised(self) -> Sequence[Tensor]:
        """As PyG's layers begin: Glorot weights, zero biases."""
        h = self.config.hidden
        first, second, classifier = GCNConv(self.num_features, h), GCNConv(h, h), nn.Linear(h, self.classes)
        return first.lin.weight, first.bias, second.lin.weight, second.bias, classifier.weight, classifier.bias

    def tensors(self, graph: Graph) -> GraphTensors:
        return GraphTensors(graph)

    def embeddings(self, model: Tensor, graph: GraphTensors) -> Tensor:
        """The second layer's output before its nonlinearity, without dropout; shape (n, h). Args: model: shape (d,)."""
        return self._second([part[0] for part in self.split(model[None])], graph, None)

    def _second(self, parameters: Sequence[Tensor], graph: GraphTensors, noise: np.random.Generator | None) -> Tensor:
        weight1, bias1, weight2, bias2, *_ = parameters
        rows = self._dropped(F.relu(F.linear(graph.propagated, weight1, bias1)), noise)
        return graph.propagate(F.linear(rows, weight2)) + bias2

    def _logits(self, parameters: Sequence[Tensor], graph: GraphTensors, noise: np.random.Generator | None) -> Tensor:
        rows = self._dropped(F.relu(self._second(parameters, graph, noise)), noise)
        return F.linear(rows, parameters[-2], parameters[-1])


class Neighbourhoods:
    """A graph's features and its neighbour lists, from which neighbours can be sampled.

    Attributes:
        sizes: [n].
        features: float32, shape (n, f).
    """

    def __init__(self, graph: Graph) -> None:
        self.sizes = [graph.num_nodes]
        self.features = torch.from_numpy(graph.features)
        links = adjacency(graph.edges, graph.num_nodes)
        self._targets = np.repeat(np.arange(graph.num_nodes), np.diff(links.indptr))
        self._sources = links.indices.astype(np.int64)
        self._starts = links.indptr.astype(np.int64)

    def edges(self, limit: int | None, noise: np.random.Generator | None) -> tuple[Tensor, Tensor]:
        """(neighbour, node) pairs, int64, shape (m,) each: all of them, or up to `limit` of each node's neighbours.

        Sampling is uniform and without replacement, node by node.
        """
        targets, sources = self._targets, self._sources
        if limit is not None and noise is not None:
            shuffled = np.lexsort((noise.random(len(targets)), targets))
            kept = shuffled[np.arange(len(targets)) - self._starts[targets] < limit]
            targets, sources = targets[kept], sources[kept]
        return torch.from_numpy(sources), torch.from_numpy(targets)


class GraphSAGE(OneByOne):
    """Two layers of ``W (h_v || mean of h_u over neighbours u)``, ReLU and dropout between them (FedSage, section 3).

    The weight of the concatenation stands as two matrices, that of the node and that of its neighbours. In training
    each layer samples up to ``model.neighbours`` neighbours of every node anew; predictions use them all. A node
    without neighbours has a mean of 0.
    """

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        f, h, c = self.num_features, self.config.hidden, self.classes
        return {
            "layer1.own": (h, f),
            "layer1.neighbours": (h, f),
            "layer1.bias": (h,),
            "layer2.own": (c, h),
            "layer2.neighbours": (c, h),
            "layer2.bias": (c,),
        }

    def _initialised(self) -> Sequence[Tensor]:
        """As PyG's layers begin."""
        h = self.config.hidden
        layers = SAGEConv(self.num_features, h), SAGEConv(h, self.classes)
        return [p for layer in layers for p in (layer.lin_r.weight, layer.lin_l.weight, layer.lin_l.bias)]

    def tensors(self, graph: Graph) -> Neighbourhoods:
        return Neighbourhoods(graph)

    def _logits(self, parameters: Sequence[Tensor], graph: Neighbourhoods, noise: np.random.Generator | None) -> Tensor:
        own1, neighbours1, bias1, own2, neighbours2, bias2 = parameters
        x, limit = graph.features, self.config.neighbours
        # The product with the smaller side first: the mean is linear, and a layer's output is narrower than its input.
        rows = F.linear(x, own1, bias1) + _mean(F.linear(x, neighbours1), *graph.edges(limit, noise))
        rows = self._dropped(F.relu(rows), noise)
        return F.linear(rows, own2, bias2) + _mean(F.linear(rows, neighbours2), *graph.edges(limit, noise))


def _mean(values: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
    """Row v is the mean of the rows `sources` whose target is v, or 0; shape as `values`."""
    sums = torch.zeros_like(values).index_add(0, targets, values[sources])
    counts = torch.bincount(targets, minlength=len(values)).clamp(min=1)
    return sums / counts[:, None]
