"""What a client owns: the graph type, readers of raw formats, the synthetic generator, partitions."""

from __future__ import annotations

from orchestrator.config import DataConfig
from orchestrator.errors import DataError
from orchestrator.graphs.balance import group_balance
from orchestrator.graphs.describe import describe_graph, graph_facts
from orchestrator.graphs.fetch import default_folder, fetch_data
from orchestrator.graphs.formats import read_fair, read_german
from orchestrator.graphs.graph import MISSING, Graph
from orchestrator.graphs.partition import client_graphs
from orchestrator.graphs.planetoid import read_planetoid
from orchestrator.graphs.prepare import prepare_graph
from orchestrator.graphs.synthetic import generate
from orchestrator.graphs.tables import RawGraph

__all__ = [
    "MISSING",
    "Graph",
    "client_graphs",
    "default_folder",
    "describe_graph",
    "fetch_data",
    "graph_facts",
    "group_balance",
    "load_graph",
]


def load_graph(config: DataConfig, seed: int) -> Graph:
    """The graph that a configuration names, ready for training; see `prepare_graph`.

    Raises:
        DataError: files are missing or malformed, or nothing usable is left of them.
    """
    nodes = config.nodes or ("all" if config.name == "files" else "labelled_component")
    return prepare_graph(_read(config, seed), nodes, seed, config.features, config.split)


def _read(config: DataConfig, seed: int) -> RawGraph:
    if config.name == "own":
        raise DataError("data.name = own: the graph is given in Python, train(graph) or train(clients=...)")
    if config.name == "synthetic":
        return generate(config.synthetic, seed)
    if config.name == "files":
        from orchestrator.graphs.own_files import read_files

        assert config.files is not None  # the configuration refuses files without it
        return read_files(config.files, config.dir).raw
    folder = default_folder(config.name) if config.dir is None else config.dir
    if config.name in ("cora", "citeseer"):
        return read_planetoid(config.name, folder)
    return read_german(folder) if config.name == "german" else read_fair(config.name, folder)
