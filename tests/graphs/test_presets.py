"""The shipped presets are valid, and the synthetic ones have the size they name."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.config import load_config
from orchestrator.graphs import client_graphs, load_graph

SYNTHETIC = ["synthetic", "demo", "synthetic-pokec-n", "synthetic-pokec-z"]


@pytest.mark.parametrize("preset", ["nba", "german", *SYNTHETIC, "synthetic-pokec-z-full"])
@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_valid_under_both_variants(preset, variant):
    """The papers' cohorts of three are theirs, not the presets'."""
    config = load_config([preset, variant])
    assert (config.clients.count, config.federation.cohort) == (30, 3)
    assert load_config([preset]).federation.cohort == 10


@pytest.mark.parametrize("preset", SYNTHETIC)
def test_synthetic_clients_are_of_useful_size(preset):
    config = load_config([preset])
    graph = load_graph(config.data, config.seed)
    clients = client_graphs(graph, config.clients, config.seed)
    assert graph.num_nodes > 0.95 * config.data.synthetic.nodes
    sizes = [client.num_nodes for client in clients]
    assert 20 <= np.median(sizes) <= graph.num_nodes / 2


@pytest.mark.parametrize(("preset", "model"), [("synthetic-pokec-n", "pokec-n"), ("synthetic-pokec-z", "pokec-z")])
def test_the_synthetic_pokec_sets_use_the_paper_hyperparameters(preset, model):
    ours, theirs = load_config([preset]), load_config([model])
    for section in ("seed", "clients", "model", "method", "federation"):
        assert getattr(ours, section) == getattr(theirs, section)


def test_the_large_cohort_is_stateless_and_trains_in_batches():
    config = load_config(["dp-large"])
    assert (config.clients.count, config.federation.cohort, config.federation.rounds) == (10_000, 1_000, 100)
    assert config.clients.batch > 1 and not config.method.stateful
    assert config.privacy.noise_multiplier == 0
