"""Small graphs of several classes, and PyTorch Geometric's layers as the oracle of what networks compute on them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from orchestrator.graphs.edges import canonical_edges
from orchestrator.graphs.graph import Graph
from orchestrator.models import Network


def class_graph(nodes=60, classes=3, features=8, edges=150, seed=0, train="half", pairs=None, only=None) -> Graph:
    """Noisy feature clusters that say the class; random edges, of which most are within a class.

    Args:
        train: "half", "none" or "one node"; the other nodes are those of validation and test in turn.
        pairs: edges, instead of drawn ones.
        only: the class of all nodes.
    """
    rng = np.random.default_rng([seed, nodes, edges])
    labels = np.full(nodes, only, np.int8) if only is not None else (np.arange(nodes) % classes).astype(np.int8)
    centres = np.random.default_rng(7).normal(scale=1.2, size=(classes, features))
    if pairs is None:
        drawn = rng.integers(0, nodes, (2, 4 * edges))
        kept = (labels[drawn[0]] == labels[drawn[1]]) | (rng.random(4 * edges) < 0.2)
        pairs = drawn[:, kept][:, :edges]
    chosen = {
        "half": np.arange(nodes) < max(1, nodes // 2),
        "none": np.zeros(nodes, bool),
        "one node": np.arange(nodes) == 0,
    }[train]
    turn = np.arange(nodes) // classes % 2 == 0
    return Graph(
        (rng.normal(size=(nodes, features)) + centres[labels]).astype(np.float32),
        canonical_edges(np.asarray(pairs, np.int64).reshape(2, -1), nodes),
        labels,
        None,
        chosen,
        ~chosen & turn,
        ~chosen & ~turn,
        classes=classes,
    )


def edge_index(graph: Graph) -> Tensor:
    """Both directions of every edge, as PyTorch Geometric takes them."""
    return torch.from_numpy(np.concatenate([graph.edges, graph.edges[::-1]], axis=1).copy())


def parts(network: Network, vector: Tensor) -> dict[str, Tensor]:
    """The parameters by name, cut out of the vector one after the other."""
    found, place = {}, 0
    for name, shape in network.shapes.items():
        size = int(np.prod(shape))
        found[name] = vector[place : place + size].reshape(shape)
        place += size
    assert place == len(vector)
    return found


class PygGCN:
    """FED-PUB's network out of PyTorch Geometric's layers, whose parameters are slices of a vector."""

    def __init__(self, network: Network) -> None:
        self.network = network
        hidden = network.config.hidden
        self._first, self._second = GCNConv(network.num_features, hidden), GCNConv(hidden, hidden)
        self._classifier = nn.Linear(hidden, network.classes)

    def embeddings(self, vector: Tensor, graph: Graph, factors: Tensor | float = 1.0) -> Tensor:
        """The second layer's output; `factors` are the first dropout's."""
        own = parts(self.network, vector)
        x, links = torch.from_numpy(graph.features).to(vector.dtype), edge_index(graph)
        call = torch.func.functional_call
        first = {"lin.weight": own["layer1.weight"], "bias": own["layer1.bias"]}
        second = {"lin.weight": own["layer2.weight"], "bias": own["layer2.bias"]}
        return call(self._second, second, (call(self._first, first, (x, links)).relu() * factors, links))

    def logits(self, vector: Tensor, graph: Graph, factors=(1.0, 1.0)) -> Tensor:
        own = parts(self.network, vector)
        rows = self.embeddings(vector, graph, factors[0]).relu() * factors[1]
        last = {"weight": own["classifier.weight"], "bias": own["classifier.bias"]}
        return torch.func.functional_call(self._classifier, last, (rows,))
