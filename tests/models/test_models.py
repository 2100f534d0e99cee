"""Models on disk: what is saved predicts the same when it is loaded, and nothing else is loaded."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from orchestrator.config import ModelConfig
from orchestrator.errors import RunError
from orchestrator.models import NETWORKS, create_network, load_model, save_model
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
    save_model(tmp_path / "model.pt", network, parameters)
    loaded, vector = load_model(tmp_path / "model.pt")
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
    save_model(tmp_path / "model.pt", network, np.arange(network.size) / 3)
    loaded, vector = load_model(tmp_path / "model.pt")
    assert loaded.classes == 5 and loaded.shapes == network.shapes
    np.testing.assert_array_equal(vector, np.arange(network.size) / 3)


class Foreign:
    pass


SMALL = {"num_features": 7, "classes": 2, "model": {"hidden": 3}}


def test_files_that_are_no_models_are_refused_by_name(tmp_path):
    path = tmp_path / "model.pt"
    save_model(path, create_network(7, 2, ModelConfig(hidden=3)), np.zeros(40))
    whole = path.read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(RunError, match=r"model\.pt"):
            load_model(path)
    torch.save({**SMALL, "parameters": torch.zeros(40, dtype=torch.float64)}, path)
    load_model(path)  # what the following lack something of
    for content in (
        {},
        [1],
        {**SMALL, "parameters": torch.zeros(3)},
        {**SMALL, "parameters": torch.zeros(1, 40)},
        {**SMALL, "parameters": ["a"] * 40},
        {**SMALL, "parameters": None},
        {**SMALL, "classes": 3, "parameters": torch.zeros(40)},
        {**SMALL, "model": {"hidden": 3, "name": "transformer"}, "parameters": torch.zeros(40)},
        Foreign(),
    ):
        torch.save(content, path)
        with pytest.raises(RunError, match=r"model\.pt") as caught:
            load_model(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(RunError, match="absent"):
        load_model(tmp_path / "absent.pt")


def test_a_model_that_cannot_be_written_is_reported(tmp_path):
    with pytest.raises(RunError, match="nowhere"):
        save_model(tmp_path / "nowhere" / "model.pt", create_network(7, 2, ModelConfig(hidden=3)), np.zeros(40))
