"""The two-layer GCN of SaFeGNN, section 6.1, for many clients at once.

The model is ``f -> GCNConv -> hidden -> ReLU -> dropout -> GCNConv -> hidden -> linear -> 1``; its output is one logit
a node. With the normalised adjacency ``A`` (self-loops included) it computes

    H = dropout(relu((A X) W1^T + b1))          first layer; A X never changes and is computed once
    z = A (H (W2^T c)) + (b2 . c + d)           second layer and classifier c, d

The second layer and the classifier have no nonlinearity between them, so ``(A H W2^T + b2) c + d`` is regrouped such
that ``A`` multiplies a vector instead of an n x hidden matrix. Values and gradients are those of the layers one after
the other, up to rounding.

Clients that train together stand one below the other: their graphs are one graph of several components, and each
component has parameters of its own. Products with them are a loop over the components, everything else is one
operation for all; nothing is padded.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from orchestrator.config import ModelConfig
from orchestrator.errors import ConfigError
from orchestrator.graphs.graph import Graph
from orchestrator.models.network import Network, dropout_factors

__all__ = ["GCN", "GraphTensors", "blocks", "normalised_adjacency"]


def normalised_adjacency(graph: Graph) -> sp.csr_array:
    """``D^-1/2 (A + I) D^-1/2``, D the degrees with self-loops: float32, shape (n, n), symmetric."""
    n = graph.num_nodes
    u, v = graph.edges
    loops = np.arange(n)
    rows, columns = np.concatenate([u, v, loops]), np.concatenate([v, u, loops])
    scale = 1.0 / np.sqrt(np.bincount(rows, minlength=n))
    values = (scale[rows] * scale[columns]).astype(np.float32)
    return sp.csr_array((values, (rows, columns)), shape=(n, n))


class GraphTensors:
    """What a forward pass needs of one graph, or of several joined; built once, never changed.

    Attributes:
        sizes: nodes of each graph; they sum to n.
        propagated: float32, shape (n, f); the normalised adjacency times the features.
        adjacency: float32 sparse CSR, shape (n, n); the normalised adjacency, a block for each graph.
    """

    def __init__(self, graph: Graph) -> None:
        adjacency = normalised_adjacency(graph)
        self.sizes = [graph.num_nodes]
        self.propagated = torch.from_numpy(adjacency @ graph.features)
        self.adjacency = _sparse(adjacency.indptr, adjacency.indices, adjacency.data)

    @classmethod
    def of(cls, propagated: np.ndarray, adjacency: sp.csr_array) -> GraphTensors:
        """Those of a graph that is known by these alone; float32, the matrix symmetric."""
        made = cls.__new__(cls)
        made.sizes, made.propagated = [len(propagated)], torch.from_numpy(propagated)
        made.adjacency = _sparse(adjacency.indptr, adjacency.indices, adjacency.data)
        return made

    @classmethod
    def join(cls, parts: Sequence[GraphTensors]) -> GraphTensors:
        """Several as one; a single one is itself."""
        if len(parts) == 1:
            return parts[0]
        joined = cls.__new__(cls)
        joined.sizes = [size for part in parts for size in part.sizes]
        joined.propagated = torch.cat([part.propagated for part in parts])
        blocks = [part.adjacency for part in parts]
        starts = np.cumsum([0, *(len(part.propagated) for part in parts)])
        filled = np.cumsum([0, *(block.values().numel() for block in blocks)])
        rows = [block.crow_indices().numpy()[1:] + before for block, before in zip(blocks, filled, strict=False)]
        columns = [block.col_indices().numpy() + start for block, start in zip(blocks, starts, strict=False)]
        values = torch.cat([block.values() for block in blocks])
        joined.adjacency = _sparse(np.concatenate([[0], *rows]), np.concatenate(columns), values.numpy())
        return joined

    def propagate(self, values: Tensor) -> Tensor:
        """The normalised adjacency times values of shape (n,) or (n, k); differentiable."""
        return _SymmetricProduct.apply(self.adjacency, values)


def _sparse(row_ends: np.ndarray, columns: np.ndarray, values: np.ndarray) -> Tensor:
    n = len(row_ends) - 1
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            torch.from_numpy(row_ends.astype(np.int64)),
            torch.from_numpy(columns.astype(np.int64)),
            torch.from_numpy(values),
            size=(n, n),
            check_invariants=True,
        )


class _SymmetricProduct(torch.autograd.Function):
    """Product with a constant symmetric matrix: the gradient needs no transposed copy."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, values: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix @ values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix @ gradient.contiguous()


def _each_linear(x: Tensor, sizes: list[int], weights: Tensor, biases: Tensor | None = None) -> Tensor:
    """``y_i = x_i W_i^T + b_i`` for b blocks of rows x_i, one below the other; shape (n, m).

    Args:
        x: shape (n, k).
        sizes: rows of each block; they sum to n.
        weights: shape (b, m, k).
        biases: shape (b, m), or none.
    """
    if len(sizes) == 1:
        return F.linear(x, weights.squeeze(0), None if biases is None else biases.squeeze(0))
    return _EachLinear.apply(x, sizes, weights, biases)


class _EachLinear(torch.autograd.Function):
    """`_each_linear` in one step: automatic gradients would cost several times its three microseconds a block."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: list[int], weights: Tensor, biases: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weights)
        ctx.sizes = sizes
        y = x.new_empty(len(x), weights.shape[1])
        factors = zip(x.split(sizes), weights.unbind(), y.split(sizes), strict=True)
        if biases is None:
            for x_i, w_i, y_i in factors:
                torch.mm(x_i, w_i.t(), out=y_i)
        else:
            for (x_i, w_i, y_i), b_i in zip(factors, biases.unbind(), strict=True):
                torch.addmm(b_i, x_i, w_i.t(), out=y_i)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, Tensor, Tensor | None]:
        x, weights = ctx.saved_tensors
        gradients = gradient.split(ctx.sizes)
        to_x, to_biases = None, None
        if ctx.needs_input_grad[0]:
            to_x = torch.empty_like(x)
            for g_i, w_i, out in zip(gradients, weights.unbind(), to_x.split(ctx.sizes), strict=True):
                torch.mm(g_i, w_i, out=out)
        to_weights = torch.empty(weights.shape)
        for g_i, x_i, out in zip(gradients, x.split(ctx.sizes), to_weights.unbind(), strict=True):
            torch.mm(g_i.t(), x_i, out=out)
        if ctx.needs_input_grad[3]:
            to_biases = torch.stack([g_i.sum(0) for g_i in gradients])
        return to_x, None, to_weights, to_biases


def blocks(x: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    """The blocks of so many rows that stand one below the other in x."""
    return [x] if len(sizes) == 1 else x.split(sizes)


def _below(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts))


class GCN(Network):
    """See the module's text.

    ========================  ================  ===================
    parameter                 shape             for f = 276, h = 64
    ========================  ================  ===================
    first layer, weight       (h, f)            17,664
    first layer, bias         (h,)              64
    second layer, weight      (h, h)            4,096
    second layer, bias        (h,)              64
    classifier, weight        (1, h)            64
    classifier, bias          (1,)              1
    all                       (d,)              21,953
    ========================  ================  ===================

    Raises:
        ConfigError: on construction, for more than two classes.
    """

    def __init__(self, num_features: int, classes: int, config: ModelConfig) -> None:
        if classes != 2:
            raise ConfigError(
                f"model.name = gcn has one logit, but the data have {classes} classes; choose gcn-classifier or sage"
            )
        super().__init__(num_features, classes, config)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        f, h = self.num_features, self.config.hidden
        return {
            "layer1.weight": (h, f),
            "layer1.bias": (h,),
            "layer2.weight": (h, h),
            "layer2.bias": (h,),
            "classifier.weight": (1, h),
            "classifier.bias": (1,),
        }

    def _initialised(self) -> Sequence[Tensor]:
        """As PyG's layers begin: Glorot weights, zero biases."""
        h = self.config.hidden
        first, second, classifier = GCNConv(self.num_features, h), GCNConv(h, h), nn.Linear(h, 1)
        return first.lin.weight, first.bias, second.lin.weight, second.bias, classifier.weight, classifier.bias

    def tensors(self, graph: Graph) -> GraphTensors:
        return GraphTensors(graph)

    def join(self, parts: Sequence[GraphTensors]) -> GraphTensors:
        return GraphTensors.join(parts)

    def logits(
        self, models: Tensor, graphs: GraphTensors, noises: Sequence[np.random.Generator] | None = None
    ) -> Tensor:
        """Shape (n,): the logit of class 1."""
        hidden, dropout = self.config.hidden, self.config.dropout
        weight1, bias1, weight2, bias2, readout, constant = self.split(models)
        rows = F.relu(_each_linear(graphs.propagated, graphs.sizes, weight1, bias1))
        if noises is not None and dropout > 0:
            sources = zip(graphs.sizes, noises, strict=True)
            factors = [dropout_factors((size, hidden), dropout, noise) for size, noise in sources]
            rows = rows * _below(factors)
        readout = readout.squeeze(1)
        second = _each_linear(readout, [1] * len(readout), weight2.transpose(1, 2))
        values = graphs.propagate(_each_linear(rows, graphs.sizes, second.unsqueeze(1)).squeeze(1))
        offsets = (b @ c + d for b, c, d in zip(bias2.unbind(), readout.unbind(), constant.unbind(), strict=True))
        return _below([block + o for block, o in zip(blocks(values, graphs.sizes), offsets, strict=True)])

    def embeddings(self, models: Tensor, graphs: GraphTensors) -> Tensor:
        """What `read` takes of every node: the first layer's units, without dropout, propagated; shape (n, h)."""
        weight1, bias1, *_ = self.split(models)
        return graphs.propagate(F.relu(_each_linear(graphs.propagated, graphs.sizes, weight1, bias1)))

    def read(self, model: Tensor, embeddings: Tensor) -> Tensor:
        """The logits of embeddings, shape (k, h), under one model, shape (d,); of `embeddings`, those of `logits`."""
        _, _, weight2, bias2, readout, constant = (part.squeeze(0) for part in self.split(model[None]))
        readout = readout.squeeze(0)
        return embeddings @ (readout @ weight2) + bias2 @ readout + constant

    def targets(self, labels: np.ndarray) -> Tensor:
        return torch.from_numpy(labels.astype(np.float32))

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, targets)

    def predictions(self, logits: Tensor) -> np.ndarray:
        return (logits > 0).long().numpy()
