"""SafeGNN: fair and private federated graph neural networks on two-server secret shares.

The names below are the Python API; docs/python.md shows them. Each is imported when it is first asked for: server
processes import this package too, and must not import what trains.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.api import Run, train
    from orchestrator.config import Config, load_config, preset_names
    from orchestrator.errors import ConfigError, DataError, RunError, SafeGNNError
    from orchestrator.graphs import client_graphs, describe_graph, fetch_data, load_graph
    from orchestrator.graphs.graph import Graph
    from orchestrator.models.trained import load_model

__all__ = [
    "Config",
    "ConfigError",
    "DataError",
    "Graph",
    "Run",
    "RunError",
    "SafeGNNError",
    "client_graphs",
    "describe_graph",
    "fetch_data",
    "load_config",
    "load_graph",
    "load_model",
    "preset_names",
    "train",
]

_MODULES = {
    "orchestrator.api": ("Run", "train"),
    "orchestrator.config": ("Config", "load_config", "preset_names"),
    "orchestrator.errors": ("ConfigError", "DataError", "RunError", "SafeGNNError"),
    "orchestrator.graphs": ("Graph", "client_graphs", "describe_graph", "fetch_data", "load_graph"),
    "orchestrator.models.trained": ("load_model",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
