"""What FairDual adds to a release: shares that never change, for whoever knows the cohorts to solve for."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.config import Config
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.methods.fairdual import Ledger

CLIENTS, COHORT, ROUNDS = 8, 4, 16


def _released(tmp_path, noise):
    privacy = {"noise_multiplier": 0.05, "clip_norm": 5.0, "sensitivity": "bounded_weights"} if noise else {}
    config = Config(
        data={"scaling": "pooled", "synthetic": {"nodes": 300, "edges": 500, "features": 4}},
        clients={"count": CLIENTS, "hops": 1},
        model={"hidden": 4, "dropout": 0.0},
        method={"name": "fairdual", "local_epochs": 1, "measured": "train"},
        federation={"rounds": ROUNDS, "cohort": COHORT},
        engine={"name": "plaintext"},
        privacy=privacy,
        evaluation={"exact_beside_noise": True},
        run={"dir": tmp_path, "checkpoint_rounds": 100},
    )
    results = []
    train(config, RunFolder.create(config), observe=results.append)
    parts = client_graphs(load_graph(config.data, config.seed), config.clients, config.seed)
    return config.method.rate, results, [part.sensitive[part.train].mean() for part in parts]


@pytest.mark.parametrize("noise", [False, True])
def test_shares_of_each_client_follow_from_releases_and_cohorts_unless_there_is_noise(tmp_path, noise):
    """Linear equations, one a round: the mean over its cohort of each client's share of group 1."""
    rate, results, truth = _released(tmp_path, noise)
    before, equations, means = np.zeros(Ledger.SIZE), np.zeros((ROUNDS, CLIENTS)), np.zeros(ROUNDS)
    for row, result in enumerate(results):
        after = result.parameters[-Ledger.SIZE :]
        means[row] = Ledger.of(before + (after - before) / rate).shares[0, 1]
        equations[row, result.cohort] = 1 / COHORT
        before = after
    assert np.linalg.matrix_rank(equations) == CLIENTS
    found = np.linalg.lstsq(equations, means, rcond=None)[0]
    error = np.abs(found - truth).max()
    assert error > 0.1 if noise else error < 1e-6, error
