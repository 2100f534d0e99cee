"""Federated methods, the client's side. A new one is a file with a `LocalMethod` and a line in `METHODS`."""

from __future__ import annotations

from orchestrator.config import Config
from orchestrator.graphs.graph import Graph
from orchestrator.methods.base import LocalMethod, LocalUpdate
from orchestrator.methods.f2gnn import F2GNN
from orchestrator.methods.fedavg import FedAvg

__all__ = ["METHODS", "LocalMethod", "LocalUpdate", "create"]

METHODS: dict[str, type[LocalMethod]] = {
    "f2gnn": F2GNN,
    "fedavg": FedAvg,
}


def create(graph: Graph, config: Config, client: int) -> LocalMethod:
    """The client of the method that ``config.method.name`` names."""
    return METHODS[config.method.name](graph, config, client)
