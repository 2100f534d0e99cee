"""What a client owns: the graph type, readers of raw formats, the synthetic generator, partitions."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

import numpy as np

from orchestrator.config import DataConfig
from orchestrator.errors import DataError
from orchestrator.graphs.balance import group_balance
from orchestrator.graphs.describe import client_facts, describe_graph, graph_facts
from orchestrator.graphs.edges import canonical_edges
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
    "client_facts",
    "client_graphs",
    "default_folder",
    "describe_graph",
    "fetch_data",
    "graph_facts",
    "group_balance",
    "load_graph",
    "load_unlabelled",
]


def load_graph(config: DataConfig, seed: int, part: bool = False) -> Graph:
    """The graph that a configuration names, ready for training; see `prepare_graph`.

    Args:
        part: it is one client's own, which may lack a class or a group.

    Raises:
        DataError: files are missing or malformed, or nothing usable is left of them.
    """
    raw = _read(config, seed)
    nodes = config.nodes or ("all" if config.name == "files" else "labelled_component")
    return prepare_graph(raw, nodes, seed, config.scaling, config.split, config.stratified, part)


def load_unlabelled(config: DataConfig, seed: int, features: Collection[str] = ()) -> tuple[Graph, Sequence[Hashable]]:
    """All nodes that a configuration names, as they are to be predicted, and what each is called in the files.

    Labels are not looked at, nor the sensitive attribute where it is no feature; of ``files`` their columns, and those
    of clients and split, may be missing. Features are as they came: a model brings its own scaling.

    Args:
        features: what the model's are called, as far as that is known.

    Raises:
        DataError: files are missing or malformed.
    """
    raw = _read(config, seed, features)
    n = len(raw.labels)
    nothing = np.zeros(n, bool)
    unknown, edges = np.full(n, MISSING, np.int8), canonical_edges(raw.edges, n)
    graph = Graph(raw.features, edges, unknown, None, nothing, nothing, nothing, raw.name, raw.classes, raw.meaning)
    return graph, range(n) if raw.ids is None else raw.ids


def _read(config: DataConfig, seed: int, predicting: Collection[str] | None = None) -> RawGraph:
    """Args: predicting: see `orchestrator.graphs.columns.read_columns`."""
    if config.name == "own":
        raise DataError("data.name = own: the graph is given in Python, train(graph) or train(clients=...)")
    if config.name == "synthetic":
        return generate(config.synthetic, seed)
    if config.name == "files":
        from orchestrator.graphs.own_files import read_files

        assert config.files is not None  # the configuration refuses files without it
        return read_files(config.files, config.dir, predicting).raw
    folder = default_folder(config.name) if config.dir is None else config.dir
    if config.name in ("cora", "citeseer", "pubmed"):
        return read_planetoid(config.name, folder)
    return read_german(folder) if config.name == "german" else read_fair(config.name, folder)
