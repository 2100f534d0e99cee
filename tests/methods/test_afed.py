"""AFed-GAN: who learns from what, a generator that comes to resemble the nodes, and samples that balance the cells."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from orchestrator.config import load_config
from orchestrator.errors import ConfigError
from orchestrator.methods import create, method_class
from orchestrator.methods.adam_training import Batch
from orchestrator.methods.afed import Networks
from orchestrator.models import create_network

HIDDEN = 6


def config(name="afed", **method):
    own = {"name": name, "local_epochs": 3, "learning_rate": 1e-2, "weight_decay": 0.0} | method
    return load_config(overrides=[f"method={own}".replace("'", ""), f"model={{hidden: {HIDDEN}, dropout: 0.0}}"])


def start(graph, own):
    model = create_network(graph.num_features, graph.classes, own.model).initial_parameters(0)
    numbers = np.concatenate([model, method_class(own.method.name).beside(own)])
    return numbers.astype(np.float32).astype(np.float64)


def test_embeddings_read_are_the_networks_logits(make_graph):
    graph, own = make_graph(), config()
    net = create_network(graph.num_features, 2, own.model)
    model, tensors = torch.tensor(net.initial_parameters(3), dtype=torch.float32), net.tensors(graph)
    model = model + 0.1  # biases too
    rows = net.embeddings(model[None], tensors)
    assert rows.shape == (graph.num_nodes, HIDDEN) and (rows >= 0).all()
    np.testing.assert_allclose(net.read(model, rows).numpy(), net.logits(model[None], tensors).numpy(), atol=1e-5)


def test_each_of_the_three_learns_from_its_own_loss_alone(make_graph):
    graph, own = make_graph(), config(augment=0.7, samples=8, matching=3.0)
    client = create(graph, own, 0)
    released = torch.tensor(start(graph, own), dtype=torch.float32)
    net, rng = client.network, np.random.default_rng(5)
    size = net.size
    trained = released[None].clone().requires_grad_()
    batch = Batch([client])
    [found] = torch.autograd.grad(type(client).objective(batch, trained, [np.random.default_rng(5)]), trained)
    drawn, cells = torch.from_numpy(rng.standard_normal((8, 8), np.float32)), torch.arange(8) % 4
    nodes = torch.from_numpy(np.flatnonzero(graph.train))
    own_cells = torch.from_numpy((2 * graph.sensitive + graph.labels)[graph.train].astype(np.int64))
    y = torch.from_numpy(graph.labels[graph.train]).float()
    with torch.no_grad():
        made = Networks(released[size:], HIDDEN).generate(drawn, cells)
        rows = net.embeddings(released[None, :size], client.tensors)[nodes]

    def bce(z, target):
        return F.binary_cross_entropy_with_logits(z, target)

    model = released[:size].clone().requires_grad_()
    loss = bce(net.logits(model[None], client.tensors)[nodes], y) + 0.7 * bce(
        net.read(model, made), (cells % 2).float()
    )
    np.testing.assert_allclose(found[0, :size], torch.autograd.grad(loss, model)[0], atol=1e-6)

    pair = released[size:].clone().requires_grad_()
    networks = Networks(pair, HIDDEN)
    true, false = networks.judge(rows, own_cells), networks.judge(made, cells)
    [judging] = torch.autograd.grad(bce(true, torch.ones(len(true))) + bce(false, torch.zeros(8)), pair)
    fooled = Networks(pair, HIDDEN).judge(Networks(pair, HIDDEN).generate(drawn, cells), cells)
    again = Networks(pair, HIDDEN).generate(drawn, cells)
    apart = [((again[c::4].mean(0) - rows[own_cells == c].mean(0)) ** 2).sum() for c in range(4)]
    [fooling] = torch.autograd.grad(bce(fooled, torch.ones(8)) + 3.0 * sum(apart) / 4, pair)
    generator = 12 * 32 + 32 + 32 * HIDDEN + HIDDEN
    np.testing.assert_allclose(found[0, size : size + generator], fooling[:generator], atol=1e-6)
    np.testing.assert_allclose(found[0, size + generator :], judging[generator:], atol=1e-6)


def test_without_augmentation_the_model_trains_as_fedavgs(make_graph):
    graph = make_graph()
    plain = create(graph, config("fedavg"), 0).train(start(graph, config("fedavg"))).delta
    update = create(graph, config(augment=0.0), 0).train(start(graph, config(augment=0.0))).delta
    np.testing.assert_allclose(update[: len(plain)], plain, atol=1e-6)
    assert np.abs(update[len(plain) :]).max() > 1e-3  # the generator learns all the same


def test_the_generator_beats_its_start_and_the_mean_of_all_nodes(make_graph):
    """Distances of the cells' mean embeddings; the labels of this graph show in its features."""
    graph, own = make_graph(120, 100), config(local_epochs=500, augment=0.0, learning_rate=3e-3)
    client, released = create(graph, own, 0), start(graph, own)
    after = released - client.train(released).delta
    size, net = client.network.size, client.network
    cells = (2 * graph.sensitive + graph.labels)[graph.train]
    rows = net.embeddings(torch.tensor(after[None, :size], dtype=torch.float32), client.tensors)[client.nodes].numpy()
    truth = np.stack([rows[cells == c].mean(axis=0) for c in range(4)])

    def distance(numbers):
        networks = Networks(torch.tensor(numbers[size:], dtype=torch.float32), HIDDEN)
        noise = torch.from_numpy(np.random.default_rng(1).standard_normal((400, 8), np.float32))
        made = networks.generate(noise, torch.arange(400) % 4).detach().numpy()
        return np.linalg.norm([made[c::4].mean(axis=0) - truth[c] for c in range(4)])

    trivial = np.linalg.norm(truth - rows.mean(axis=0))
    assert distance(after) < min(trivial, distance(released)) / 2, (distance(after), trivial, distance(released))


def test_what_a_server_would_have_to_see_is_refused_by_name():
    for wrong, setting in (
        ("method={name: afed, variant: g}", "variant"),
        ("method={name: glocalfair, aggregation: clusters}", "aggregation"),
    ):
        with pytest.raises(
            ConfigError, match=rf"method\.{setting} = \w+ needs a server that sees every client's model"
        ):
            load_config(overrides=[wrong])


def test_samples_are_of_all_cells_alike():
    with pytest.raises(ConfigError, match=r"method\.samples"):
        config(samples=6)
