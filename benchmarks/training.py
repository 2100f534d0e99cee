"""Two figures: the wall time of a training on secret shares, and what sharing adds to the same training in plaintext.

    python benchmarks/training.py [--preset synthetic-pokec-n] [--cohort 10] [--rounds 500] [--repeats 3]

Engines alternate, so that a busy machine hits both alike; figures are medians over the repeats, from the reading of
the data to the written model, after one round has brought the libraries into memory. Beside each stands
its floor, measured in the same run: for the training, the dense products of the local epochs alone, spread evenly
over the client processes; for sharing, the exchanges between two processes that do nothing else, the servers' vector
arithmetic, and the sealing and opening of the envelopes.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from statistics import median

from orchestrator.config import Config, load_config
from orchestrator.coordinator.client_pool import warm_up
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.experiments.costs import exchange_sec, median_sec, vector_sec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="synthetic-pokec-n")
    parser.add_argument("--cohort", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        federation = f"federation={{cohort: {arguments.cohort}, rounds: {arguments.rounds}}}"
        config = load_config([arguments.preset], overrides=[federation, f"run.dir={folder}"])
        seconds: dict[str, list[float]] = {"plaintext": [], "embedded": []}
        exchanges = 0
        run(config.changed(federation={"rounds": 1}), "embedded")
        for repeat in range(arguments.repeats):
            for engine, measured in seconds.items():
                started = time.perf_counter()
                exchanges = max(exchanges, run(config, engine))
                measured.append(time.perf_counter() - started)
                print(f"repeat {repeat + 1}, {engine}: {measured[-1]:.1f} s", flush=True)
        report(config, {name: median(values) for name, values in seconds.items()}, exchanges)


def run(config: Config, engine: str) -> int:
    """One training, from start to the written model; returns the exchanges between the servers in a round."""
    warm_up()
    from orchestrator.coordinator.training import train

    own = config.changed(engine={"name": engine})
    folder = RunFolder.create(own)
    train(own, folder)
    return int(folder.costs()[-1]["online_rounds"])


def report(config: Config, seconds: dict[str, float], exchanges: int) -> None:
    from orchestrator.coordinator.training import model_size

    rounds = config.federation.rounds
    training_floor, parameters = rounds * training_floor_sec(config), model_size(config)
    sharing_floor = rounds * sharing_floor_sec(config, parameters, exchanges)
    added = seconds["embedded"] - seconds["plaintext"]
    print(f"\n{rounds} rounds, {config.federation.cohort} of {config.clients.count} clients a round, "
          f"{config.method.local_epochs} local epochs, {parameters} parameters")  # fmt: skip
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    print("| figure | measured | floor | measured / floor |\n|---|---|---|---|")
    for name, value, floor in (
        ("training on secret shares", seconds["embedded"], training_floor + sharing_floor),
        ("the same in plaintext", seconds["plaintext"], training_floor),
        ("added by secret sharing", added, sharing_floor),
    ):
        print(f"| {name} | {value:.1f} s | {floor:.2f} s | {value / floor:.0f} |")
    print(f"\nSecret sharing adds {100 * added / seconds['plaintext']:.0f} % to the wall time.")


def training_floor_sec(config: Config) -> float:
    """Of one round: (A X) W forward and (A X)^T G backward in every epoch of an average client, nothing else."""
    import torch

    from orchestrator.graphs import client_graphs, load_graph

    torch.set_num_threads(1)
    products = []
    for graph in client_graphs(load_graph(config.data, config.seed), config.clients, config.seed):
        features = torch.rand(graph.num_nodes, graph.num_features)
        weights, gradient = torch.rand(graph.num_features, 64), torch.rand(graph.num_nodes, 64)
        products.append(median_sec(lambda x=features, w=weights, g=gradient: (x @ w, x.T @ g)))
    mean = sum(products) / len(products)
    return config.federation.cohort * config.method.local_epochs * mean / config.engine.client_processes


def sharing_floor_sec(config: Config, parameters: int, exchanges: int) -> float:
    """Of one round: its exchanges, its vector arithmetic, and one client's sealing and one server's opening."""
    from orchestrator.wire.envelope import Keypair, seal

    keypair, message = Keypair(), bytes(16 * parameters)
    envelope = seal(message, keypair.public_key)
    sealing = median_sec(lambda: seal(message, keypair.public_key)) + median_sec(lambda: keypair.open(envelope))
    return exchanges * exchange_sec() + vector_sec(config.federation.cohort, parameters) + sealing


if __name__ == "__main__":
    main()
