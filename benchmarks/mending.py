"""How much could mending graphs give? FedSage on graphs as they are, and mended with their true missing neighbours.

    python benchmarks/mending.py --data-dir DIR

The second is no method: it gives every client the features of its nodes' neighbours at other clients. No generator of
neighbours can be expected to do better.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean

import numpy as np

from orchestrator.client.host import single_threaded
from orchestrator.config import Config, load_config
from orchestrator.evaluation.group_table import GroupTable
from orchestrator.experiments.tables import Spread
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.graphs.graph import Graph
from orchestrator.methods import create
from orchestrator.methods.fedsage.impairment import mend

PRESETS = ("fedsage-cora-louvain-5", "fedsage-citeseer-louvain-5")


def truly_mended(whole: Graph, part: Graph, nodes: np.ndarray) -> Graph:
    """The client's graph and, once for every edge that leaves it, the node at the other end."""
    position = np.full(whole.num_nodes, -1)
    position[nodes] = np.arange(len(nodes))
    u, v = np.concatenate([whole.edges, whole.edges[::-1]], axis=1)
    leaving = (position[u] >= 0) & (position[v] < 0)
    owners, missing = position[u[leaving]], v[leaving]
    order = np.argsort(owners, kind="stable")
    return mend(part, owners[order], whole.features[missing[order]])


def accuracy(config: Config, truth: bool) -> tuple[float, float]:
    """Test accuracy in the round of the best validation accuracy, and the share of edges between clients."""
    graph = load_graph(config.data, config.seed)
    parts = client_graphs(graph, config.clients, config.seed)
    clients = [create(part, config, c) for c, part in enumerate(parts)]
    if truth:
        for c, client in enumerate(clients):
            client.see(truly_mended(graph, parts[c], parts.nodes(c)))
    model, best, at_best = clients[0].network.initial_parameters(config.seed), -1.0, 0.0
    for _ in range(config.federation.rounds):
        model = model - np.mean([client.train(model).delta for client in clients], axis=0)
        said = [client.evaluate(model, own=False) for client in clients]
        of_clients = [GroupTable(np.stack([tables[mask] for tables in said])).accuracy for mask in ("val", "test")]
        validation, test = (float(np.nanmean(values)) for values in of_clients)
        if validation > best:
            best, at_best = validation, test
    return at_best, 1 - sum(part.num_edges for part in parts) / graph.num_edges


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    single_threaded()
    where = [f"data.dir={arguments.data_dir}"] if arguments.data_dir else []
    print("| preset | edges between clients | as it is | mended with the truth |\n|---|---|---|---|")
    for preset in PRESETS:
        config = load_config([preset], overrides=where)
        cells = []
        for truth in (False, True):
            runs = [accuracy(config.changed(seed=config.seed + k), truth) for k in range(arguments.seeds)]
            cells.append(str(Spread.of([value for value, _ in runs])))
        print(f"| {preset} | {mean(cut for _, cut in runs):.1%} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
