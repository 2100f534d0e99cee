"""The generator: its losses against the formulas, its messages, its determinism and its corner cases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.utils import parameters_to_vector

from orchestrator.methods.fedsage import neighgen
from orchestrator.methods.fedsage.impairment import mend
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
        [other.answer(q) for other in clients if other is not c] for c, q in zip(clients, questions, strict=True)
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


def test_every_network_learns_from_the_first_step_on(graphs):
    client = generator(graphs[0], weight_decay=0)
    moved(client, lambda: client.train_locally(1))
    clients = [client, generator(graphs[1], 1)]
    moved(client, lambda: exchange(clients))


def test_the_losses_fall(graphs):
    def clients():
        return [generator(graph, client, dropout=0.1, learning_rate=0.03) for client, graph in enumerate(graphs)]

    alone = [client.train_locally(30) for client in clients()]
    asking = clients()
    together = [exchange(asking) for _ in range(30)]
    for losses in (np.sum(alone, axis=0), np.sum(together, axis=1)):
        assert losses[-5:].mean() < 0.65 * losses[0]


def test_the_local_loss_is_the_formula(graphs):
    client = generator(graphs[0], hidden_share=0.5)
    impaired, features = client._impaired, torch.from_numpy(graphs[0].features)
    prediction = client._predict_impaired()
    expected = 0.0
    for v in range(len(impaired.kept)):
        gap = abs(prediction.counts[v].item() - impaired.counts[v])
        expected += gap**2 / 2 if gap < 1 else gap - 0.5
        hidden = impaired.hidden_neighbours[[v]].indices
        drawn = client._generate(prediction.noisy[[v]], prediction.chosen[[v]])
        assert len(drawn) == min(5, max(impaired.counts[v], round(prediction.counts[v].item())))
        expected += sum(min(((x - features[u]) ** 2).sum().item() for u in hidden) for x in drawn if len(hidden))
    assert client._local_loss().item() == pytest.approx(expected / len(impaired.kept), rel=1e-5)


@pytest.mark.parametrize("block", [1, 50, 2**22])
def test_gradients_through_messages_are_those_of_the_loss_computed_centrally(graphs, monkeypatch, block):
    monkeypatch.setattr(neighgen, "_BLOCK", block)
    clients = [generator(graph, client, cross_weight=0.7) for client, graph in enumerate(graphs)]
    client = clients[0]
    client.train_locally(3)
    loss = client._local_loss()
    prediction = client._predict_impaired()
    generated = client._generate(prediction.noisy.detach(), prediction.chosen)
    for other in graphs[1:]:
        squares = ((generated[:, None] - torch.from_numpy(other.features)[None]) ** 2).sum(2)
        loss = loss + 0.7 * squares.min(1).values.sum() / len(client._impaired.kept)
    central = torch.autograd.grad(loss, list(client._networks.parameters()))
    total = client.learn([other.answer(client.question()) for other in clients[1:]])
    assert total == pytest.approx(loss.item(), rel=1e-5)
    for parameter, gradient in zip(client._networks.parameters(), central, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_without_weight_the_answers_do_not_matter(graphs):
    alone, asking = (generator(graphs[0], cross_weight=0) for _ in range(2))
    alone.train_locally(1)
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


def test_samplers(graphs):
    first = generator(graphs[0], sampler="first")._predict_impaired().chosen
    random = generator(graphs[0])._predict_impaired().chosen
    assert (first[:, :-1] >= first[:, 1:]).all()
    torch.testing.assert_close(first.sum(1), random.sum(1))
    assert (random[:, :-1] < random[:, 1:]).any()


# Messages


def test_no_feature_matrix_leaves_its_client(graphs):
    """Every array of every message of a training, by name, type and shape, and searched for rows of features."""
    clients = [generator(graph, client) for client, graph in enumerate(graphs)]
    d = sum(p.numel() for p in clients[0]._generate.parameters())
    sizes = {1, 5, 7, d}
    assert FEATURES not in sizes
    for _ in range(3):
        for client in clients:
            question = client.question()
            q = len(question["embeddings"])
            assert 0 < q <= len(client._impaired.kept)
            assert {name: (array.dtype, array.shape) for name, array in question.items()} == {
                "embeddings": (np.float32, (q, 7)),
                "chosen": (np.bool_, (q, 5)),
                "parameters": (np.float32, (d,)),
            }
            assert question["chosen"].any(1).all()
            answers = [other.answer(question) for other in clients if other is not client]
            for answer in answers:
                assert {name: (array.dtype, array.shape) for name, array in answer.items()} == {
                    "gradient": (np.float32, (d,)),
                    "loss": (np.float64, ()),
                }
            sent = np.concatenate([array.ravel() for message in (question, *answers) for array in message.values()])
            for graph in graphs:
                # Single numbers coincide by chance; of a row sent in any order, all of its numbers would
                assert np.isin(graph.features, sent.astype(np.float32)).sum(1).max() < FEATURES / 4
            client.learn(answers)


def test_an_answer_depends_on_the_features_alone(graphs):
    question = generator(graphs[0]).question()
    trained = generator(graphs[1], 1)
    trained.train_locally(3)
    others = [generator(graphs[1], 8, seed=5), generator(replace(graphs[1], edges=np.zeros((2, 0), np.int64)), 1)]
    expected = trained.answer(question)
    for other in others:
        np.testing.assert_equal(other.answer(question), expected)
    assert expected["loss"] > 0 and (expected["gradient"] != 0).any()


def test_messages_are_copies(graphs):
    client, other = generator(graphs[0]), generator(graphs[1], 1)
    before = parameters(client)
    for array in client.question().values():
        array[:] = 0
    np.testing.assert_array_equal(parameters(client), before)
    question = client.question()
    for array in question.values():
        array.flags.writeable = False
    answer = other.answer(question)
    for array in answer.values():
        array.flags.writeable = False
    client.learn([answer])


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
    assert (
        second["embeddings"].shape != first["embeddings"].shape or (second["embeddings"] != first["embeddings"]).all()
    )


# Mending


@pytest.mark.parametrize("sampler", ["random", "first"])
def test_mended_graph(graphs, sampler):
    graph = graphs[0]
    client = generator(graph, sampler=sampler, hidden_share=0.6)
    client.train_locally(30)
    mended, n = mended_graph(client), graph.num_nodes
    assert mended.num_nodes > n and mended.num_edges - graph.num_edges == mended.num_nodes - n
    np.testing.assert_array_equal(mended.features[:n], graph.features)
    assert np.abs(mended.features[n:]).max() <= 1
    added = mended.edges[:, mended.edges[1] >= n]
    np.testing.assert_array_equal(np.sort(added[1]), np.arange(n, mended.num_nodes))
    assert (added[0] < n).all() and np.bincount(added[0]).max() <= 5


# Corner cases

ODD = [
    {"nodes": 1, "edges": 0},
    {"nodes": 1, "edges": 0, "train": "none"},
    {"nodes": 2, "edges": 1},
    {"nodes": 12, "edges": 0},
    {"nodes": 12, "edges": 20, "train": "none"},
    {"nodes": 12, "edges": 2},
]


@pytest.mark.parametrize("kind", ODD, ids=str)
@pytest.mark.parametrize("settings", [{}, {"hidden_share": 0.9}, {"hide_from": "validation"}], ids=str)
def test_odd_clients_take_part(make_graph, graphs, kind, settings):
    odd = generator(make_graph(features=FEATURES, **kind), 1, **settings)
    clients = [generator(graphs[0]), odd]
    assert np.isfinite(odd.train_locally(2)).all()
    assert np.isfinite(exchange(clients)).all()
    assert np.isfinite(parameters(odd)).all()
    assert mended_graph(odd).num_nodes >= kind["nodes"]


def test_a_client_without_edges_learns_that_nothing_is_missing(make_graph):
    client = generator(make_graph(nodes=12, edges=0, features=FEATURES))
    assert len(client.question()["embeddings"]) == 0
    assert client.train_locally(3)[-1] < 0.1
    assert mended_graph(client).num_nodes == 12


def test_a_client_without_nodes_answers_nothing(make_graph, graphs):
    empty = make_graph(nodes=1, edges=0, features=FEATURES)
    fields = ("features", "labels", "sensitive", "train", "val", "test")
    empty = generator(replace(empty, **{field: getattr(empty, field)[:0] for field in fields}), 1)
    question = generator(graphs[0]).question()
    answer = empty.answer(question)
    assert (
        answer["loss"] == 0
        and not answer["gradient"].any()
        and answer["gradient"].shape == question["parameters"].shape
    )
    assert np.isfinite(exchange([generator(graphs[0]), empty])).all()
    assert mended_graph(empty).num_nodes == 0
