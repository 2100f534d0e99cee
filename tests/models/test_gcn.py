"""The GCN for many clients at once: values and gradients are those of PyG's own layers, graph by graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GCNConv

from orchestrator.config import ModelConfig
from orchestrator.errors import ConfigError
from orchestrator.models.gcn import GCN, GraphTensors, blocks, normalised_adjacency
from orchestrator.seeding import seeded_generator
from tests.models.graphs import make_graph


def make_model(graph, hidden=64, dropout=0.0, seed=3):
    """A network and a vector for it, float32, shape (1, d), that wants a gradient."""
    network = GCN(graph.num_features, 2, ModelConfig(hidden=hidden, dropout=dropout))
    vector = network.initial_parameters(seed)
    biased = vector + 0.05 * seeded_generator(seed, "biases").normal(size=len(vector))  # biases start at 0
    return network, torch.tensor(biased, dtype=torch.float32)[None].requires_grad_()


class Layers(nn.Module):
    """PyG's own layers with the parameters of a vector, float32 (d,)."""

    def __init__(self, features, hidden, vector):
        super().__init__()
        self.conv1, self.conv2 = GCNConv(features, hidden), GCNConv(hidden, hidden)
        self.classifier = nn.Linear(hidden, 1)
        self.ordered = [
            self.conv1.lin.weight,
            self.conv1.bias,
            self.conv2.lin.weight,
            self.conv2.bias,
            self.classifier.weight,
            self.classifier.bias,
        ]
        assert len(list(self.parameters())) == len(self.ordered)
        assert sum(parameter.numel() for parameter in self.ordered) == len(vector)
        start = 0
        with torch.no_grad():
            for parameter in self.ordered:
                parameter.copy_(vector[start : start + parameter.numel()].view_as(parameter))
                start += parameter.numel()

    def forward(self, graph):
        """On the edge index, both directions of every edge."""
        edges = torch.from_numpy(np.concatenate([graph.edges, graph.edges[::-1]], axis=1))
        hidden = torch.relu(self.conv1(torch.from_numpy(graph.features), edges))
        return self.classifier(self.conv2(hidden, edges))[:, 0]

    def gradient(self):
        return torch.cat([parameter.grad.reshape(-1) for parameter in self.ordered])


@pytest.mark.parametrize(("nodes", "edges"), [(25, 60), (1, 0), (5, 0), (2, 40)])
def test_forward_and_gradients_equal_pyg(nodes, edges):
    graph = make_graph(nodes, edges)
    network, models = make_model(graph)
    layers = Layers(graph.num_features, 64, models[0].detach())
    targets = torch.linspace(-1, 1, nodes)
    ours, theirs = network.logits(models, network.tensors(graph)), layers(graph)
    for logits in (ours, theirs):
        ((logits - targets) ** 2).sum().backward()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(models.grad[0], layers.gradient(), rtol=1e-4, atol=1e-4)


def test_normalised_adjacency_is_the_textbook_formula():
    graph = make_graph()
    dense = np.eye(graph.num_nodes)
    dense[graph.edges[0], graph.edges[1]] = dense[graph.edges[1], graph.edges[0]] = 1
    scale = np.diag(dense.sum(1) ** -0.5)
    ours = normalised_adjacency(graph)
    np.testing.assert_allclose(ours.toarray(), scale @ dense @ scale, rtol=1e-6)
    assert ours.dtype == np.float32 and (ours != ours.T).nnz == 0


def test_first_propagation_is_adjacency_times_features():
    graph = make_graph()
    tensors = GraphTensors(graph)
    expected = normalised_adjacency(graph).toarray() @ graph.features
    np.testing.assert_allclose(tensors.propagated.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_propagation_gradient_matches_finite_differences():
    tensors = GraphTensors(make_graph(nodes=6, edges=9))
    tensors.adjacency = tensors.adjacency.double()
    values = torch.linspace(-1, 1, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(tensors.propagate, (values,))


def test_parameter_count_of_the_paper():
    network = GCN(276, 2, ModelConfig(hidden=64))
    assert network.size == 21_953
    assert network.initial_parameters(0).shape == (21_953,)


def test_parameters_stand_in_the_documented_order():
    network = GCN(7, 2, ModelConfig(hidden=3))
    assert network.size == 3 * 7 + 3 + 3 * 3 + 3 + 3 + 1
    layers = Layers(7, 3, torch.arange(network.size, dtype=torch.float32))
    weight1, bias1, weight2, bias2, readout, constant = network.split(torch.arange(float(network.size))[None])
    assert torch.equal(weight1[0], layers.conv1.lin.weight) and weight1[0, 1, 0] == 7  # by rows
    assert torch.equal(bias1[0], layers.conv1.bias) and bias1[0, 0] == 21
    assert torch.equal(weight2[0], layers.conv2.lin.weight) and weight2[0, 0, 0] == 24
    assert torch.equal(bias2[0], layers.conv2.bias) and bias2[0, 0] == 33
    assert torch.equal(readout[0], layers.classifier.weight) and readout[0, 0, 0] == 36
    assert torch.equal(constant[0], layers.classifier.bias) and constant[0, 0] == 39


def test_it_starts_as_pygs_layers_do():
    """Glorot's weights, biases of zero, and torch's linear layer as classifier."""
    network = GCN(40, 2, ModelConfig(hidden=30))
    parts = network.split(torch.tensor(network.initial_parameters(5))[None])
    for weight, bound in ((parts[0], (6 / 70) ** 0.5), (parts[2], (6 / 60) ** 0.5), (parts[4], 30**-0.5)):
        assert 0.9 * bound < weight.abs().max() <= bound
    assert not parts[1].any() and not parts[3].any() and 0 < parts[5].abs() <= 30**-0.5


@pytest.mark.parametrize("classes", [1, 3])
def test_it_has_one_logit_and_says_so(classes):
    with pytest.raises(ConfigError, match=f"one logit, but the data have {classes} classes; choose gcn-classifier"):
        GCN(7, classes, ModelConfig())


def test_the_loss_is_the_mean_cross_entropy_and_predictions_are_its_signs():
    network = GCN(7, 2, ModelConfig(hidden=3))
    logits, labels = torch.tensor([2.0, -1.0, 0.0, 3.0]), np.array([1, 0, 1, 0], np.int8)
    p = 1 / (1 + np.exp(-logits.double().numpy()))
    expected = -np.mean(np.log(np.where(labels == 1, p, 1 - p)))
    assert float(network.loss(logits, network.targets(labels))) == pytest.approx(expected, rel=1e-6)
    predictions = network.predictions(logits)
    assert predictions.tolist() == [1, 0, 0, 1] and predictions.dtype == np.int64


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.999999])
def test_dropout_zeroes_at_its_rate_and_keeps_the_expectation(rate):
    graph = make_graph(nodes=400, edges=0)
    network = GCN(graph.num_features, 2, ModelConfig(hidden=64, dropout=rate))
    models = torch.zeros(1, network.size)
    _, bias1, weight2, _, readout, _ = network.split(models)
    bias1.fill_(1.0)  # every hidden unit is 1
    weight2.copy_(torch.eye(64))
    readout.fill_(1.0)
    logits = network.logits(models, network.tensors(graph), [seeded_generator(0, "dropout")])
    units = 400 * 64
    kept = 1 - min(round(rate * 2**16), 2**16 - 1) / 2**16
    expected_spread = np.sqrt((1 - kept) / kept / units)
    assert abs(float(logits.sum()) / units - 1) < 4 * expected_spread
    if rate < 0.9:
        per_unit = 1 / kept
        hits = logits.numpy() / per_unit
        np.testing.assert_allclose(hits, np.round(hits), atol=1e-3)


def test_dropout_is_on_exactly_when_noise_is_given():
    graph = make_graph()
    network, models = make_model(graph, dropout=0.5)
    tensors = network.tensors(graph)

    def logits(*names):
        with torch.no_grad():
            return network.logits(models, tensors, [seeded_generator(0, name) for name in names] or None)

    plain, noisy = logits(), logits("a")
    assert torch.equal(plain, logits())
    assert torch.equal(noisy, logits("a"))
    assert not torch.equal(noisy, logits("b"))
    assert not torch.equal(noisy, plain)


def test_dropout_gradient_is_that_of_the_dropped_network():
    graph = make_graph(nodes=9, edges=10)
    network, models = make_model(graph, hidden=5, dropout=0.5)
    tensors = network.tensors(graph)
    bits = seeded_generator(0, "a").bit_generator.random_raw(12).view(np.uint16)[:45].reshape(9, 5)
    factors = torch.from_numpy((bits >= 2**15) * np.float32(2))
    network.logits(models, tensors, [seeded_generator(0, "a")]).sum().backward()
    layers = Layers(graph.num_features, 5, models[0].detach())
    hidden = torch.relu(F.linear(tensors.propagated, layers.conv1.lin.weight, layers.conv1.bias)) * factors
    dense = tensors.adjacency.to_dense()
    layers.classifier(dense @ hidden @ layers.conv2.lin.weight.T + layers.conv2.bias).sum().backward()
    torch.testing.assert_close(models.grad[0], layers.gradient())


# Several graphs at once

SIZES = [(25, 60), (1, 0), (6, 0), (40, 90)]


def test_joined_graphs_are_blocks():
    parts = [GraphTensors(make_graph(*size)) for size in SIZES]
    joined = GraphTensors.join(parts)
    assert joined.sizes == [25, 1, 6, 40]
    assert torch.equal(joined.adjacency.to_dense(), torch.block_diag(*(part.adjacency.to_dense() for part in parts)))
    assert torch.equal(joined.propagated, torch.cat([part.propagated for part in parts]))
    assert GraphTensors.join(parts[:1]) is parts[0]
    again = GCN(7, 2, ModelConfig()).join(parts)
    assert torch.equal(again.adjacency.to_dense(), joined.adjacency.to_dense()) and again.sizes == joined.sizes


def test_blocks_stand_one_below_the_other():
    x = torch.arange(6.0)
    assert [block.tolist() for block in blocks(x, [2, 1, 3])] == [[0, 1], [2], [3, 4, 5]]
    assert blocks(x, [6])[0] is x


@pytest.mark.parametrize("hidden", [1, 5, 16])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_each_joined_graph_is_under_its_own_parameters(hidden, dropout):
    """Values and gradients are those of every graph by itself, dropout included."""
    graphs = [make_graph(*size) for size in SIZES]
    networks, models = zip(
        *(make_model(graph, hidden, dropout, seed) for seed, graph in enumerate(graphs)), strict=True
    )
    parts = [network.tensors(graph) for network, graph in zip(networks, graphs, strict=True)]
    joined = networks[0].join(parts)
    noises = [[seeded_generator(i, "noise") for i in range(len(parts))] for _ in range(2)]
    vectors = torch.cat([model.detach() for model in models]).requires_grad_()
    together = networks[0].logits(vectors, joined, noises[0])
    targets = torch.linspace(-1, 1, len(together))
    ((together - targets) ** 2).sum().backward()
    for network, model, part, noise, block, target, gradient in zip(
        networks,
        models,
        parts,
        noises[1],
        together.split(joined.sizes),
        targets.split(joined.sizes),
        vectors.grad,
        strict=True,
    ):
        alone = network.logits(model, part, [noise])
        ((alone - target) ** 2).sum().backward()
        torch.testing.assert_close(block, alone, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradient, model.grad[0], rtol=1e-4, atol=1e-5)


def test_joined_graphs_equal_pyg():
    graphs = [make_graph(*size) for size in SIZES]
    networks, models = zip(*(make_model(graph, 5, 0.0, seed) for seed, graph in enumerate(graphs)), strict=True)
    joined = networks[0].join([networks[0].tensors(graph) for graph in graphs])
    together = networks[0].logits(torch.cat(models), joined)
    for graph, model, block in zip(graphs, models, blocks(together, joined.sizes), strict=True):
        theirs = Layers(graph.num_features, 5, model[0].detach())(graph)
        torch.testing.assert_close(block, theirs, rtol=1e-5, atol=1e-5)
