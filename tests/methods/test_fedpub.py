"""FED-PUB's client against its formulas, written down once more with PyTorch Geometric's layers and torch's Adam."""

from __future__ import annotations

import pickle

import networkx as nx
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config import Config
from orchestrator.methods import create
from orchestrator.methods.adam_training import Batch
from orchestrator.methods.fedpub import FedPub, community_graph
from orchestrator.models import create_network
from tests.class_graphs import PygGCN, class_graph

STEPS = ["gradient", "proximal"]
HIDDEN = 6


def config(seed=31, dropout=0.0, **method):
    return Config(
        seed=seed,
        model={"name": "gcn-classifier", "hidden": HIDDEN, "dropout": dropout},
        method={"name": "fedpub", "local_epochs": 3, "learning_rate": 1e-2, "weight_decay": 0.0} | method,
        evaluation={"where": "clients"},
    )


def network(graph, own=None):
    return create_network(graph.num_features, graph.classes, (own or config()).model)


def start(graph, seed=0):
    """A released model, whose numbers float32 holds exactly."""
    return network(graph).initial_parameters(seed).astype(np.float32).astype(np.float64)


def weight_places(net):
    """Where weight matrices stand, counted one by one."""
    places, at = [], 0
    for name, shape in net.shapes.items():
        size = int(np.prod(shape))
        places += range(at, at + size) if name.endswith("weight") else []
        at += size
    return torch.tensor(places)


def effective(net, theta, mask):
    factors = torch.ones_like(theta)
    factors[weight_places(net)] = mask
    return theta * factors


def objective(net, graph, theta, mask, mask_penalty=0.0, proximal=0.0, anchor=None):
    """The formula of the module's text, in the precision of its arguments."""
    logits = PygGCN(net).logits(effective(net, theta, mask), graph)
    nodes = torch.from_numpy(np.flatnonzero(graph.train))
    total = F.cross_entropy(logits[nodes], torch.from_numpy(graph.labels.astype(np.int64))[nodes])
    total = total + mask_penalty * mask.abs().sum()
    return total if anchor is None else total + proximal * ((theta - anchor) ** 2).sum()


def trained_by_torch(graph, own, theta, mask, anchor=None):
    """Another training, with torch's optimiser."""
    net, method = network(graph, own), own.method
    theta, mask = (torch.tensor(value, dtype=torch.float32).requires_grad_() for value in (theta, mask))
    anchor = None if anchor is None else torch.tensor(anchor, dtype=torch.float32)
    adam = torch.optim.Adam([theta, mask], lr=method.learning_rate, weight_decay=method.weight_decay)
    gradient = method.penalty_step == "gradient"
    penalties = (method.mask_penalty, method.proximal) if gradient else (0.0, 0.0)
    for _ in range(method.local_epochs):
        adam.zero_grad()
        objective(net, graph, theta, mask, *penalties, anchor).backward()
        adam.step()
        if not gradient:
            with torch.no_grad():
                shorter = mask.abs() - method.mask_penalty * method.learning_rate
                mask.copy_(mask.sign() * shorter.clamp(min=0))
                if anchor is not None:  # where ||x - theta||^2 / (2 lr) + lambda_2 ||x - anchor||^2 is least
                    weight = 2 * method.learning_rate * method.proximal
                    theta.copy_((theta + weight * anchor) / (1 + weight))
    return theta.detach().numpy(), mask.detach().numpy()


def state(client):
    return client.state_dict()


def with_mask(client, mask):
    client.load_state_dict(state(client) | {"mask": np.asarray(mask, np.float32)})
    return client


# The penalties train


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("received", [False, True])
@pytest.mark.parametrize("penalties", [(0.0, 0.0), (0.02, 0.0), (0.0, 0.3), (0.01, 0.2)])
def test_training_is_that_of_the_formula(step, received, penalties):
    graph, settings = class_graph(), config(mask_penalty=penalties[0], proximal=penalties[1], penalty_step=step)
    client, theta = create(graph, settings, 0), start(graph)
    if received:
        theta = start(graph, 1)
        client.receive(theta)
    update = client.train(start(graph))
    ones = np.ones(len(weight_places(network(graph))))
    expected, mask = trained_by_torch(graph, settings, theta, ones, theta if received else None)
    np.testing.assert_allclose(start(graph) - update.delta, expected, atol=2e-5)
    np.testing.assert_allclose(state(client)["mask"], mask, atol=2e-5)
    assert np.abs(mask - 1).max() > 1e-3 and np.abs(expected - theta).max() > 1e-3


@settings(max_examples=15, deadline=None)
@given(st.floats(1e-3, 10), st.floats(1e-3, 10), st.sampled_from([30, 60]), st.booleans(), st.integers(0, 2**32))
def test_gradients_of_both_penalties_are_those_of_the_formula_and_not_zero(lam1, lam2, nodes, received, seed):
    """In the authors' code they are zero, because the penalties are made of detached tensors."""
    graph, rng = class_graph(nodes), np.random.default_rng(seed)
    net, size = network(graph), network(graph).size
    anchor = start(graph, 1)
    trained = rng.normal(size=size + len(weight_places(net)))
    gradients = {}
    for penalties in ((0.0, 0.0), (lam1, lam2)):
        client = FedPub(graph, config(mask_penalty=penalties[0], proximal=penalties[1], penalty_step="gradient"), 0)
        if received:
            client.receive(anchor)
        variable = torch.tensor(trained[None], dtype=torch.float32, requires_grad=True)
        value = FedPub.objective(Batch([client]), variable, None)
        gradients[penalties] = torch.autograd.grad(value, variable)[0][0].numpy()
    variable = torch.tensor(trained, requires_grad=True)
    expected = objective(net, graph, *variable.split([size, len(trained) - size]))
    (plain,) = torch.autograd.grad(expected, variable)
    np.testing.assert_allclose(gradients[0.0, 0.0], plain, atol=1e-4, rtol=1e-3)
    difference = gradients[lam1, lam2] - gradients[0.0, 0.0]
    np.testing.assert_allclose(difference[size:], lam1 * np.sign(trained[size:]), atol=1e-4, rtol=1e-3)
    pull = 2 * lam2 * (trained[:size] - anchor) if received else np.zeros(size)
    np.testing.assert_allclose(difference[:size], pull, atol=1e-4, rtol=1e-3)


def sparsity(own, rounds=1):
    graph = class_graph()
    client = create(graph, own, 0)
    for _ in range(rounds):
        client.train(start(graph))
    return client.facts()["mask_sparsity"], state(client)["mask"]


def test_without_lambda_1_no_mask_entry_counts_as_zero():
    share, mask = sparsity(config(local_epochs=40))
    assert share == 0 and (mask != 0).all()


@pytest.mark.parametrize(("step", "lambdas"), [("proximal", (0.6, 1.0, 2.0)), ("gradient", (1e-4, 1e-3, 1e-2))])
def test_sparsity_grows_with_lambda_1(step, lambdas):
    settings = {"local_epochs": 150, "mask_threshold": 0.05, "penalty_step": step}
    shares = [sparsity(config(mask_penalty=value, **settings))[0] for value in (0.0, *lambdas)]
    assert shares[0] < shares[1] < shares[2] < shares[3] <= 1, shares


def test_the_proximal_step_leaves_exact_zeros_which_predictions_and_facts_count():
    share, mask = sparsity(config(mask_penalty=0.6, local_epochs=150, mask_threshold=0.0))
    assert 0.05 < share < 1 and share == (mask == 0).mean()
    _, mask = sparsity(config(mask_penalty=1e3, local_epochs=1))
    assert (mask == 0).all()


def test_without_lambdas_training_has_no_penalties_whatever_the_step():
    graph = class_graph()
    updates = []
    for method in ({}, {"penalty_step": "gradient"}, {"mask_penalty": 0.0, "proximal": 0.0}):
        client = create(graph, config(dropout=0.5, **method), 0)
        client.receive(start(graph, 1))
        updates.append(client.train(start(graph)))
    for update in updates[1:]:
        np.testing.assert_array_equal(update.delta, updates[0].delta)


@pytest.mark.parametrize("epochs", [1, 60])
def test_lambda_2_pins_the_weights_to_the_model_that_was_received_and_to_nothing_before(epochs):
    graph, distances = class_graph(), {}
    for proximal in (0.0, 1e8):
        client = create(graph, config(proximal=proximal, local_epochs=epochs), 0)
        free = client.train(start(graph)).delta
        client.receive(start(graph, 1))
        moved = start(graph) - client.train(start(graph)).delta - start(graph, 1)
        distances[proximal] = np.abs(free).max(), np.abs(moved).max()
    assert distances[0.0][0] == distances[1e8][0] > 5e-3  # nothing was received yet
    assert distances[1e8][1] < 1e-6 < 5e-3 < distances[0.0][1]


def test_as_a_part_of_the_loss_lambda_2_does_nothing_in_a_single_step():
    """It starts at theta_bar, where the gradient of the squared distance is 0; hence the proximal step."""
    graph, updates = class_graph(), []
    for proximal in (0.0, 1e4):
        client = create(graph, config(proximal=proximal, local_epochs=1, penalty_step="gradient"), 0)
        client.receive(start(graph, 1))
        updates.append(client.train(start(graph)).delta)
    np.testing.assert_array_equal(*updates)


# What leaves the client


@pytest.mark.parametrize("train", ["half", "none"])
def test_an_update_is_the_weights_and_an_embedding_and_holds_no_mask(train):
    graph = class_graph(train=train)
    client = with_mask(create(graph, config(dropout=0.5), 0), np.full(len(weight_places(network(graph))), 0.5))
    client.receive(start(graph, 1))
    update = client.train(start(graph))
    assert update.delta.shape == (network(graph).size,) and update.delta.dtype == np.float64
    assert {name: value.shape for name, value in update.scores.items()} == {"embedding": (HIDDEN,)}
    np.testing.assert_array_equal(update.delta, start(graph) - state(client)["own"])
    assert update.norm == np.linalg.norm(update.delta)


@pytest.mark.parametrize("train", ["half", "none"])
@pytest.mark.parametrize("threshold", [0.0, 0.9, 1.01])
def test_the_embedding_is_the_masked_networks_on_the_community_graph(train, threshold):
    graph = class_graph(train=train)
    settings = config(dropout=0.5, mask_threshold=threshold, local_epochs=20)
    client = create(graph, settings, 3)
    client.receive(start(graph, 1))
    mask = np.random.default_rng(0).normal(1, 0.2, len(weight_places(network(graph))))
    embedding = with_mask(client, mask).train(start(graph)).scores["embedding"]
    own, mask = (torch.tensor(state(client)[name], dtype=torch.float64) for name in ("own", "mask"))
    kept = torch.where(mask.abs() < threshold, 0.0, mask)
    assert (kept == 0).any() == (threshold > 0)
    net = network(graph)
    rows = PygGCN(net).embeddings(effective(net, own, kept), community_graph(graph.num_features, 31))
    expected = rows.mean(dim=0) / rows.mean(dim=0).norm()
    assert np.linalg.norm(embedding) == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(embedding, expected, atol=1e-4)


def test_a_network_of_zeros_has_an_embedding_of_zeros():
    graph = class_graph(train="none")
    update = create(graph, config(), 0).train(np.zeros(network(graph).size))
    np.testing.assert_array_equal(update.scores["embedding"], np.zeros(HIDDEN))


# The community graph


@pytest.mark.parametrize("seed", [1, 31, 2**40])
def test_five_communities_of_a_hundred_without_edges_between_them(seed):
    graph = community_graph(7, seed)
    drawn = nx.Graph(list(map(tuple, graph.edges.T.tolist())))
    assert sorted(map(sorted, nx.connected_components(drawn))) == [list(range(k, k + 100)) for k in range(0, 500, 100)]
    possible = 5 * 100 * 99 / 2
    assert abs(graph.num_edges - 0.1 * possible) < 5 * np.sqrt(possible * 0.1 * 0.9)
    assert graph.features.shape == (500, 7)
    assert abs(graph.features.mean()) < 5 / np.sqrt(3500) and abs(graph.features.std() - 1) < 5 / np.sqrt(7000)


def test_it_is_a_function_of_the_seed():
    first, same, other = community_graph(4, 1), community_graph(4, 1), community_graph(4, 2)
    np.testing.assert_array_equal(first.edges, same.edges)
    np.testing.assert_array_equal(first.features, same.features)
    assert not np.array_equal(first.edges, other.edges) and (first.features != other.features).any()


def test_all_clients_of_a_run_are_compared_on_the_same_one_and_those_of_another_run_on_another():
    def embedding(graph, client, seed):
        return create(graph, config(seed=seed), client).train(start(graph)).scores["embedding"]

    first, second = class_graph(train="none"), class_graph(33, train="none", seed=9)
    assert start(first).shape == start(second).shape
    np.testing.assert_array_equal(embedding(first, 0, 31), embedding(second, 5, 31))
    assert (embedding(first, 0, 31) != embedding(first, 0, 32)).any()


# From round to round


def still(**method):
    """Settings with which training moves nothing that float32 would show."""
    return config(learning_rate=1e-60, **method)


def test_a_client_starts_from_the_released_model_until_it_receives_its_own():
    graph = class_graph()
    client = create(graph, still(), 0)
    np.testing.assert_array_equal(client.train(start(graph)).delta, np.zeros(network(graph).size))
    client.receive(start(graph, 1))
    np.testing.assert_array_equal(client.train(start(graph)).delta, start(graph) - start(graph, 1))


def test_a_client_that_misses_rounds_keeps_its_model_and_its_mask():
    graph = class_graph()
    client = create(graph, still(), 0)
    client.train(start(graph))
    client.receive(start(graph, 1))
    before = client.evaluate(start(graph, 3), own=True)
    np.testing.assert_array_equal(client.train(start(graph, 5)).delta, start(graph, 5) - start(graph, 1))
    after = client.evaluate(start(graph, 4), own=True)
    assert all((before[mask] == after[mask]).all() for mask in ("val", "test"))


def test_the_mask_goes_on_from_where_it_was_and_what_is_received_does_not_touch_it():
    graph = class_graph()
    client = create(graph, config(), 0)
    client.train(start(graph))
    mask = state(client)["mask"]
    client.receive(start(graph, 1))
    np.testing.assert_array_equal(state(client)["mask"], mask)
    client.train(start(graph))
    assert 0 < np.abs(state(client)["mask"] - mask).max() < 3.1e-2  # three steps of Adam from there, not from ones


def test_received_models_are_copies():
    graph = class_graph()
    client, model = create(graph, still(), 0), start(graph, 1)
    client.receive(model)
    model[:] = 0
    np.testing.assert_array_equal(client.train(start(graph)).delta, start(graph) - start(graph, 1))


@pytest.mark.parametrize("method", [{}, {"mask_penalty": 0.1, "proximal": 0.1}])
@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_an_interrupted_client_continues_bit_by_bit(method, rounds):
    graph, settings = class_graph(), config(dropout=0.5, **method)

    def play(client, first, last):
        updates = []
        for number in range(first, last):
            updates.append(client.train(start(graph)))
            if number % 2 == 0:  # in other rounds the answer is lost
                client.receive(start(graph, 10 + number))
        return updates

    whole, before, after = (create(graph, settings, 2) for _ in range(3))
    expected = play(whole, 0, 5)
    play(before, 0, rounds)
    after.load_state_dict(pickle.loads(pickle.dumps(state(before))))
    for found, wanted in zip(play(after, rounds, 5), expected[rounds:], strict=True):
        np.testing.assert_array_equal(found.delta, wanted.delta)
        np.testing.assert_array_equal(found.scores["embedding"], wanted.scores["embedding"])
    for name, value in state(whole).items():
        np.testing.assert_array_equal(state(after)[name], value)
    assert after.facts() == whole.facts()


ODD = {
    "no edges": {"pairs": np.zeros((2, 0))},
    "no training node": {"train": "none"},
    "one training node": {"train": "one node"},
    "one class": {"only": 1},
    "one node": {"nodes": 1, "edges": 0, "pairs": np.zeros((2, 0))},
    "one node that is for tests": {"nodes": 1, "train": "none", "pairs": np.zeros((2, 0))},
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_clients_train_receive_and_evaluate(kind):
    graph = class_graph(**ODD[kind])
    client = create(graph, config(mask_penalty=0.1, proximal=0.1, dropout=0.5), 0)
    for number in (1, 2):
        update = client.train(start(graph))
        assert np.isfinite(update.delta).all()
        assert np.linalg.norm(update.scores["embedding"]) == pytest.approx(1)
        client.receive(start(graph, number))
    said = client.evaluate(start(graph), own=True)
    assert (said["val"].sum(), said["test"].sum()) == (graph.val.sum(), graph.test.sum())
    trains = bool(graph.train.any())
    assert (state(client)["mask"] != 1).any() == trains
    if not trains:
        np.testing.assert_array_equal(update.delta, start(graph) - start(graph, 1))


def test_clients_in_a_batch_train_as_alone():
    """With and without training nodes, and with and without a model of their own."""
    graphs = [class_graph(**kind) for kind in ({}, ODD["no training node"], ODD["one class"], {"seed": 4})]
    settings = config(mask_penalty=0.3, proximal=0.2, dropout=0.5)
    alone, together = ([create(graph, settings, c) for c, graph in enumerate(graphs)] for _ in range(2))
    for member in (alone[3], together[3]):
        member.receive(start(graphs[3], 1))
    updates = FedPub.train_together(together, start(graphs[0]))
    for one, other, update in zip(alone, together, updates, strict=True):
        expected = one.train(start(graphs[0]))
        np.testing.assert_allclose(update.delta, expected.delta, atol=1e-6)
        np.testing.assert_allclose(update.scores["embedding"], expected.scores["embedding"], atol=1e-6)
        np.testing.assert_allclose(state(other)["mask"], state(one)["mask"], atol=1e-6)


# Predictions


@pytest.mark.parametrize("threshold", [0.0, 1e-3, 0.3])
def test_predictions_are_the_masked_networks_without_entries_below_the_threshold(threshold):
    graph = class_graph()
    client, net = create(graph, config(mask_threshold=threshold), 0), network(graph)
    model = 40 * start(graph, 1)  # large, such that small entries matter
    mask = np.random.default_rng(1).choice([1.0, 0.2, -0.2, 9e-4, -9e-4], len(weight_places(net)))
    client.receive(model)
    predicted = {}
    for kept in (0.0, 1e-3, 0.3):
        entries = torch.from_numpy(np.where(np.abs(mask) < kept, 0.0, mask))
        logits = PygGCN(net).logits(effective(net, torch.from_numpy(model), entries), graph)
        predicted[kept] = logits.argmax(dim=1).numpy()
    found = with_mask(client, mask).predict(start(graph), own=True)
    np.testing.assert_array_equal(found, predicted[threshold])
    assert (predicted[0.3] != predicted[1e-3]).any()
    assert client.facts()["mask_sparsity"] == (np.abs(mask.astype(np.float32)) < threshold).mean()


def test_an_entry_below_the_threshold_takes_its_weight_away():
    """A class whose weights are large, and their mask small, wins without a threshold and not with one."""
    graph = class_graph(classes=3, train="none")
    net = network(graph)
    model = np.zeros(net.size)
    model[-2] = 1.0  # class 1 wins by its bias where no weight counts
    hidden = np.cumsum([0, *(np.prod(shape) for shape in net.shapes.values())])
    model[hidden[3] : hidden[4]] = 1.0  # the second layer's output is its bias
    model[hidden[4] + 2 * HIDDEN : hidden[5]] = 1e4  # class 2's weights
    mask = np.ones(len(weight_places(net)))
    mask[-HIDDEN:] = 5e-4
    for threshold, winner in ((0.0, 2), (1e-3, 1)):
        client = with_mask(create(graph, config(mask_threshold=threshold), 0), mask)
        client.receive(model)
        assert (client.predict(start(graph), own=True) == winner).all()


def test_own_predictions_are_of_the_clients_model_and_others_of_the_given_one():
    graph = class_graph()
    client = create(graph, config(), 0)
    given = client.predict(start(graph, 2), own=False)
    np.testing.assert_array_equal(client.predict(start(graph, 2), own=True), given)  # it has none yet
    client.receive(start(graph, 1))
    np.testing.assert_array_equal(client.predict(start(graph, 2), own=False), given)
    np.testing.assert_array_equal(client.predict(start(graph, 2), own=True), client.predict(start(graph, 1), own=False))
    assert (client.predict(start(graph, 2), own=True) != given).any()
