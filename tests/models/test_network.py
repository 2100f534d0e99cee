"""What every network must do, whatever its architecture: how its parameters lie in the vector, and how it starts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from orchestrator.config import ModelConfig
from orchestrator.models import NETWORKS, create_network
from orchestrator.models.network import Network, dropout_factors
from orchestrator.seeding import seeded_generator
from tests.models.graphs import make_graph

NAMES = sorted(NETWORKS)


def make_network(name: str, features: int = 7, **settings) -> Network:
    return create_network(features, 2, ModelConfig(name=name, **{"hidden": 3} | settings))


@pytest.mark.parametrize("name", NAMES)
def test_create_follows_the_configuration(name):
    config = ModelConfig(name=name, hidden=5)
    network = create_network(7, 2, config)
    assert type(network) is NETWORKS[name]
    assert (network.num_features, network.classes, network.config) == (7, 2, config)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_lie_in_the_vector_in_order_and_by_rows(name):
    network = make_network(name)
    models = torch.arange(2 * network.size, dtype=torch.float64).view(2, -1)
    parts = network.split(models)
    assert [part.shape for part in parts] == [(2, *shape) for shape in network.shapes.values()]
    for k in (0, 1):
        assert torch.equal(torch.cat([part[k].reshape(-1) for part in parts]), models[k])
    start = 0
    for part, shape in zip(parts, network.shapes.values(), strict=True):
        assert part[0].reshape(-1)[0] == start and part[0].reshape(-1)[-1] == start + math.prod(shape) - 1
        assert len(shape) == 1 or part[0][1 % shape[0], 0] == start + 1 % shape[0] * shape[1]  # by rows
        start += math.prod(shape)
    assert start == network.size


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", [-1, 1])
def test_vectors_of_another_length_are_refused(name, change):
    network = make_network(name)
    with pytest.raises(RuntimeError, match="split"):
        network.split(torch.zeros(1, network.size + change))
    with pytest.raises(RuntimeError, match="split"):
        network.logits(torch.zeros(1, network.size + change), network.tensors(make_graph()))


@pytest.mark.parametrize("name", NAMES)
def test_initial_parameters_depend_on_the_seed_alone(name):
    network = make_network(name, hidden=4)
    first = network.initial_parameters(1)
    assert first.dtype == np.float64 and first.shape == (network.size,)
    torch.rand(5)
    state = torch.get_rng_state()
    np.testing.assert_array_equal(first, network.initial_parameters(1))
    assert torch.equal(state, torch.get_rng_state())
    assert (first != network.initial_parameters(2)).any()
    np.testing.assert_array_equal(first, make_network(name, hidden=4, dropout=0.9).initial_parameters(1))


@pytest.mark.parametrize("name", NAMES)
def test_initial_weights_and_biases_are_of_the_size_of_their_layers(name):
    """A parameter in another's place would have its spread."""
    network = make_network(name, features=40, hidden=30)
    parts = dict(zip(network.shapes, network.split(torch.tensor(network.initial_parameters(5))[None]), strict=True))
    for parameter, part in parts.items():
        _, *shape = part.shape
        if parameter.endswith("bias"):
            assert part.abs().max() <= shape[0] ** -0.5 + 30**-0.5
        else:
            assert 0 < part.abs().max() <= max((6 / sum(shape)) ** 0.5, shape[1] ** -0.5)


@pytest.mark.parametrize("name", NAMES)
def test_logits_alias_neither_the_vector_nor_the_graph(name):
    network, graph = make_network(name, dropout=0.5, neighbours=1), make_graph()
    models = torch.tensor(network.initial_parameters(0), dtype=torch.float32)[None]
    tensors, kept = network.tensors(graph), models.clone()
    first = network.logits(models, tensors)
    network.logits(models, tensors, [seeded_generator(0, "noise")]).add_(1.0)
    first_again = network.logits(models, tensors)
    assert torch.equal(models, kept) and torch.equal(first, first_again)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.999999])
def test_dropout_factors_are_zero_at_their_rate_and_of_mean_one(rate):
    factors = dropout_factors((300, 101), rate, seeded_generator(0, "dropout")).double()
    kept = 1 - min(round(rate * 2**16), 2**16 - 1) / 2**16
    assert factors.shape == (300, 101) and factors.unique().numel() <= 2
    assert abs(factors.mean() - 1) <= 4 * ((1 - kept) / kept / factors.numel()) ** 0.5
    if rate < 0.9:
        torch.testing.assert_close(factors.max(), torch.tensor(1 / kept, dtype=torch.float64))
