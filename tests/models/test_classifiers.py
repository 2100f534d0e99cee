"""FED-PUB's GCN and FedSage's GraphSAGE against PyTorch Geometric's own layers, and how neighbours are sampled."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import nn
from torch_geometric.nn import GCNConv, SAGEConv

from orchestrator.config import ModelConfig
from orchestrator.models import create_network
from orchestrator.models.classifiers import Neighbourhoods
from orchestrator.models.network import dropout_factors
from orchestrator.models.trained import TrainedModel, load_model
from tests.class_graphs import PygGCN, class_graph, edge_index, parts

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = ["gcn-classifier", "sage"]
NODES = 12
PAIRS = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=30)


def network(name, features=8, classes=3, **model):
    return create_network(features, classes, ModelConfig(name=name, **({"hidden": 5, "dropout": 0.0} | model)))


def models(net, count=1):
    """Random parameters, biases included, float32, shape (count, d)."""
    return torch.from_numpy(np.random.default_rng(count).normal(scale=0.5, size=(count, net.size))).float()


def sources(count=1, first=0):
    return [np.random.default_rng(first + k) for k in range(count)]


class PygSage:
    """GraphSAGE out of PyTorch Geometric's layers."""

    def __init__(self, net):
        self.network = net
        hidden = net.config.hidden
        self._layers = SAGEConv(net.num_features, hidden), SAGEConv(hidden, net.classes)

    def logits(self, vector, graph, links=None):
        own = parts(self.network, vector)
        rows = torch.from_numpy(graph.features)
        for k, (layer, link) in enumerate(zip(self._layers, links or [edge_index(graph)] * 2, strict=True), 1):
            values = {
                "lin_r.weight": own[f"layer{k}.own"],
                "lin_l.weight": own[f"layer{k}.neighbours"],
                "lin_l.bias": own[f"layer{k}.bias"],
            }
            rows = torch.func.functional_call(layer, values, (rows, link))
            rows = rows.relu() if k == 1 else rows
        return rows


ORACLES = {"gcn-classifier": PygGCN, "sage": PygSage}


def of_pairs(pairs, nodes=NODES, seed=0):
    return class_graph(nodes, seed=seed, pairs=np.array(pairs, np.int64).reshape(-1, 2).T)


# Values and gradients


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(st.lists(PAIRS, min_size=1, max_size=3))
def test_logits_and_gradients_are_pygs_for_each_client_under_its_own_parameters(name, clients):
    net = network(name)
    graphs = [of_pairs(pairs, seed=k) for k, pairs in enumerate(clients)]
    vectors, oracle = models(net, len(graphs)).requires_grad_(), ORACLES[name](net)
    logits = net.logits(vectors, net.join([net.tensors(graph) for graph in graphs]))
    expected = torch.cat([oracle.logits(vector, graph) for vector, graph in zip(vectors, graphs, strict=True)])
    assert logits.shape == (NODES * len(graphs), 3)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
    targets = net.targets(np.concatenate([graph.labels for graph in graphs]))
    found, wanted = (torch.autograd.grad(F.cross_entropy(z, targets), vectors)[0] for z in (logits, expected))
    assert found.abs().max() > 0
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("nodes", [1, 2, 40])
def test_graphs_without_edges_and_of_one_node(name, nodes):
    net, graph = network(name), of_pairs([], nodes)
    vectors = models(net)
    torch.testing.assert_close(
        net.logits(vectors, net.tensors(graph)), ORACLES[name](net).logits(vectors[0], graph), rtol=1e-4, atol=1e-5
    )


def test_a_node_without_neighbours_has_a_mean_of_zero():
    """Whatever the weights of neighbours are."""
    net, graph = network("sage"), of_pairs([(0, 1)])
    vectors = models(net)
    other = torch.cat(
        [(part + 1 if "neighbours" in name else part).ravel() for name, part in parts(net, vectors[0]).items()]
    )
    first, second = (net.logits(v[None], net.tensors(graph)) for v in (vectors[0], other))
    assert torch.equal(first[2:], second[2:]) and (first[:2] != second[:2]).all()


def test_embeddings_are_the_second_layers_output_before_its_nonlinearity():
    net, graph = network("gcn-classifier", dropout=0.7), class_graph(30)
    [vector] = models(net)
    found = net.embeddings(vector, net.tensors(graph))
    assert found.shape == (30, 5) and found.min() < 0
    torch.testing.assert_close(found, PygGCN(net).embeddings(vector, graph), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_joined_graphs_give_what_each_gives_alone(name):
    """Bit by bit, with noise of their own: clients share no arithmetic."""
    net = network(name, dropout=0.5, neighbours=2)
    graphs = [class_graph(20, seed=1), of_pairs([], 4), class_graph(33, seed=2)]
    vectors, tensors = models(net, 3), [net.tensors(graph) for graph in graphs]
    together = net.logits(vectors, net.join(tensors), sources(3)).split([20, 4, 33])
    for k, rows in enumerate(together):
        assert torch.equal(rows, net.logits(vectors[k : k + 1], tensors[k], sources(1, k)))


@pytest.mark.parametrize("name", NAMES)
def test_predictions_are_the_largest_logits_class_and_the_loss_is_cross_entropy(name):
    net = network(name, classes=4)
    logits = torch.tensor([[0.0, 3.0, 1.0, 2.0], [-1.0, -2.0, -3.0, -0.5], [5.0, 4.0, 3.0, 2.0]])
    assert net.predictions(logits).tolist() == [1, 3, 0]
    labels = np.array([1, 0, 3], np.int8)
    rows = logits.numpy().astype(float)
    expected = np.mean([np.log(np.exp(row).sum()) - row[label] for row, label in zip(rows, labels, strict=True)])
    assert float(net.loss(logits, net.targets(labels))) == pytest.approx(expected, rel=1e-6)


# Dropout and sampling


@pytest.mark.parametrize("name", NAMES)
def test_dropout_is_on_exactly_with_noise(name):
    graph, vectors = class_graph(40), models(network(name))
    nets = {rate: network(name, dropout=rate, neighbours=None) for rate in (0.0, 0.5)}
    predicted, noiseless, trained, again, other = (
        net.logits(vectors, net.tensors(graph), noise)
        for net, noise in [
            (nets[0.5], None),
            (nets[0.0], sources()),
            (nets[0.5], sources()),
            (nets[0.5], sources()),
            (nets[0.5], sources(first=1)),
        ]
    )
    assert torch.equal(predicted, noiseless)
    assert torch.equal(trained, again)
    assert (trained != predicted).any() and (trained != other).any()


def test_dropout_stands_behind_both_nonlinearities():
    net, graph = network("gcn-classifier", dropout=0.4), class_graph(40)
    [vector], noise = models(net), sources()[0]
    factors = [dropout_factors((40, 5), 0.4, noise) for _ in range(2)]
    expected = PygGCN(net).logits(vector, graph, factors)
    torch.testing.assert_close(net.logits(vector[None], net.tensors(graph), sources()), expected, rtol=1e-4, atol=1e-5)


def drawn(tensors, limit, noise):
    """(node, neighbour) pairs."""
    neighbours, nodes = tensors.edges(limit, noise)
    return list(zip(nodes.tolist(), neighbours.tolist(), strict=True))


@settings(max_examples=60, deadline=None)
@given(PAIRS, st.integers(1, 6), st.integers(0, 2**32))
def test_a_sample_is_a_subset_of_true_neighbours_and_all_of_them_where_they_are_fewer(pairs, limit, seed):
    graph = of_pairs(pairs)
    true = {v: set() for v in range(NODES)}
    for u, v in graph.edges.T.tolist():
        true[u].add(v)
        true[v].add(u)
    sample = drawn(Neighbourhoods(graph), limit, np.random.default_rng(seed))
    assert len(set(sample)) == len(sample)
    for v in range(NODES):
        chosen = {u for node, u in sample if node == v}
        assert chosen <= true[v] and len(chosen) == min(limit, len(true[v]))


def test_predictions_and_an_open_limit_take_all_neighbours():
    graph = class_graph(40, edges=300)
    tensors = Neighbourhoods(graph)
    every = sorted(map(tuple, edge_index(graph).T.tolist()))
    assert sorted(drawn(tensors, 1, None)) == sorted(drawn(tensors, None, sources()[0])) == every
    vectors = models(network("sage"))
    few, all_ = (network("sage", neighbours=limit) for limit in (1, None))
    assert torch.equal(few.logits(vectors, tensors), all_.logits(vectors, tensors))
    assert (few.logits(vectors, tensors, sources()) != all_.logits(vectors, tensors, sources())).any()


def test_every_set_of_neighbours_is_as_likely():
    """Of a node with six neighbours, two are drawn; so do nodes with other degrees, which must not interfere."""
    star = [(3, u) for u in (0, 1, 2, 5, 7, 9)] + [(0, 1), (0, 2), (10, 11)]
    tensors, noise = Neighbourhoods(of_pairs(star)), sources()[0]
    counts = dict.fromkeys(combinations((0, 1, 2, 5, 7, 9), 2), 0)
    for _ in range(3000):
        counts[tuple(sorted(u for v, u in drawn(tensors, 2, noise) if v == 3))] += 1
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_each_layer_samples_anew_and_computes_pygs_layer_on_its_sample(monkeypatch):
    net, graph = network("sage", neighbours=2), class_graph(40, edges=200)
    tensors, seen, honest = net.tensors(graph), [], Neighbourhoods.edges

    def watched(self, limit, noise):
        seen.append(honest(self, limit, noise))
        return seen[-1]

    monkeypatch.setattr(Neighbourhoods, "edges", watched)
    [vector] = models(net)
    logits = net.logits(vector[None], tensors, sources())
    first, second = (torch.stack(pair) for pair in seen)
    assert not torch.equal(first, second)
    torch.testing.assert_close(logits, PygSage(net).logits(vector, graph, [first, second]), rtol=1e-4, atol=1e-5)


# Parameters


@pytest.mark.parametrize(("name", "size"), [("gcn-classifier", 200_967), ("sage", 368_775)])
def test_as_many_parameters_as_pygs_layers_on_cora(name, size):
    net = network(name, features=1433, classes=7, hidden=128)
    layers = {
        "gcn-classifier": [GCNConv(1433, 128), GCNConv(128, 128), nn.Linear(128, 7)],
        "sage": [SAGEConv(1433, 128), SAGEConv(128, 7)],
    }[name]
    assert net.size == size == sum(p.numel() for layer in layers for p in layer.parameters())
    assert net.initial_parameters(0).shape == (size,)


@pytest.mark.parametrize("name", NAMES)
def test_initial_parameters_are_pygs_and_follow_the_seed_alone(name):
    net = network(name, features=300, hidden=100)
    start = net.initial_parameters(1)
    torch.rand(5)
    np.testing.assert_array_equal(start, net.initial_parameters(1))
    assert (start != net.initial_parameters(2)).any()
    own = parts(net, torch.from_numpy(start))
    layer = GCNConv(300, 100) if name == "gcn-classifier" else SAGEConv(300, 100)
    pairs = (
        [("layer1.weight", layer.lin.weight), ("layer1.bias", layer.bias)]
        if name == "gcn-classifier"
        else [
            ("layer1.own", layer.lin_r.weight),
            ("layer1.neighbours", layer.lin_l.weight),
            ("layer1.bias", layer.lin_l.bias),
        ]
    )
    for key, drawn_by_pyg in pairs:
        assert own[key].shape == drawn_by_pyg.shape
        if drawn_by_pyg.numel() > 1000:  # of 30,000 numbers the range is known to a percent
            assert own[key].abs().max().item() == pytest.approx(drawn_by_pyg.abs().max().item(), rel=0.01)
            assert own[key].std().item() == pytest.approx(drawn_by_pyg.std().item(), rel=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_model_needs_nothing_else(name, tmp_path):
    net, graph = network(name, neighbours=3), class_graph(20)
    vector = net.initial_parameters(3)
    TrainedModel(net, vector).save(tmp_path / "model.pt")
    loaded, again = (read := load_model(tmp_path / "model.pt")).network, read.parameters
    np.testing.assert_array_equal(vector, again)
    both = [n.logits(torch.tensor(vector).float()[None], n.tensors(graph)) for n in (net, loaded)]
    assert torch.equal(*both) and loaded.config == net.config
