"""An ordinary module as a network: the same numbers as the built-in ones, and what is refused."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GCNConv, SAGEConv

from orchestrator.config import ModelConfig
from orchestrator.errors import ConfigError, RunError
from orchestrator.models import NETWORKS, OwnModule, create_network, own_network
from orchestrator.models.trained import TrainedModel, load_model
from tests.class_graphs import class_graph, edge_index, parts

OWN = ModelConfig(name="own")


class Classifier(nn.Module):
    """The layers of gcn-classifier, without dropout."""

    def __init__(self, in_features, out_features, hidden=6):
        super().__init__()
        self.layer1, self.layer2 = GCNConv(in_features, hidden), GCNConv(hidden, hidden)
        self.classifier = nn.Linear(hidden, out_features)

    def forward(self, x, edge_index):
        rows = self.layer1(x, edge_index).relu()
        return self.classifier(self.layer2(rows, edge_index).relu())


class OneLogit(nn.Module):
    """The layers of gcn, without dropout."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.layer1, self.layer2 = GCNConv(in_features, 6), GCNConv(6, 6)
        self.classifier = nn.Linear(6, 1)

    def forward(self, x, edge_index):
        rows = self.layer1(x, edge_index).relu()
        return self.classifier(self.layer2(rows, edge_index)).squeeze(1)


class Plain(nn.Module):
    """A linear layer, to be varied."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.layer = nn.Linear(in_features, out_features)

    def forward(self, x, edge_index):
        return self.layer(x)


def own(factory, classes=3, features=8):
    return OwnModule(factory)(features, classes, OWN)


def places_of(ours, theirs) -> np.ndarray:
    """Where each number of the built-in network's vector stands in that of its layers, whose biases come first."""
    named = {name.replace(".lin", ""): place for name, place in parts(ours, torch.arange(ours.size)).items()}
    return torch.cat([named[name].reshape(-1) for name in theirs.shapes]).numpy()


@pytest.mark.parametrize(
    ("name", "factory", "classes"), [("gcn-classifier", Classifier, 3), ("gcn", OneLogit, 2)], ids=["three", "two"]
)
def test_the_layers_of_a_built_in_network_are_that_network(name, factory, classes):
    graph = class_graph(classes=classes)
    ours, theirs = own(factory, classes), create_network(8, classes, ModelConfig(name=name, hidden=6, dropout=0.0))
    places = places_of(ours, theirs)
    vector = ours.initial_parameters(5)
    np.testing.assert_array_equal(vector[places], theirs.initial_parameters(5))
    models = torch.tensor(np.stack([vector, -vector]), dtype=torch.float32, requires_grad=True)
    gradients = []
    for network, vectors in ((ours, models), (theirs, models[:, places])):
        logits = network.logits(vectors, network.join([network.tensors(graph), network.tensors(class_graph(40))]))
        labels = network.targets(np.concatenate([graph.labels, np.arange(40, dtype=np.int8) % 2]))
        gradients.append(torch.autograd.grad(network.loss(logits, labels), models)[0])
        if network is ours:
            first = logits.detach()
    torch.testing.assert_close(first, logits.detach(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-4)
    np.testing.assert_array_equal(ours.predictions(first), theirs.predictions(logits.detach()))


def test_two_logits_of_two_classes_are_their_difference():
    graph, network = class_graph(classes=2), own(Plain, 2)
    vector = torch.tensor(network.initial_parameters(0), dtype=torch.float32, requires_grad=True)
    logits = network.logits(vector[None], network.tensors(graph))
    weight, bias = vector[:16].view(2, 8), vector[16:]
    both = F.linear(torch.from_numpy(graph.features), weight, bias)
    torch.testing.assert_close(logits, both[:, 1] - both[:, 0])
    losses = (
        network.loss(logits, network.targets(graph.labels)),
        F.cross_entropy(both, torch.tensor(graph.labels).long()),
    )
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*(torch.autograd.grad(loss, vector, retain_graph=True)[0] for loss in losses))
    np.testing.assert_array_equal(network.predictions(logits.detach()), both.argmax(dim=1).numpy())


def test_a_column_is_one_logit():
    single = own(lambda f, c: Plain(f, 1), 2)
    graph, vector = class_graph(classes=2), torch.arange(9.0)
    logits = single.logits(vector[None], single.tensors(graph))
    torch.testing.assert_close(logits, torch.from_numpy(graph.features) @ vector[:8] + 8)


def test_edges_come_in_both_directions_and_without_self_loops():
    seen = []

    class Seeing(Plain):
        def forward(self, x, edge_index):
            seen.append(edge_index)
            return self.layer(x)

    module = OwnModule(Plain)
    module._made[8, 3] = Seeing(8, 3)  # what travels by value would see elsewhere
    graph, network = class_graph(), module(8, 3, OWN)
    network.logits(torch.zeros(1, network.size), network.tensors(graph))
    assert torch.equal(seen[0], edge_index(graph))


class Dropping(Plain):
    def forward(self, x, edge_index):
        return F.dropout(self.layer(x), 0.5, self.training)


def test_randomness_is_the_clients_own_and_only_in_training():
    network, graph = own(Dropping), class_graph()
    tensors, model = network.tensors(graph), torch.ones(1, own(Dropping).size)

    def logits(seed):
        return network.logits(model, tensors, None if seed is None else [np.random.default_rng(seed)])

    before = torch.random.get_rng_state()
    assert torch.equal(logits(1), logits(1)) and not torch.equal(logits(1), logits(2))
    assert torch.equal(logits(None), own(Plain).logits(model, tensors))
    assert torch.equal(torch.random.get_rng_state(), before)
    noise = np.random.default_rng(1)
    assert not torch.equal(*(network.logits(model, tensors, [noise]) for _ in range(2)))  # anew in every step


class Constant(Plain):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.register_buffer("projection", torch.randn(in_features, in_features), persistent=False)
        self.frozen = nn.Parameter(torch.randn(in_features), requires_grad=False)

    def forward(self, x, edge_index):
        return self.layer(x @ self.projection + self.frozen)


def test_what_is_not_trained_is_no_part_of_the_vector_and_the_same_in_every_process():
    module = OwnModule(Constant)
    here, there = module(8, 3, OWN), pickle.loads(pickle.dumps(module))(8, 3, OWN)
    assert here.size == own(Plain).size
    for name in ("projection", "frozen"):
        torch.testing.assert_close(getattr(here._module, name), getattr(there._module, name), atol=0, rtol=0)


def test_sizes_that_are_found_in_the_first_call():
    class Lazy(nn.Module):
        def __init__(self, in_features, out_features):
            super().__init__()
            self.layer = SAGEConv(-1, out_features)

        def forward(self, x, edge_index):
            return self.layer(x, edge_index)

    assert own(Lazy).size == 2 * 8 * 3 + 3


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_a_module_of_a_built_in_network_predicts_as_it_does(name):
    graph = class_graph(classes=2)
    network = create_network(8, 2, ModelConfig(name=name, hidden=5))
    vector = network.initial_parameters(3)
    expected = network.logits(torch.tensor(vector, dtype=torch.float32)[None], network.tensors(graph))
    x, links = torch.from_numpy(graph.features), edge_index(graph)
    torch.testing.assert_close(network.module(vector)(x, links), expected)
    torch.testing.assert_close(network.module(vector)(x, links[:, links[0] < links[1]]), expected)


def test_a_module_of_an_own_network_is_its_class_with_the_parameters():
    network, graph = own(Classifier), class_graph()
    vector = network.initial_parameters(3)
    module, other = network.module(vector), network.module(2 * vector)
    assert type(module) is Classifier and not module.training
    np.testing.assert_allclose(np.concatenate([p.detach().reshape(-1) for p in module.parameters()]), vector)
    x = torch.from_numpy(graph.features)
    expected = network.logits(torch.tensor(vector, dtype=torch.float32)[None], network.tensors(graph))
    torch.testing.assert_close(module(x, edge_index(graph)), expected)
    assert not torch.equal(other(x, edge_index(graph)), expected)


def test_a_saved_model_is_read_only_where_its_module_is_given(tmp_path):
    module = OwnModule(Classifier)
    with own_network(module):
        network = create_network(8, 3, OWN)
        TrainedModel(network, network.initial_parameters(1)).save(tmp_path / "model.pt")
    for given in (module, Classifier):
        read = load_model(tmp_path / "model.pt", given)
        assert type(read.network) is type(network)
        np.testing.assert_array_equal(read.parameters, network.initial_parameters(1))
    assert "own" not in NETWORKS
    with pytest.raises(RunError, match=r"model\.pt: its network is an own one; give it, .* load_model\(path, model\)"):
        load_model(tmp_path / "model.pt")
    with pytest.raises(ConfigError, match=r"model\.name = own: the module is given in Python, train\(model=\.\.\.\)"):
        create_network(8, 3, OWN)


def test_one_own_network_inside_another_and_none_at_all():
    first, second = OwnModule(Plain), OwnModule(Classifier)
    with own_network(first):
        with own_network(second):
            assert NETWORKS["own"] is second
        assert NETWORKS["own"] is first
        with own_network(None):
            assert "own" not in NETWORKS
    assert "own" not in NETWORKS


class Normalised(Plain):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.norm = nn.BatchNorm1d(in_features)


class Caching(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.layer = GCNConv(in_features, out_features, cached=True)

    def forward(self, x, edge_index):
        return self.layer(x, edge_index)


class Frozen(Plain):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.requires_grad_(False)


class Transposed(Plain):
    def forward(self, x, edge_index):
        return self.layer(x).T


class Several(Plain):
    def forward(self, x, edge_index):
        return self.layer(x), x


class OnlyX(Plain):
    def forward(self, x):
        return self.layer(x)


LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (
            Plain(8, 3),
            "model: expected a class, or a function of .* that makes a torch.nn.Module, got an object of Plain",
        ),
        ("Plain", "model: expected a class, .*, got an object of str"),
        (lambda f, c, lock=LOCK: Plain(f, c), "model: it cannot be sent to the clients' processes: TypeError: .*lock"),
        (lambda f: Plain(f, 3), "model: it cannot be used with 8 features: TypeError: .*takes 1 positional argument"),
        (lambda f, c: f, "model: it cannot be used with 8 features: TypeError: expected a torch.nn.Module, got int"),
        (lambda f, c: Plain(f + 1, c), "model: it cannot be used with 8 features: RuntimeError: mat1 and mat2 shapes"),
        (OnlyX, "model: it cannot be used with 8 features: TypeError: .*forward"),
        (
            Normalised,
            r"model: Normalised keeps norm\.num_batches_tracked, norm\.running_mean, norm\.running_var, which",
        ),
        (Caching, r"model: GCNConv\(cached=True\) in Caching would keep one client's graph for all"),
        (Frozen, "model: Frozen has no parameters to train"),
        (Transposed, r"model: Transposed: expected logits of shape \(5, 3\) for 5 nodes, got shape \(3, 5\)"),
        (Several, r"model: Several: expected logits of shape \(5, 3\) for 5 nodes, got tuple"),
    ],
)
def test_what_cannot_be_a_network_is_refused(factory, message):
    with pytest.raises(ConfigError, match=message) as caught:
        own(factory)
    assert "\n" not in str(caught.value)


def test_batch_norm_without_running_statistics_is_a_function_of_its_arguments():
    def factory(in_features, out_features):
        module = Plain(in_features, out_features)
        module.norm = nn.BatchNorm1d(in_features, track_running_stats=False)
        return module

    assert own(factory).size == own(Plain).size + 16


def test_what_one_logit_is_called_wrong_for_three_classes():
    with pytest.raises(ConfigError, match=r"expected logits of shape \(5, 3\) for 5 nodes, got shape \(5,\)"):
        own(OneLogit, 3)
    with pytest.raises(
        ConfigError, match=r"expected logits of shape \(4, 2\) or \(4,\) for 4 nodes, got shape \(4, 3\)"
    ):
        own(lambda f, c: Plain(f, 3), 2)
