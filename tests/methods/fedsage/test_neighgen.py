"""The generator: its losses against the formulas, its messages, its determinism and its corner cases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.utils import parameters_to_vector

from orchestrator.graphs.graph import Graph
from orchestrator.methods.fedsage import neighgen
from orchestrator.methods.fedsage.impairment import impair, mend
from orchestrator.methods.fedsage.neighgen import NeighbourGenerator, nearest, nearest_neighbour
from orchestrator.methods.fedsage.settings import GeneratorSettings

FEATURES = 23  # no other size of a message
SETTINGS = {"hidden_share": 0.3, "encoder_hidden": 12, "latent": 7, "widths": (9, 11), "learning_rate": 0.01}


@pytest.fixture
def graphs(make_graph):
    """Of three clients; features in the range of tanh, as row-normalised ones are."""
    made = [make_graph(nodes=nodes, edges=2 * nodes, features=FEATURES) for nodes in (40, 31, 27)]
    return [replace(graph, features=np.tanh(graph.features / 4)) for graph in made]


def generator(graph, client=0, seed=31, **settings):
    return NeighbourGenerator(graph, GeneratorSettings(**SETTINGS | settings), seed, client)


def exchange(clients):
    """One step of every client with all others."""
    questions = [client.question() for client in clients]
    answers = [
        np.sum([other.answer(q) for other in clients if other is not c], axis=0)
        for c, q in zip(clients, questions, strict=True)
    ]
    return [client.learn(given) for client, given in zip(clients, answers, strict=True)]


def parameters(client):
    return parameters_to_vector(client._networks.parameters()).detach().numpy()


def mended_graph(client):
    return mend(client.graph, *client.generated())


def moved(client, step):
    """Whether a step moves all of H^e, dGen and fGen."""
    networks = (client._encoder, client._count, client._generate)
    before = [[p.detach().clone() for p in network.parameters()] for network in networks]
    step()
    for network, old in zip(networks, before, strict=True):
        assert all((p != q).any() for p, q in zip(network.parameters(), old, strict=True))


# Learning


def test_every_network_learns(graphs):
    client = generator(graphs[0], weight_decay=0)
    client.learn(None)  # fGen says a constant until its last layer has moved
    moved(client, lambda: client.learn(None))
    clients = [client, generator(graphs[1], 1)]
    moved(client, lambda: exchange(clients))


def test_the_local_loss_is_the_formula(graphs):
    client = generator(graphs[0], hidden_share=0.5)
    for _ in range(3):
        client.learn(None)
    seen = client._held_out.graph.features
    impaired, features = client._impaired(), torch.from_numpy(seen)
    unit = ((seen - seen.mean(0)) ** 2).sum(1).mean()
    prediction = client._predict_impaired(impaired)
    expected = 0.0
    for v in range(len(impaired.kept)):
        gap = abs(prediction.counts[v].item() - impaired.counts[v])
        expected += gap**2 / 2 if gap < 1 else gap - 0.5
        hidden = impaired.hidden_neighbours[[v]].indices
        drawn = client._scale * client._generate(prediction.noisy[prediction.owners == v])
        assert len(drawn) == impaired.counts[v] == len(hidden)
        expected += sum(min(((x - features[u]) ** 2).sum().item() for u in hidden) / unit for x in drawn)
    loss = client._local_loss(impaired, prediction).item()
    assert loss == pytest.approx(expected / len(impaired.kept), rel=1e-5)


# Against trivial predictors


def planted(seed=0, nodes=160, groups=5):
    """Nodes have neighbours of their own group alone, more from group to group, and features near their group's, small
    as row-normalised ones are."""
    rng = np.random.default_rng(seed)
    group = np.arange(nodes) % groups
    features = 0.05 * (1 + rng.normal(size=(groups, FEATURES)))[group] + 0.01 * rng.normal(size=(nodes, FEATURES))
    u, v = np.triu_indices(nodes, 1)
    linked = (group[u] == group[v]) & (rng.random(len(u)) < 0.05 * (1 + 2 * group[u]))
    split = np.arange(nodes) % 3
    return Graph(
        features=features.astype(np.float32),
        edges=np.stack([u[linked], v[linked]]),
        labels=np.zeros(nodes, np.int8),
        sensitive=None,
        train=split == 0,
        val=split == 1,
        test=split == 2,
        classes=2,
    )


def test_on_a_planted_graph_it_beats_the_trivial_predictors():
    """Judged by nodes that the client never had, and by its own word."""
    whole = planted()
    lost = impair(whole, 0.3, "all", np.random.default_rng(1))
    sizes = {"latent": 32, "widths": (32, 32), "encoder_hidden": 32}
    client = generator(lost.graph, hidden_share=0.15, learning_rate=0.02, **sizes)
    other = generator(planted(1), 1, **sizes)
    client.train_locally(80)
    for _ in range(5):
        client.learn(other.answer(client.question()))
    quality = client.finish()
    owners, features = client.generated()

    def distance(guesses, owners=owners, lost=lost, features=whole.features):
        """Mean squared distance to the nearest lost neighbour, over generated ones whose owner lost any."""
        allowed = lost.hidden_neighbours[owners]
        rows, nearby = nearest_neighbour(torch.from_numpy(guesses), torch.from_numpy(features), allowed)
        return ((guesses[rows.numpy()] - features[nearby.numpy()]) ** 2).sum(1).mean()

    mean = np.broadcast_to(lost.graph.features[client._held_out.kept].mean(0), features.shape).copy()
    said = distance(features)
    assert len(owners) > 50
    assert said < 0.25 * distance(mean) and said < 0.25 * distance(0 * mean)
    given = np.bincount(owners, minlength=len(lost.kept))
    assert np.corrcoef(given, lost.counts)[0, 1] > 0.3
    assert quality["generator_features"] < 0.25 and quality["generator_counts"] < 0.95
    prediction, guesses = client._on_held_out()
    judging = ~client._first_half[prediction.owners]  # who did not choose
    judged = [prediction.owners[judging].numpy(), client._held_out, lost.graph.features]
    ratio = distance(guesses[judging].numpy(), *judged) / distance(mean[: judging.sum()], *judged)
    assert quality["generator_features"] == pytest.approx(ratio, rel=1e-4)


def test_it_starts_as_the_mean_of_what_it_may_see(graphs):
    """No held-out node among them; without a step that is what it generates, and no better than itself."""
    client = generator(graphs[0], hidden_share=0.4)
    assert len(client._held_out.kept) == 24
    assert client.finish()["generator_features"] == pytest.approx(1, rel=1e-5)
    _, features = client.generated()
    assert len(features)
    mean = graphs[0].features[client._held_out.kept].mean(axis=0)
    np.testing.assert_allclose(features, np.broadcast_to(mean, features.shape), rtol=1e-5, atol=1e-7)


def test_it_is_what_the_choosing_half_found_best():
    """Features that nothing predicts, with a step so long that the generator only gets worse."""
    graph = planted(nodes=120, groups=2)
    graph = replace(graph, features=np.random.default_rng(0).permuted(graph.features, axis=0))
    client = generator(graph, learning_rate=0.3)
    before = parameters(client)
    losses = client.train_locally(60)
    assert len(losses) < 60 and losses[-1] > losses[0]
    np.testing.assert_array_equal(parameters(client), before)
    for _ in range(5):
        client.learn(None)
    assert (parameters(client) != before).any()
    assert client.finish()["generator_features"] == pytest.approx(1, rel=1e-5)
    np.testing.assert_array_equal(parameters(client), before)


def test_nothing_held_out_says_nothing(make_graph):
    client = generator(make_graph(nodes=12, edges=0, features=FEATURES))
    assert np.isnan([*client.finish().values()]).all()


@pytest.mark.parametrize("block", [1, 50, 2**22])
def test_gradients_through_messages_are_those_of_the_loss_computed_centrally(graphs, monkeypatch, block):
    monkeypatch.setattr(neighgen, "_BLOCK", block)
    clients = [generator(graph, client, cross_weight=0.7) for client, graph in enumerate(graphs)]
    client = clients[0]
    for _ in range(3):
        client.learn(None)
    impaired = client._impaired()
    prediction = client._predict_impaired(impaired)
    loss = client._local_loss(impaired, prediction)
    generated = client._scale * client._generate(prediction.noisy.detach())
    for other in graphs[1:]:
        squares = ((generated[:, None] - torch.from_numpy(other.features)[None]) ** 2).sum(2)
        loss = loss + 0.7 * squares.min(1).values.sum() / (client._unit * len(impaired.kept))
    central = torch.autograd.grad(loss, list(client._networks.parameters()))
    client.learn(np.sum([other.answer(client.question()) for other in clients[1:]], axis=0))
    for parameter, gradient in zip(client._networks.parameters(), central, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_without_weight_the_answers_do_not_matter(graphs):
    alone, asking = (generator(graphs[0], cross_weight=0) for _ in range(2))
    alone.learn(None)
    exchange([asking, generator(graphs[1], 1)])
    np.testing.assert_array_equal(parameters(alone), parameters(asking))


@pytest.mark.parametrize("block", [1, 40, 2**22])
def test_nearest_rows(monkeypatch, block):
    monkeypatch.setattr(neighgen, "_BLOCK", block)
    draw = torch.Generator().manual_seed(1)
    points, targets = torch.randn(9, 4, generator=draw), torch.randn(13, 4, generator=draw)
    distances = torch.cdist(points, targets)
    torch.testing.assert_close(nearest(points, targets), distances.argmin(1))
    allowed = torch.rand(9, 13, generator=draw) < 0.3
    allowed[[0, 5]] = False
    rows, found = nearest_neighbour(points, targets, neighgen.csr_array(allowed.numpy()))
    expected = torch.where(allowed, distances, torch.inf).argmin(1)
    torch.testing.assert_close(rows, allowed.any(1).nonzero()[:, 0])
    torch.testing.assert_close(found, expected[rows])


# Messages


def test_no_feature_matrix_leaves_its_client(graphs):
    """Every array of every message of a training, by name, type and shape, and searched for rows of features."""
    clients = [generator(graph, client) for client, graph in enumerate(graphs)]
    d = sum(p.numel() for p in clients[0]._generate.parameters())
    sizes = {1, 7, d}
    assert FEATURES not in sizes
    for _ in range(3):
        for client in clients:
            question = client.question()
            q = len(question["inputs"])
            assert q == client._impaired().counts.sum() > 0
            assert {name: (array.dtype, array.shape) for name, array in question.items()} == {
                "inputs": (np.float32, (q, 7)),
                "parameters": (np.float32, (d,)),
                "scale": (np.float32, ()),
            }
            answers = [other.answer(question) for other in clients if other is not client]
            assert {(answer.dtype, answer.shape) for answer in answers} == {(np.dtype(np.float32), (d,))}
            sent = np.concatenate([array.ravel() for array in (*question.values(), *answers)])
            for graph in graphs:
                # Single numbers coincide by chance; of a row sent in any order, all of its numbers would
                assert np.isin(graph.features, sent.astype(np.float32)).sum(1).max() < FEATURES / 4
            client.learn(np.sum(answers, axis=0))


def test_an_answer_depends_on_the_features_alone(graphs):
    question = generator(graphs[0]).question()
    trained = generator(graphs[1], 1)
    trained.train_locally(3)
    others = [generator(graphs[1], 8, seed=5), generator(replace(graphs[1], edges=np.zeros((2, 0), np.int64)), 1)]
    expected = trained.answer(question)
    for other in others:
        np.testing.assert_equal(other.answer(question), expected)
    assert (expected != 0).any()


def test_messages_are_copies(graphs):
    client, other = generator(graphs[0]), generator(graphs[1], 1)
    before = parameters(client)
    for array in client.question().values():
        array[...] = 0
    np.testing.assert_array_equal(parameters(client), before)
    question = client.question()
    for array in question.values():
        array.flags.writeable = False
    answer = other.answer(question)
    answer.flags.writeable = False
    client.learn(answer)


# Determinism


def test_everything_follows_from_seed_and_client(graphs):
    def run(seed=31, number=0):
        torch.rand(3)  # PyTorch's own generator plays no part
        client = generator(graphs[0], number, seed)
        exchange([client, generator(graphs[1], 1)])
        return parameters(client), mended_graph(client)

    before = torch.get_rng_state()
    (first, mended), (again, same) = run(), run()
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(mended.features, same.features)
    for other in (run(seed=32), run(number=2)):
        assert (first != other[0]).any()
    torch.set_rng_state(before)
    generator(graphs[0]).train_locally(1)
    torch.testing.assert_close(torch.get_rng_state(), before)


def test_steps_differ_and_asking_or_mending_changes_nothing(graphs):
    client, other = (generator(graphs[0]) for _ in range(2))
    first = client.question()
    mended_graph(client)
    np.testing.assert_equal(client.question(), first)
    assert client.train_locally(2) == other.train_locally(2)
    second = client.question()
    assert second["inputs"].shape != first["inputs"].shape or (second["inputs"] != first["inputs"]).all()


# Mending


def test_mended_graph(graphs):
    graph = graphs[0]
    client = generator(graph, hidden_share=0.6, candidates=1)
    client.train_locally(5)
    mended, n = mended_graph(client), graph.num_nodes
    assert mended.num_nodes > n and mended.num_edges - graph.num_edges == mended.num_nodes - n
    np.testing.assert_array_equal(mended.features[:n], graph.features)
    added = mended.edges[:, mended.edges[1] >= n]
    np.testing.assert_array_equal(np.sort(added[1]), np.arange(n, mended.num_nodes))
    assert (added[0] < n).all() and np.bincount(added[0]).max() == 1


# Corner cases

SMALL = [
    {"nodes": 1, "edges": 0},
    {"nodes": 1, "edges": 0, "train": "none"},
    {"nodes": 2, "edges": 1},
    {"nodes": 12, "edges": 0},
    {"nodes": 12, "edges": 20, "train": "none"},
    {"nodes": 12, "edges": 2},
]
ODD = [(kind, {}) for kind in SMALL] + [
    (kind, settings) for kind in SMALL[1:4] for settings in ({"hidden_share": 0.9}, {"hide_from": "validation"})
]


@pytest.mark.parametrize(("kind", "settings"), ODD, ids=str)
def test_odd_clients_take_part(make_graph, graphs, kind, settings):
    odd = generator(make_graph(features=FEATURES, **kind), 1, **settings)
    clients = [generator(graphs[0]), odd]
    assert np.isfinite(odd.train_locally(2)).all()
    assert np.isfinite(exchange(clients)).all()
    assert np.isfinite(parameters(odd)).all() and odd.finish().keys() == set(neighgen.QUALITY)
    assert mended_graph(odd).num_nodes >= kind["nodes"]


def test_a_client_without_edges_learns_that_nothing_is_missing(make_graph):
    client = generator(make_graph(nodes=12, edges=0, features=FEATURES))
    assert len(client.question()["inputs"]) == 0
    assert client.train_locally(3)[-1] < 0.1
    assert mended_graph(client).num_nodes == 12


def test_a_client_without_nodes_answers_nothing(make_graph, graphs):
    empty = make_graph(nodes=1, edges=0, features=FEATURES)
    fields = ("features", "labels", "sensitive", "train", "val", "test")
    empty = generator(replace(empty, **{field: getattr(empty, field)[:0] for field in fields}), 1)
    question = generator(graphs[0]).question()
    answer = empty.answer(question)
    assert not answer.any() and answer.shape == question["parameters"].shape
    assert np.isfinite(exchange([generator(graphs[0]), empty])).all()
    assert mended_graph(empty).num_nodes == 0
