"""What a network is to everybody else: an architecture as a function of a parameter vector.

The federation knows a model as one vector. A network says how long that vector is, how it starts, and what it predicts
on a graph, for several clients at once, each with a vector of its own.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from orchestrator.config import ModelConfig
from orchestrator.graphs.edges import canonical_edges
from orchestrator.graphs.graph import MISSING, Graph
from orchestrator.seeding import derived_seed

__all__ = ["Network", "dropout_factors", "remove_generated_files"]


class Network(ABC):
    """An architecture for graphs of a given number of features and classes.

    Attributes:
        config: its settings.
        num_features, classes: f and C.
    """

    def __init__(self, num_features: int, classes: int, config: ModelConfig) -> None:
        self.num_features, self.classes, self.config = num_features, classes, config

    @property
    @abstractmethod
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The parameters by name, in the order of the vector, in which each is flattened by rows."""

    @property
    def size(self) -> int:
        """d, the length of the vector."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @abstractmethod
    def _initialised(self) -> Sequence[Tensor]:
        """Fresh parameters in the order of `shapes`, from torch's global generator."""

    def initial_parameters(self, seed: int) -> np.ndarray:
        """Freshly initialised parameters, float64, shape (d,); a function of the network and the seed alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(seed, "initial parameters"))
            parts = self._initialised()
        remove_generated_files()
        return torch.cat([part.detach().reshape(-1) for part in parts]).double().numpy()

    def split(self, models: Tensor) -> list[Tensor]:
        """The parameters of b models, shape (b, d), as tensors of shape (b, *shape) in the order of `shapes`."""
        parts = models.split([math.prod(shape) for shape in self.shapes.values()], dim=1)
        return [part.view(-1, *shape) for part, shape in zip(parts, self.shapes.values(), strict=True)]

    @abstractmethod
    def tensors(self, graph: Graph) -> Any:
        """What a forward pass needs of a graph; built once, never changed."""

    @abstractmethod
    def join(self, parts: Sequence[Any]) -> Any:
        """The `tensors` of several graphs as those of one, in which they stand one below the other."""

    @abstractmethod
    def logits(self, models: Tensor, graphs: Any, noises: Sequence[np.random.Generator] | None = None) -> Tensor:
        """Logits of all nodes of b joined graphs, each under its own parameters. Differentiable.

        Args:
            models: float32, shape (b, d).
            graphs: joined `tensors`.
            noises: sources of randomness, one a graph; dropout, and sampling where a network samples, are on exactly
                when they are given.

        Returns:
            Shape (n, C), or (n,) where two classes have one logit, that of class 1.
        """

    def targets(self, labels: np.ndarray) -> Tensor:
        """Labels, shape (n,), in the form that `loss` takes."""
        return torch.from_numpy(labels.astype(np.int64))

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy; a scalar."""
        return F.cross_entropy(logits, targets)

    def predictions(self, logits: Tensor) -> np.ndarray:
        """The predicted class of every node; int64, shape (n,)."""
        return logits.argmax(dim=1).numpy()

    def by_class(self, logits: Tensor) -> np.ndarray:
        """Logits of every class, shape (n, C), of which one is the largest where `predictions` says so."""
        return (torch.stack([torch.zeros_like(logits), logits], dim=1) if logits.ndim == 1 else logits).numpy()

    def module(self, parameters: np.ndarray) -> nn.Module:
        """The model of these parameters, float64 (d,), as a module of ``(x, edge_index)`` that gives its logits."""
        return _Trained(self, parameters)


class _Trained(nn.Module):
    """A network and a parameter vector. Edges count in both directions and once; self-loops are left out."""

    def __init__(self, network: Network, parameters: np.ndarray) -> None:
        super().__init__()
        self._network = network
        self.parameter_vector = nn.Parameter(torch.tensor(parameters, dtype=torch.float32))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        n = len(x)
        none = np.zeros(n, bool)
        edges, labels = canonical_edges(edge_index.numpy(), n), np.full(n, MISSING, np.int8)
        graph = Graph(x.float().numpy(), edges, labels, None, none, none, none, classes=self._network.classes)
        return self._network.logits(self.parameter_vector[None], self._network.tensors(graph))


def remove_generated_files() -> None:
    """PyG writes code for every kind of layer that is made into a temporary file, and leaves it there."""
    folder = tempfile.gettempdir()
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None) or ""
        if os.path.dirname(path) == folder and os.path.basename(path).startswith(f"{name}_"):
            Path(path).unlink(missing_ok=True)


def dropout_factors(shape: tuple[int, ...], rate: float, noise: np.random.Generator) -> Tensor:
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
