"""The two-layer GCN of SaFeGNN, section 6.1, for many clients at once, and its parameters as one vector.

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

import math
import pickle
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from orchestrator.config import ModelConfig
from orchestrator.errors import RunError
from orchestrator.graphs.graph import Graph
from orchestrator.runs import write_atomically
from orchestrator.seeding import derived_seed

__all__ = [
    "GCN",
    "GraphTensors",
    "blocks",
    "gcn_logits",
    "initial_parameters",
    "load_model",
    "load_vector",
    "normalised_adjacency",
    "ordered_parameters",
    "parameters_to_vector",
    "save_model",
]


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
        """The normalised adjacency times a vector of shape (n,); differentiable."""
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


def gcn_logits(
    parameters: Tensor,
    hidden: int,
    graphs: GraphTensors,
    dropout: float = 0.0,
    noises: Sequence[np.random.Generator] | None = None,
) -> Tensor:
    """Logits of all nodes of b joined graphs, each under its own parameters; shape (n,). Differentiable.

    Args:
        parameters: float32, shape (b, d); rows in the order of `ordered_parameters`.
        hidden: width of the model, h.
        dropout: its rate. Dropout is on exactly when there are sources of noise, one a graph.
    """
    f = graphs.propagated.shape[1]
    shapes = ((hidden, f), (hidden,), (hidden, hidden), (hidden,), (1, hidden), (1,))
    parts = parameters.split([math.prod(shape) for shape in shapes], dim=1)
    weight1, bias1, weight2, bias2, readout, constant = (
        part.view(-1, *shape) for part, shape in zip(parts, shapes, strict=True)
    )
    rows = F.relu(_each_linear(graphs.propagated, graphs.sizes, weight1, bias1))
    if noises is not None and dropout > 0:
        sources = zip(graphs.sizes, noises, strict=True)
        factors = [_dropout_factors((size, hidden), dropout, noise) for size, noise in sources]
        rows = rows * _below(factors)
    readout = readout.squeeze(1)
    second = _each_linear(readout, [1] * len(readout), weight2.transpose(1, 2))
    values = graphs.propagate(_each_linear(rows, graphs.sizes, second.unsqueeze(1)).squeeze(1))
    offsets = (b @ c + d for b, c, d in zip(bias2.unbind(), readout.unbind(), constant.unbind(), strict=True))
    return _below([block + o for block, o in zip(blocks(values, graphs.sizes), offsets, strict=True)])


def blocks(x: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    """The blocks of so many rows that stand one below the other in x."""
    return [x] if len(sizes) == 1 else x.split(sizes)


def _below(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


class GCN(nn.Module):
    """See the module's text. PyG's layers hold and initialise the parameters: Glorot weights, zero biases."""

    def __init__(self, num_features: int, config: ModelConfig) -> None:
        super().__init__()
        self.conv1 = GCNConv(num_features, config.hidden)
        self.conv2 = GCNConv(config.hidden, config.hidden)
        self.classifier = nn.Linear(config.hidden, 1)
        self._dropout = config.dropout

    def forward(self, graph: GraphTensors, dropout_noise: np.random.Generator | None = None) -> Tensor:
        """Logits of all nodes, shape (n,). Dropout is on exactly when its source of noise is given."""
        vector = torch.cat([p.reshape(-1) for p in ordered_parameters(self)])
        noises = None if dropout_noise is None else [dropout_noise]
        return gcn_logits(vector[None], len(self.classifier.weight[0]), graph, self._dropout, noises)


def _dropout_factors(shape: tuple[int, int], rate: float, noise: np.random.Generator) -> Tensor:
    """float32: 0 with probability ``rate``, else 1 / (1 - rate).

    Sixteen bits of noise decide an entry, so the rate is rounded to a multiple of 2^-16; the scale uses the rounded
    rate, so the expectation is exactly 1. Drawing bits is several times faster than torch's Bernoulli generator, which
    would take longer than both matrix products of an epoch.
    """
    count = math.prod(shape)
    drop = min(round(rate * 2**16), 2**16 - 1)
    bits = noise.bit_generator.random_raw(-(-count // 4)).view(np.uint16)[:count]
    scale = np.float32(2**16 / (2**16 - drop))
    return torch.from_numpy((bits >= drop).astype(np.float32) * scale).view(shape)


def ordered_parameters(model: GCN) -> tuple[nn.Parameter, ...]:
    """The parameters in the order of the vector, each flattened by rows.

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
    """
    return (
        model.conv1.lin.weight,
        model.conv1.bias,
        model.conv2.lin.weight,
        model.conv2.bias,
        model.classifier.weight,
        model.classifier.bias,
    )


def parameters_to_vector(model: GCN) -> np.ndarray:
    """All parameters as float64, shape (d,), in the order of `ordered_parameters`."""
    return torch.cat([p.detach().reshape(-1) for p in ordered_parameters(model)]).double().numpy()


def load_vector(model: GCN, vector: np.ndarray) -> None:
    """Set all parameters from a vector of shape (d,); they are rounded to float32."""
    parameters = ordered_parameters(model)
    sizes = [p.numel() for p in parameters]
    if vector.shape != (sum(sizes),):
        raise ValueError(f"expected parameters of shape ({sum(sizes)},), got {vector.shape}")
    with torch.no_grad():
        for parameter, values in zip(parameters, torch.tensor(vector).split(sizes), strict=True):
            parameter.copy_(values.view_as(parameter))


def initial_parameters(num_features: int, config: ModelConfig, seed: int) -> np.ndarray:
    """Freshly initialised parameters, float64, shape (d,); a function of the arguments alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "initial parameters"))
        return parameters_to_vector(GCN(num_features, config))


def save_model(path: Path, parameters: np.ndarray, num_features: int, config: ModelConfig) -> None:
    """Write a model, whole or not at all, such that `load_model` needs nothing else.

    Args:
        parameters: float64, shape (d,).
    """
    content = {
        "num_features": num_features,
        "model": config.model_dump(),
        "parameters": torch.tensor(parameters, dtype=torch.float64),
    }
    write_atomically(path, lambda file: torch.save(content, file))


def load_model(path: Path) -> GCN:
    """The model that `save_model` wrote. Only plain data is read: a file from elsewhere cannot run code.

    Raises:
        RunError: the file cannot be read or holds no such model.
    """
    try:
        content = torch.load(path, weights_only=True)
        model = GCN(content["num_features"], ModelConfig(**content["model"]))
        load_vector(model, content["parameters"].numpy())
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, LookupError, TypeError, ValueError) as error:
        raise RunError(f"{path}: not a model of this program: {type(error).__name__}") from error
    return model
