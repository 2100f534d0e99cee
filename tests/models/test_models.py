"""Models on disk: what is saved predicts the same when it is loaded, and nothing else is loaded."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from orchestrator.config import ModelConfig
from orchestrator.models import NETWORKS, create_network
from orchestrator.models.trained import TrainedModel, load_model
from orchestrator.seeding import seeded_generator
from tests.models.graphs import make_graph


def logits(network, parameters, tensors, *noises):
    models = torch.tensor(parameters, dtype=torch.float32)[None]
    return network.logits(models, tensors, [seeded_generator(0, name) for name in noises] or None)


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_saved_model_gives_the_same_logits(tmp_path, name):
    graph, config = make_graph(), ModelConfig(name=name, hidden=5, dropout=0.5)
    network = create_network(graph.num_features, 2, config)
    parameters = network.initial_parameters(4)
    TrainedModel(network, parameters).save(tmp_path / "model.pt")
    loaded, vector = (read := load_model(tmp_path / "model.pt")).network, read.parameters
    assert vector.dtype == np.float64
    np.testing.assert_array_equal(vector, parameters)
    assert type(loaded) is NETWORKS[name]
    assert (loaded.config, loaded.num_features, loaded.classes) == (config, 7, 2)
    ours, theirs = loaded.tensors(graph), network.tensors(graph)
    assert torch.equal(logits(loaded, vector, ours), logits(network, parameters, theirs))
    noisy = logits(loaded, vector, ours, "a")
    assert torch.equal(noisy, logits(network, parameters, theirs, "a"))
    assert not torch.equal(noisy, logits(network, parameters, theirs))  # dropout is saved too


@pytest.mark.parametrize("name", ["gcn-classifier", "sage"])
def test_the_number_of_classes_is_saved(tmp_path, name):
    network = create_network(7, 5, ModelConfig(name=name, hidden=3))
    TrainedModel(network, np.arange(network.size) / 3).save(tmp_path / "model.pt")
    loaded = load_model(tmp_path / "model.pt")
    assert loaded.network.classes == 5 and loaded.network.shapes == network.shapes
    np.testing.assert_array_equal(loaded.parameters, np.arange(network.size) / 3)
