"""An ordinary `torch.nn.Module` as the network of a federation.

The module is called with the parameters that the federation gives it and has none of its own: it is a function of the
parameter vector, as every network. What it holds besides parameters would stay in one process and is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence

import cloudpickle
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from orchestrator.config import ModelConfig
from orchestrator.errors import ConfigError
from orchestrator.graphs.graph import Graph
from orchestrator.models.classifiers import OneByOne
from orchestrator.models.network import remove_generated_files

__all__ = ["OwnModule", "OwnNetwork"]

Factory = Callable[[int, int], nn.Module]


class OwnModule:
    """A way to make a user's module, which can be sent to another process wherever it was defined.

    A class of a script or notebook cannot be imported elsewhere: it travels by value.
    """

    def __init__(self, factory: Factory) -> None:
        """Args: factory: a class or function of ``(in_features, out_features)``.

        Raises:
            ConfigError: it is none, or cannot be sent to the processes of clients.
        """
        if isinstance(factory, nn.Module) or not callable(factory):
            raise ConfigError(
                "model: expected a class, or a function of (in_features, out_features) that makes a torch.nn.Module, "
                f"got an object of {type(factory).__name__}"
            )
        try:
            self._pickled: bytes = cloudpickle.dumps(factory)
        except Exception as error:  # whatever the objects that it refers to raise
            raise ConfigError(f"model: it cannot be sent to the clients' processes: {_line(error)}") from error
        self._made: dict[tuple[int, int], nn.Module] = {}

    def __reduce__(self) -> tuple[Callable[[bytes], OwnModule], tuple[bytes]]:
        return _received, (self._pickled,)

    def __call__(self, num_features: int, classes: int, config: ModelConfig) -> OwnNetwork:
        """As the classes in `NETWORKS`."""
        return OwnNetwork(self, num_features, classes, config)

    def make(self, num_features: int, classes: int) -> nn.Module:
        """A fresh module that was tried on a small graph; its parameters are drawn from torch's global generator.

        Raises:
            ConfigError: it cannot be made or called, or is no function of its parameters and arguments alone.
        """
        try:
            module = cloudpickle.loads(self._pickled)(num_features, classes)
            if not isinstance(module, nn.Module):
                raise TypeError(f"expected a torch.nn.Module, got {type(module).__name__}")
            module.eval()
            with torch.no_grad():
                n = classes + 2
                path = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
                logits = module(torch.zeros(n, num_features), torch.cat([path, path.flip(0)], dim=1))
        except Exception as error:  # it is the user's code
            raise ConfigError(f"model: it cannot be used with {num_features} features: {_line(error)}") from error
        finally:
            remove_generated_files()
        _check(module)
        shapes = [(n, classes), (n,), (n, 1)] if classes == 2 else [(n, classes)]
        if not isinstance(logits, Tensor) or tuple(logits.shape) not in shapes:
            got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
            wanted = " or ".join(map(str, shapes[:2]))
            raise ConfigError(
                f"model: {type(module).__name__}: expected logits of shape {wanted} for {n} nodes, got {got}"
            )
        return module

    def shared(self, num_features: int, classes: int) -> nn.Module:
        """The one module of this process. What is not trained in it is the same in every process."""
        key = num_features, classes
        if key not in self._made:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                self._made[key] = self.make(num_features, classes)
        return self._made[key]


def _received(pickled: bytes) -> OwnModule:
    module = OwnModule.__new__(OwnModule)
    module._pickled, module._made = pickled, {}
    return module


def _check(module: nn.Module) -> None:
    name = type(module).__name__
    state = set(module.state_dict()) - {key for key, _ in module.named_parameters(remove_duplicate=False)}
    if state:
        raise ConfigError(
            f"model: {name} keeps {', '.join(sorted(state)[:3])}, which are no parameters and would not be averaged; "
            "use LayerNorm or track_running_stats=False, or register_buffer(..., persistent=False) for constants"
        )
    if caching := [type(part).__name__ for part in module.modules() if getattr(part, "cached", False) is True]:
        raise ConfigError(f"model: {caching[0]}(cached=True) in {name} would keep one client's graph for all; leave it")
    if not any(True for _ in _trained(module)):
        raise ConfigError(f"model: {name} has no parameters to train")


def _trained(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, value) for name, value in module.named_parameters() if value.requires_grad)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


class _Links:
    """A graph as modules take it. Attributes: sizes: [n]; x: float32, (n, f); edge_index: int64, (2, 2 m)."""

    def __init__(self, graph: Graph) -> None:
        self.sizes = [graph.num_nodes]
        self.x = torch.from_numpy(graph.features)
        self.edge_index = torch.from_numpy(np.concatenate([graph.edges, graph.edges[::-1]], axis=1))


class OwnNetwork(OneByOne):
    """A module's trainable parameters, in its order, are the vector; ``forward(x, edge_index)`` gives the logits.

    ``edge_index`` holds both directions of every edge and no self-loops. Two classes have one logit, that of class 1:
    of two the difference, whose cross-entropy and predictions are the same. In training the module is in training mode
    and torch's generator is seeded from the client's own source of noise, so that a resumed run is the same run.
    """

    def __init__(self, own: OwnModule, num_features: int, classes: int, config: ModelConfig) -> None:
        super().__init__(num_features, classes, config)
        self._own, self._module = own, own.shared(num_features, classes)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tuple(value.shape) for name, value in _trained(self._module)}

    def _initialised(self) -> Sequence[Tensor]:
        return [value for _, value in _trained(self._own.make(self.num_features, self.classes))]

    def tensors(self, graph: Graph) -> _Links:
        return _Links(graph)

    def _logits(self, parameters: Sequence[Tensor], graph: _Links, noise: np.random.Generator | None) -> Tensor:
        self._module.train(noise is not None)
        named = dict(zip(self.shapes, parameters, strict=True))
        with torch.random.fork_rng(devices=[], enabled=noise is not None):
            if noise is not None:
                torch.manual_seed(int(noise.integers(2**63)))
            logits = torch.func.functional_call(self._module, named, (graph.x, graph.edge_index)).float()
        if self.classes > 2 or logits.ndim == 1:
            return logits
        return logits[:, -1] - (logits[:, 0] if logits.shape[1] == 2 else 0.0)

    def targets(self, labels: np.ndarray) -> Tensor:
        return super().targets(labels) if self.classes > 2 else torch.from_numpy(labels.astype(np.float32))

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.classes > 2:
            return super().loss(logits, targets)
        return F.binary_cross_entropy_with_logits(logits, targets)

    def predictions(self, logits: Tensor) -> np.ndarray:
        return super().predictions(logits) if self.classes > 2 else (logits > 0).long().numpy()

    def module(self, parameters: np.ndarray) -> nn.Module:
        module = copy.deepcopy(self._module).eval()
        values = self.split(torch.tensor(parameters, dtype=torch.float32)[None])
        with torch.no_grad():
            for (_, own), value in zip(_trained(module), values, strict=True):
                own.copy_(value[0])
        return module
