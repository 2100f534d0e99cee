from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from orchestrator.config import ModelConfig
from orchestrator.errors import RunError
from orchestrator.graphs.graph import Graph
from orchestrator.models import (
    GCN,
    GraphTensors,
    gcn_logits,
    initial_parameters,
    load_model,
    load_vector,
    normalised_adjacency,
    ordered_parameters,
    parameters_to_vector,
    save_model,
)
from orchestrator.seeding import seeded_generator


def make_graph(nodes=25, edges=60, features=7):
    rng = seeded_generator(1, "graph", nodes, edges)
    pairs = np.sort(rng.integers(0, nodes, (2, edges)), axis=0)
    pairs = np.unique(pairs[:, pairs[0] < pairs[1]], axis=1).astype(np.int64).reshape(2, -1)
    none = np.zeros(nodes, bool)
    return Graph(
        features=rng.normal(size=(nodes, features)).astype(np.float32),
        edges=pairs,
        labels=np.zeros(nodes, np.int8),
        sensitive=np.zeros(nodes, np.int8),
        train=none,
        val=none,
        test=none,
    )


def make_model(graph, hidden=64, dropout=0.0, seed=3):
    config = ModelConfig(hidden=hidden, dropout=dropout)
    model = GCN(graph.num_features, config)
    vector = initial_parameters(graph.num_features, config, seed)
    biased = vector + 0.05 * seeded_generator(seed, "biases").normal(size=len(vector))  # biases start at 0
    load_vector(model, biased)
    return model


def layer_by_layer(model, graph):
    """PyG's own forward pass of the same layers on the edge index, both directions of every edge."""
    edges = torch.from_numpy(np.concatenate([graph.edges, graph.edges[::-1]], axis=1))
    hidden = torch.relu(model.conv1(torch.from_numpy(graph.features), edges))
    return model.classifier(model.conv2(hidden, edges))[:, 0]


@pytest.mark.parametrize(("nodes", "edges"), [(25, 60), (1, 0), (5, 0), (2, 40)])
def test_forward_and_gradients_equal_pyg(nodes, edges):
    graph = make_graph(nodes, edges)
    model = make_model(graph)
    targets = torch.linspace(-1, 1, nodes)
    results = []
    for logits in (model(GraphTensors(graph)), layer_by_layer(model, graph)):
        model.zero_grad()
        ((logits - targets) ** 2).sum().backward()
        results.append((logits.detach(), [p.grad.clone() for p in ordered_parameters(model)]))
    (ours, our_gradients), (theirs, their_gradients) = results
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(our_gradients, their_gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


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
    assert initial_parameters(276, ModelConfig(hidden=64), seed=0).shape == (21_953,)


def test_vector_round_trip_and_order():
    graph = make_graph()
    model = GCN(graph.num_features, ModelConfig(hidden=3))
    count = 3 * 7 + 3 + 3 * 3 + 3 + 3 + 1
    vector = np.arange(count, dtype=np.float64)
    load_vector(model, vector)
    np.testing.assert_array_equal(parameters_to_vector(model), vector)
    assert parameters_to_vector(model).dtype == np.float64
    assert model.conv1.lin.weight[1, 0] == 7  # by rows
    assert model.conv1.bias[0] == 21
    assert model.conv2.lin.weight[0, 0] == 24
    assert model.conv2.bias[0] == 33
    assert model.classifier.weight[0, 0] == 36
    assert model.classifier.bias[0] == 39
    assert len(list(model.parameters())) == len(ordered_parameters(model))


@pytest.mark.parametrize("length", [0, 39, 41])
def test_vector_of_another_length_is_refused(length):
    model = GCN(7, ModelConfig(hidden=3))
    with pytest.raises(ValueError, match=r"\(40,\)"):
        load_vector(model, np.zeros(length))


def test_vectors_do_not_alias_the_model():
    model = GCN(7, ModelConfig(hidden=3))
    given = np.ones(40)
    load_vector(model, given)
    taken = parameters_to_vector(model)
    given[:] = 2
    load_vector(model, given)
    assert (taken == 1).all() and (parameters_to_vector(model) == 2).all()


def test_initial_parameters_depend_on_the_seed_alone():
    config = ModelConfig(hidden=4)
    first = initial_parameters(7, config, seed=1)
    torch.rand(5)
    state = torch.get_rng_state()
    np.testing.assert_array_equal(first, initial_parameters(7, config, seed=1))
    assert torch.equal(state, torch.get_rng_state())
    assert (first != initial_parameters(7, config, seed=2)).any()


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.999999])
def test_dropout_zeroes_at_its_rate_and_keeps_the_expectation(rate):
    graph = make_graph(nodes=400, edges=0)
    model = make_model(graph, dropout=rate)
    load_vector(model, np.zeros_like(parameters_to_vector(model)))
    with torch.no_grad():
        model.conv1.bias.fill_(1.0)  # every hidden unit is 1
        model.conv2.lin.weight.copy_(torch.eye(64))
        model.classifier.weight.fill_(1.0)
        logits = model(GraphTensors(graph), seeded_generator(0, "dropout"))
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
    model, tensors = make_model(graph, dropout=0.5), GraphTensors(graph)
    with torch.no_grad():
        plain = model(tensors)
        assert torch.equal(plain, model(tensors))
        noisy = model(tensors, seeded_generator(0, "a"))
        assert torch.equal(noisy, model(tensors, seeded_generator(0, "a")))
        assert not torch.equal(noisy, model(tensors, seeded_generator(0, "b")))
        assert not torch.equal(noisy, plain)


def test_dropout_gradient_is_that_of_the_dropped_network():
    graph = make_graph(nodes=9, edges=10)
    model, tensors = make_model(graph, hidden=5, dropout=0.5), GraphTensors(graph)
    bits = seeded_generator(0, "a").bit_generator.random_raw(12).view(np.uint16)[:45].reshape(9, 5)
    factors = torch.from_numpy((bits >= 2**15) * np.float32(2))
    model(tensors, seeded_generator(0, "a")).sum().backward()
    ours = model.conv1.lin.weight.grad.clone()
    model.zero_grad()
    hidden = torch.relu(F.linear(tensors.propagated, model.conv1.lin.weight, model.conv1.bias)) * factors
    dense = tensors.adjacency.to_dense()
    model.classifier(dense @ hidden @ model.conv2.lin.weight.T + model.conv2.bias).sum().backward()
    torch.testing.assert_close(ours, model.conv1.lin.weight.grad)


def test_saved_model_gives_the_same_logits(tmp_path):
    graph, config = make_graph(), ModelConfig(hidden=5, dropout=0.5)
    parameters = initial_parameters(graph.num_features, config, seed=4)
    save_model(tmp_path / "model.pt", parameters, graph.num_features, config)
    model = load_model(tmp_path / "model.pt")
    np.testing.assert_array_equal(parameters_to_vector(model), parameters)
    expected = GCN(graph.num_features, config)
    load_vector(expected, parameters)
    tensors = GraphTensors(graph)
    assert torch.equal(model(tensors), expected(tensors))
    assert not torch.equal(model(tensors, seeded_generator(0, "a")), expected(tensors))  # dropout is saved too


class Foreign:
    pass


def test_files_that_are_no_models_are_refused_by_name(tmp_path):
    path = tmp_path / "model.pt"
    save_model(path, np.zeros(40), 7, ModelConfig(hidden=3))
    whole = path.read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(RunError, match=r"model\.pt"):
            load_model(path)
    for content in ({}, [1], {"num_features": 7, "model": {"hidden": 3}, "parameters": torch.zeros(3)}, Foreign()):
        torch.save(content, path)
        with pytest.raises(RunError, match=r"model\.pt"):
            load_model(path)
    with pytest.raises(RunError, match="absent"):
        load_model(tmp_path / "absent.pt")


def test_a_model_that_cannot_be_written_is_reported(tmp_path):
    with pytest.raises(RunError, match="nowhere"):
        save_model(tmp_path / "nowhere" / "model.pt", np.zeros(40), 7, ModelConfig(hidden=3))


# Several graphs at once

SIZES = [(25, 60), (1, 0), (6, 0), (40, 90)]


def test_joined_graphs_are_blocks():
    parts = [GraphTensors(make_graph(*size)) for size in SIZES]
    joined = GraphTensors.join(parts)
    assert joined.sizes == [25, 1, 6, 40]
    assert torch.equal(joined.adjacency.to_dense(), torch.block_diag(*(part.adjacency.to_dense() for part in parts)))
    assert torch.equal(joined.propagated, torch.cat([part.propagated for part in parts]))
    assert GraphTensors.join(parts[:1]) is parts[0]


@pytest.mark.parametrize("hidden", [1, 5, 16])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_each_joined_graph_is_under_its_own_parameters(hidden, dropout):
    """Values and gradients are those of every graph by itself, dropout included."""
    parts = [GraphTensors(make_graph(*size)) for size in SIZES]
    joined = GraphTensors.join(parts)
    models = [make_model(make_graph(), hidden, dropout, seed) for seed in range(len(parts))]
    noises = [[seeded_generator(i, "noise") for i in range(len(parts))] for _ in range(2)]
    vectors = torch.tensor(np.stack([parameters_to_vector(model) for model in models]), dtype=torch.float32)
    vectors.requires_grad_()
    together = gcn_logits(vectors, hidden, joined, dropout, noises[0])
    targets = torch.linspace(-1, 1, len(together))
    ((together - targets) ** 2).sum().backward()
    for model, part, noise, block, target, gradient in zip(
        models, parts, noises[1], together.split(joined.sizes), targets.split(joined.sizes), vectors.grad, strict=True
    ):
        alone = model(part, noise)
        ((alone - target) ** 2).sum().backward()
        torch.testing.assert_close(block, alone, rtol=1e-5, atol=1e-6)
        expected = torch.cat([p.grad.reshape(-1) for p in ordered_parameters(model)])
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)
