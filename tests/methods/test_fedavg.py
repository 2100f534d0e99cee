from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from orchestrator.config import Config
from orchestrator.methods import create
from orchestrator.models import create_network


def config(**method):
    return Config(model={"hidden": 8, "dropout": 0.0}, method={"name": "fedavg", "local_epochs": 4} | method)


def test_fedavg_is_plain_adam_from_the_global_model(make_graph):
    graph, settings = make_graph(), config(learning_rate=1e-2, weight_decay=1e-2)
    network = create_network(graph.num_features, graph.classes, settings.model)
    parameters, tensors = network.initial_parameters(0), network.tensors(graph)
    model = torch.zeros(1, network.size, requires_grad=True)
    optimiser = torch.optim.Adam([model], lr=1e-2, weight_decay=1e-2)
    train = torch.from_numpy(graph.train)
    labels = torch.from_numpy(graph.labels).float()
    client = create(graph, settings, 0)
    for _ in range(2):
        model.data = torch.tensor(parameters, dtype=torch.float32)[None]
        for _ in range(4):
            optimiser.zero_grad()
            F.binary_cross_entropy_with_logits(network.logits(model, tensors)[train], labels[train]).backward()
            optimiser.step()
        update = client.train(parameters)
        np.testing.assert_allclose(update.delta, parameters - model.detach()[0].double().numpy(), atol=1e-6)
        assert update.scores == {}


@pytest.mark.parametrize("kind", [{"train": "none"}, {"train": "one class"}, {"nodes": 1, "edges": 0}])
def test_degenerate_clients(make_graph, kind):
    graph, settings = make_graph(**kind), config()
    client = create(graph, settings, 0)
    update = client.train(create_network(graph.num_features, 2, settings.model).initial_parameters(0))
    assert np.isfinite(update.delta).all()
    assert graph.train.any() or (update.delta == 0).all()
