"""Federated methods, the client's side. A new one is a file with a `LocalMethod` and a line in `registry`."""

from __future__ import annotations

from importlib import import_module

from orchestrator.config import Config
from orchestrator.graphs.graph import Graph
from orchestrator.methods.base import LocalMethod, LocalUpdate
from orchestrator.registry import METHODS

__all__ = ["LocalMethod", "LocalUpdate", "create", "method_class"]


def method_class(name: str) -> type[LocalMethod]:
    """The client's side of a method."""
    module, _, attribute = METHODS[name].client.partition(":")
    return getattr(import_module(module), attribute)


def create(graph: Graph, config: Config, client: int) -> LocalMethod:
    """The client of the method that ``config.method.name`` names."""
    return method_class(config.method.name)(graph, config, client)
