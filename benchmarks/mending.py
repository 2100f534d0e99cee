"""What do mended graphs bring? FedSage on clients' graphs as they are, and mended in three ways.

    python benchmarks/mending.py --data-dir DIR [--graphs cora,citeseer] [--clients 3,5,10] [--seeds 5]

The arms differ in what clients' graphs are mended with before the first round, and in nothing else. ``truth`` is no
method: it shows every client the features of its nodes' neighbours at other clients, which generators have to guess.
``mean`` takes from it how many they are. Each run says its accuracies on standard error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np

from orchestrator.client.host import single_threaded
from orchestrator.config import Config, load_config
from orchestrator.evaluation.group_table import GroupTable
from orchestrator.evaluation.metrics import Evaluator
from orchestrator.experiments.paired import Paired
from orchestrator.experiments.tables import Spread, markdown
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.graphs.graph import Graph
from orchestrator.graphs.partition import Subgraphs
from orchestrator.methods import create
from orchestrator.methods.base import LocalMethod
from orchestrator.methods.fedsage.impairment import mend

ARMS = {
    "none": "nothing: FedSage",
    "mean": "the mean feature",
    "generator": "generated ones: FedSage+",
    "truth": "the truth",
}


class Run(NamedTuple):
    """Test accuracy on the clients' own nodes, mean over the clients, and on the whole graph, each in the round of its
    best validation accuracy; and the share of the edges that lie between clients."""

    clients: float
    whole: float
    cut: float


def missing_neighbours(whole: Graph, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For every edge that leaves a client with these nodes, the end inside, by its place there, and the one outside."""
    position = np.full(whole.num_nodes, -1)
    position[nodes] = np.arange(len(nodes))
    u, v = np.concatenate([whole.edges, whole.edges[::-1]], axis=1)
    leaving = (position[u] >= 0) & (position[v] < 0)
    order = np.argsort(position[u[leaving]], kind="stable")
    return position[u[leaving]][order], v[leaving][order]


def prepare(clients: Sequence[LocalMethod], config: Config) -> None:
    """What clients do together before the first round, their answers added up in plaintext."""
    for step in range(clients[0].preparations(config)):
        questions = {c: client.ask(step) for c, client in enumerate(clients)}
        answers = np.sum([client.answer(step, questions) for client in clients], axis=0)
        for client, heard in zip(clients, np.split(answers, len(clients)), strict=True):
            client.hear(step, heard)


def mended(config: Config, arm: str, graph: Graph, parts: Subgraphs) -> list[LocalMethod]:
    """The clients, who have seen their graphs as this arm mends them."""
    if arm == "generator":
        config = config.changed(method={**config.method.model_dump(), "name": "fedsage+"})
    clients = [create(part, config, c) for c, part in enumerate(parts)]
    if arm == "generator":
        prepare(clients, config)
    for c, client in enumerate(clients):
        owners, missing = missing_neighbours(graph, parts.nodes(c))
        if arm == "mean":
            client.see(mend(parts[c], owners, np.tile(parts[c].features.mean(axis=0), (len(owners), 1))))
        elif arm == "truth":
            client.see(mend(parts[c], owners, graph.features[missing]))
    return clients


def trained(config: Config, arm: str) -> Run:
    graph = load_graph(config.data, config.seed)
    parts = client_graphs(graph, config.clients, config.seed)
    clients, evaluator = mended(config, arm, graph, parts), Evaluator(graph, config.model)
    model = clients[0].network.initial_parameters(config.seed)
    rounds = []
    for _ in range(config.federation.rounds):
        model = model - np.mean([client.train(model).delta for client in clients], axis=0)
        said, whole = [client.evaluate(model, own=False) for client in clients], evaluator.evaluate(model)
        of_clients = [GroupTable(np.stack([tables[mask] for tables in said])).accuracy for mask in ("val", "test")]
        of_graph = [whole[mask].metrics["accuracy"] for mask in ("val", "test")]
        rounds.append(([float(np.nanmean(values)) for values in of_clients], of_graph))
    best = [max(figures, key=lambda figure: figure[0])[1] for figures in zip(*rounds, strict=True)]
    return Run(*best, 1 - sum(part.num_edges for part in parts) / graph.num_edges)


def rows(graph: str, count: int, runs: dict[str, list[Run]]) -> list[dict[str, str]]:
    """One an arm, in points: mean ± standard deviation over the seeds, and the difference to the first arm, paired by
    seed, with its 95 % interval."""
    made = []
    for arm, own in runs.items():
        row = {
            "graph": graph,
            "M": str(count),
            "edges cut": f"{mean(run.cut for run in own):.1%}",
            "mended with": ARMS[arm],
        }
        for name, field in (("clients' nodes", "clients"), ("whole graph", "whole")):
            values, base = ([100 * getattr(run, field) for run in each] for each in (own, runs["none"]))
            row[name] = " ± ".join(f"{value:.1f}" for value in Spread.of(values) if value is not None)
            less = [f"{value:+.1f}" for value in Paired.of(values, base) if value is not None]
            row[f"{name}, less FedSage"] = "" if arm == "none" else f"{less[0]} ({' to '.join(less[1:])})"
        made.append(row)
    return made


def told(graph: Graph, parts: Subgraphs) -> dict[str, str]:
    """What a node says of its neighbours, of those at its own client, to learn from, and of the missing ones.

    ``same class``: how often they have its label. ``class's mean``: the squared distance of their features from the
    mean feature of its class at the client, divided by that from the client's mean feature; 1: nothing.
    """
    found = {}
    for where in ("inside", "missing"):
        alike, pairs, distances = 0, 0, np.zeros(2)
        for c, part in enumerate(parts):
            nodes = parts.nodes(c)
            owners, others = missing_neighbours(graph, nodes)
            if where == "inside":
                owners, others = np.concatenate([part.edges, part.edges[::-1]], axis=1)
                others = nodes[others]
            classes = [part.features[part.labels == part.labels[v]].mean(axis=0) for v in range(part.num_nodes)]
            for k, guess in enumerate((np.stack(classes)[owners], part.features.mean(axis=0))):
                distances[k] += np.square(guess - graph.features[others]).sum()
            alike, pairs = alike + (part.labels[owners] == graph.labels[others]).sum(), pairs + len(owners)
        found[f"same class, {where}"] = f"{alike / pairs:.0%}"
        found[f"class's mean, {where}"] = f"{distances[0] / distances[1]:.3f}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--graphs", default="cora,citeseer")
    parser.add_argument("--clients", default="3,5,10")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    single_threaded()
    where = [f"data.dir={arguments.data_dir}"] if arguments.data_dir else []
    table, learnable = [], []
    for graph in arguments.graphs.split(","):
        for count in map(int, arguments.clients.split(",")):
            sizes = [*where, f"clients.count={count}", f"federation.cohort={count}"]
            config = load_config([f"fedsage-{graph}-louvain-5"], overrides=sizes)
            whole = load_graph(config.data, config.seed)
            learnable.append(
                {"graph": graph, "M": str(count), **told(whole, client_graphs(whole, config.clients, config.seed))}
            )
            runs: dict[str, list[Run]] = {arm: [] for arm in ARMS}
            for seed in range(config.seed, config.seed + arguments.seeds):
                for arm, own in runs.items():
                    own.append(trained(config.changed(seed=seed), arm))
                    print(graph, count, seed, arm, *own[-1], file=sys.stderr, flush=True)
            table += rows(graph, count, runs)
    print(markdown(table), markdown(learnable), sep="\n\n")


if __name__ == "__main__":
    main()
