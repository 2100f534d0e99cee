"""FedProx: Adam on the loss of the paper, a pull that pins, and no pull that is FedAvg."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from orchestrator.config import Config
from orchestrator.methods import create
from orchestrator.models import create_network
from tests.class_graphs import PygGCN, class_graph

GRAPH = class_graph(120, edges=300)


def config(name="fedprox", **method):
    return Config(
        model={"name": "gcn-classifier", "hidden": 6, "dropout": 0.0},
        method={"name": name, "local_epochs": 4, "learning_rate": 1e-2, "weight_decay": 0.0} | method,
        evaluation={"where": "clients"},
    )


def start(own):
    vector = create_network(GRAPH.num_features, GRAPH.classes, own.model).initial_parameters(0)
    return vector.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("mu", [0.0, 0.5, 20.0])
def test_training_is_that_of_the_papers_equation(mu):
    """h(w) = F(w) + mu / 2 ||w - w^t||^2 (Li et al., 2020, equation 2)."""
    own = config(mu=mu)
    released = start(own)
    found = released - create(GRAPH, own, 0).train(released).delta
    net, anchor = (
        create_network(GRAPH.num_features, GRAPH.classes, own.model),
        torch.tensor(released, dtype=torch.float32),
    )
    w, nodes = anchor.clone().requires_grad_(), torch.from_numpy(np.flatnonzero(GRAPH.train))
    labels = torch.from_numpy(GRAPH.labels.astype(np.int64))
    adam = torch.optim.Adam([w], lr=1e-2)
    for _ in range(4):
        adam.zero_grad()
        loss = F.cross_entropy(PygGCN(net).logits(w, GRAPH)[nodes], labels[nodes])
        (loss + mu / 2 * (w - anchor).square().sum()).backward()
        adam.step()
    np.testing.assert_allclose(found, w.detach().numpy(), atol=2e-5)


def test_a_huge_mu_pins_the_model_and_none_is_fedavg():
    def moved(**method):
        own = config(local_epochs=60, **method)
        return create(GRAPH, own, 0).train(start(own)).delta

    np.testing.assert_array_equal(moved(mu=0.0), moved(name="fedavg"))
    distances = [np.abs(moved(mu=mu)).max() for mu in (0.0, 1.0, 1e4)]
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 0.02 < 0.2 < distances[0]  # Adam's first step is the learning rate, 0.01


def test_clients_in_a_batch_are_each_pulled():
    own, graphs = config(mu=5.0), [class_graph(seed=k) for k in (1, 2)]
    released = start(own)
    together = [create(graph, own, c) for c, graph in enumerate(graphs)]
    for c, update in enumerate(type(together[0]).train_together(together, released)):
        np.testing.assert_allclose(update.delta, create(graphs[c], own, c).train(released).delta, atol=1e-6)
