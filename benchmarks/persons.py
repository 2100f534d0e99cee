"""The table of docs/privacy.md, "Persons": what a cap on memberships costs, and what epsilon a person then has.

python benchmarks/persons.py
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import load_config
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.privacy.statement import calibrate

TARGET = 4.0
CAPS = (None, 8, 4, 2, 1)


def table() -> str:
    """Of the preset dp-large, as a Markdown table; half a minute."""
    config = load_config(["dp-large"], overrides=["privacy.noise_multiplier=1"])
    plan, rounds = plan_of(config).privacy, config.federation.rounds
    assert plan is not None
    at = calibrate(plan, rounds, TARGET)
    graph = load_graph(config.data, config.seed)
    lines = [
        "| cap k | nodes in several clients | memberships of a held node, mean, at most | nodes of a client, median "
        f"| a person's ε, where a client's is {TARGET:g} | σ for a person's ε = {TARGET:g} |",
        "|---|---|---|---|---|---|",
    ]
    for cap in CAPS:
        clients = client_graphs(graph, config.clients.model_copy(update={"max_memberships": cap}), config.seed)
        sizes = [len(clients.nodes(client)) for client in range(len(clients))]
        held = np.bincount(np.concatenate([clients.nodes(client) for client in range(len(clients))]))
        stated = ["none stated", "–"]
        if cap is not None:
            # k times as far: k times the noise
            enough = replace(at.of_persons(cap), noise_multiplier=cap * at.noise_multiplier)
            assert abs((enough.epsilon(rounds) or 0.0) - TARGET) < 1e-3
            stated = [f"{at.of_persons(cap).epsilon(rounds):.2f}", f"{enough.noise_multiplier:.4g}"]
        shape = [f"{(held > 1).sum() / graph.num_nodes:.0%}", f"{held[held > 0].mean():.1f}, {held.max()}"]
        lines.append(f"| {' | '.join(['–' if cap is None else str(cap), *shape, f'{np.median(sizes):g}', *stated])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
