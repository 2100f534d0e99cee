"""The networks, functions of a parameter vector. A new one is a file with a `Network` and a line in `NETWORKS`."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import torch

from orchestrator.config import ModelConfig
from orchestrator.errors import ConfigError, RunError
from orchestrator.files import write_atomically
from orchestrator.models.classifiers import GCNClassifier, GraphSAGE
from orchestrator.models.gcn import GCN
from orchestrator.models.network import Network

__all__ = ["NETWORKS", "Network", "create_network", "load_model", "save_model"]

NETWORKS: dict[str, type[Network]] = {
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
    """The network that ``config.name`` names. Raises ConfigError where it cannot do with so many classes."""
    return NETWORKS[config.name](num_features, classes, config)


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
