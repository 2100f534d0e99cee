"""The networks, functions of a parameter vector. A new one is a file with a `Network` and a line in `NETWORKS`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from orchestrator.config import ModelConfig
from orchestrator.errors import ConfigError, RunError
from orchestrator.files import write_atomically
from orchestrator.models.classifiers import GCNClassifier, GraphSAGE
from orchestrator.models.gcn import GCN
from orchestrator.models.network import Network
from orchestrator.models.own import OwnModule

__all__ = ["NETWORKS", "Network", "OwnModule", "create_network", "load_model", "own_network", "save_model"]

NETWORKS: dict[str, Callable[[int, int, ModelConfig], Network]] = {
    "gcn": GCN,
    "gcn-classifier": GCNClassifier,
    "sage": GraphSAGE,
}

_NO_MODEL = (
    OSError,
    RuntimeError,
    EOFError,
    pickle.UnpicklingError,
    LookupError,
    TypeError,
    ValueError,
    ConfigError,  # a network that cannot do with so many classes
)


def create_network(num_features: int, classes: int, config: ModelConfig) -> Network:
    """The network that ``config.name`` names.

    Raises:
        ConfigError: it cannot do with so many classes, or is an own one that this process was not given.
    """
    if config.name not in NETWORKS:
        raise ConfigError(f"model.name = {config.name}: the module is given in Python, train(model=...)")
    return NETWORKS[config.name](num_features, classes, config)


@contextmanager
def own_network(module: OwnModule | None) -> Iterator[None]:
    """What ``model.name = own`` is, in this process, for as long as this lasts; None: nothing."""
    before = NETWORKS.pop("own", None)
    if module is not None:
        NETWORKS["own"] = module
    try:
        yield
    finally:
        NETWORKS.pop("own", None)
        if before is not None:
            NETWORKS["own"] = before


def save_model(path: Path, network: Network, parameters: np.ndarray) -> None:
    """Write a model, whole or not at all, such that `load_model` needs nothing else.

    Args:
        parameters: float64, shape (d,).
    """
    content = {
        "num_features": network.num_features,
        "classes": network.classes,
        "model": network.config.model_dump(),
        "parameters": torch.tensor(parameters, dtype=torch.float64),
    }
    write_atomically(path, lambda file: torch.save(content, file))


def load_model(path: Path) -> tuple[Network, np.ndarray]:
    """The network and the parameters, float64 (d,), that `save_model` wrote.

    Only plain data is read: a file from elsewhere cannot run code.

    Raises:
        RunError: the file cannot be read or holds no such model.
    """
    try:
        content = torch.load(path, weights_only=True)
        network = create_network(content["num_features"], content["classes"], ModelConfig(**content["model"]))
        parameters = np.asarray(content["parameters"], dtype=np.float64)
        if parameters.shape != (network.size,):
            raise ValueError("the vector has another length")
    except _NO_MODEL as error:
        raise RunError(f"{path}: not a model of this program: {type(error).__name__}") from error
    return network, parameters
