"""The networks, functions of a parameter vector. A new one is a file with a `Network` and a line in `NETWORKS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchestrator.config import ModelConfig
from orchestrator.errors import ConfigError
from orchestrator.models.classifiers import GCNClassifier, GraphSAGE
from orchestrator.models.gcn import GCN
from orchestrator.models.network import Network
from orchestrator.models.own import OwnModule

__all__ = ["NETWORKS", "Network", "OwnModule", "create_network", "own_network"]

NETWORKS: dict[str, Callable[[int, int, ModelConfig], Network]] = {
    "gcn": GCN,
    "gcn-classifier": GCNClassifier,
    "sage": GraphSAGE,
}


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
