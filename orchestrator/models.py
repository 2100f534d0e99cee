"""The two-layer GCN of SaFeGNN, section 6.1, and its parameters as one vector.

The model is ``f -> GCNConv -> hidden -> ReLU -> dropout -> GCNConv -> hidden -> linear -> 1``; its output is one logit
a node. With the normalised adjacency ``A`` (self-loops included) it computes

    H = dropout(relu((A X) W1^T + b1))          first layer; A X never changes and is computed once
    z = A (H (W2^T c)) + (b2 . c + d)           second layer and classifier c, d

The second layer and the classifier have no nonlinearity between them, so ``(A H W2^T + b2) c + d`` is regrouped such
that ``A`` multiplies a vector instead of an n x hidden matrix. Values and gradients are those of the layers one after
the other, up to rounding.
"""

from __future__ import annotations

import pickle
import warnings
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
    """What a forward pass needs of a graph; built once, never changed.

    Attributes:
        propagated: float32, shape (n, f); the normalised adjacency times the features.
        adjacency: float32 sparse CSR, shape (n, n); the normalised adjacency.
    """

    def __init__(self, graph: Graph) -> None:
        adjacency = normalised_adjacency(graph)
        self.propagated = torch.from_numpy(adjacency @ graph.features)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            self.adjacency = torch.sparse_csr_tensor(
                torch.from_numpy(adjacency.indptr.astype(np.int64)),
                torch.from_numpy(adjacency.indices.astype(np.int64)),
                torch.from_numpy(adjacency.data),
                size=adjacency.shape,
                check_invariants=True,
            )

    def propagate(self, values: Tensor) -> Tensor:
        """The normalised adjacency times a vector of shape (n,); differentiable."""
        return _SymmetricProduct.apply(self.adjacency, values)


class _SymmetricProduct(torch.autograd.Function):
    """Product with a constant symmetric matrix: the gradient needs no transposed copy."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, values: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix @ values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix @ gradient.contiguous()


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
        hidden = F.relu(F.linear(graph.propagated, self.conv1.lin.weight, self.conv1.bias))
        if dropout_noise is not None and self._dropout > 0:
            hidden = hidden * _dropout_factors(hidden.shape, self._dropout, dropout_noise)
        readout = self.classifier.weight[0]
        constant = self.conv2.bias @ readout + self.classifier.bias
        return graph.propagate(hidden @ (self.conv2.lin.weight.T @ readout)) + constant


def _dropout_factors(shape: torch.Size, rate: float, noise: np.random.Generator) -> Tensor:
    """float32: 0 with probability ``rate``, else 1 / (1 - rate).

    Sixteen bits of noise decide an entry, so the rate is rounded to a multiple of 2^-16; the scale uses the rounded
    rate, so the expectation is exactly 1. Drawing bits is several times faster than torch's Bernoulli generator, which
    would take longer than both matrix products of an epoch.
    """
    count = shape.numel()
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
