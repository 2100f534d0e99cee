"""PrivFairFL: weights are Kamiran and Calders' of all clients' nodes, summed on shares, whose noise is charged."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from orchestrator.config import load_config
from orchestrator.errors import ConfigError
from orchestrator.evaluation.metrics import Evaluator
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.methods import create
from orchestrator.models import create_network
from tests.training_runs import run

pytestmark = pytest.mark.usefixtures("forkserver")

SMALL = (
    "method={name: privfairfl, local_epochs: 1, weight_decay: 0}",
    "clients.count=3",
    "federation={rounds: 1, cohort: 3}",
)


def test_a_node_weighs_what_would_make_group_and_label_independent(make_graph):
    """One step of Adam has the sign of the gradient, of which the classifier's bias is the vector's last number."""
    graph = make_graph()
    own = load_config(overrides=["method={name: privfairfl, local_epochs: 1, weight_decay: 0}", "model.dropout=0"])
    counts = np.array([[300.0, 20.0], [50.0, 130.0]])
    client = create(graph, own, 0)
    released = create_network(graph.num_features, 2, own.model).initial_parameters(0)
    plain = client.logits(released, own=False)
    client.hear_total("cells", counts.ravel())
    np.testing.assert_array_equal(client.logits(released, own=False), plain)
    s, y = graph.sensitive[graph.train], graph.labels[graph.train]
    n = counts.sum()
    w = np.array([counts[a].sum() / n * counts[:, b].sum() / n / (counts[a, b] / n) for a, b in zip(s, y, strict=True)])
    np.testing.assert_allclose(client.weights.numpy(), w, rtol=1e-6)
    z = Evaluator(graph, own.model).logits(released)[graph.train, 1]
    gradient = (w * (expit(z) - y)).mean()
    assert client.train(released).delta[-1] == pytest.approx(own.method.learning_rate * np.sign(gradient), rel=1e-3)


def test_what_is_summed_on_shares_is_everybodys_counts(tiny, tmp_path):
    """A run is that of clients who were told the true counts."""
    own = tiny(tmp_path, *SMALL, "engine={name: embedded, preprocessing: dealer}")
    _, [result] = run(own, audit=True)
    assert 0 < result.difference <= result.bound
    parts = client_graphs(load_graph(own.data, own.seed), own.clients, own.seed)
    graphs = [part.scaled_to_train() for part in parts]
    counts = np.zeros((2, 2))
    for graph in graphs:
        np.add.at(counts, (graph.sensitive[graph.train], graph.labels[graph.train]), 1)
    released = create_network(graphs[0].num_features, 2, own.model).initial_parameters(own.seed)
    clients = [create(graph, own, c) for c, graph in enumerate(graphs)]
    for client in clients:
        client.hear_total("cells", counts.ravel())
    expected = released - np.mean([client.train(released).delta for client in clients], axis=0)
    np.testing.assert_allclose(result.parameters, expected, atol=1e-5)


def test_noisy_counts_are_part_of_epsilon_and_without_their_noise_none_is_stated(tiny, tmp_path):
    privacy = "privacy={clip_norm: 0.1, noise_multiplier: 5, epsilon_budget: 900}"
    with pytest.raises(ConfigError, match="no epsilon"):
        run(tiny(tmp_path, *SMALL, privacy))
    noisy = run(tiny(tmp_path, *SMALL, privacy, "method.counts_noise=4"))[1][-1].epsilon
    plain = run(tiny(tmp_path, *SMALL[1:], "method.name=fedavg", privacy))[1][-1].epsilon
    assert noisy > plain
