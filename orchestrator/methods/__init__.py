"""Federated methods, the client's side. A new one is a file and an entry in `registry`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.config import Config
from orchestrator.methods.base import LocalMethod, LocalUpdate
from orchestrator.registry import METHODS, load

if TYPE_CHECKING:  # settings lie in this folder too, and whoever only reads those needs no graphs
    from orchestrator.graphs.graph import Graph

__all__ = ["LocalMethod", "LocalUpdate", "create", "method_class"]


def method_class(name: str) -> type[LocalMethod]:
    """The client's side of a method."""
    return load(METHODS[name].client)


def create(graph: Graph, config: Config, client: int) -> LocalMethod:
    """The client of the method that ``config.method.name`` names."""
    return method_class(config.method.name)(graph, config, client)
