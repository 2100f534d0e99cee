"""FairGNN: its two steps as the authors' code takes them, with two optimisers; what the covariance and adversary do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from orchestrator.config import Config, load_config
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import ConfigError
from orchestrator.methods import create, method_class
from orchestrator.methods.adam_training import Batch
from orchestrator.methods.fairgnn import FairGNN, covariance
from orchestrator.models import create_network
from orchestrator.models.gcn import normalised_adjacency
from tests.class_graphs import class_graph, parts
from tests.training_runs import Crash, CrashingFolder, run

HIDDEN = 8


def config(dropout=0.0, **method):
    own = {"name": "fairgnn", "local_epochs": 5, "learning_rate": 1e-2, "weight_decay": 1e-3}
    return Config(model={"hidden": HIDDEN, "dropout": dropout}, method=own | method)


def start(graph, settings):
    """A model, and an adversary that has an opinion."""
    model = create_network(graph.num_features, 2, settings.model).initial_parameters(0)
    adversary = np.random.default_rng(1).normal(size=HIDDEN + 1)
    return np.concatenate([model, adversary]).astype(np.float32).astype(np.float64)


def trained_as_by_the_authors(graph, settings, released, known):
    """Layers one after the other in float64; the model's step, then the adversary's, of the same representation."""
    method, net = settings.method, create_network(graph.num_features, 2, settings.model)
    model = torch.tensor(released[: net.size], requires_grad=True)
    adversary = torch.tensor(released[net.size :], requires_grad=True)
    rates = {"lr": method.learning_rate, "weight_decay": method.weight_decay}
    of_model, of_adversary = (torch.optim.Adam([part], **rates) for part in (model, adversary))
    a = torch.from_numpy(normalised_adjacency(graph).toarray()).double()
    x, y, s = (torch.from_numpy(v.astype(np.float64)) for v in (graph.features, graph.labels, graph.sensitive))
    for _ in range(method.local_epochs):
        w = parts(net, model)
        hidden = a @ F.relu(a @ x @ w["layer1.weight"].T + w["layer1.bias"]) @ w["layer2.weight"].T + w["layer2.bias"]
        logits = (hidden @ w["classifier.weight"].T + w["classifier.bias"])[:, 0]
        p = torch.sigmoid(logits)[known]
        cov = torch.abs(torch.mean((s[known] - s[known].mean()) * (p - p.mean())))
        guess = (hidden @ adversary.detach()[:-1] + adversary.detach()[-1])[known]
        fooled = F.binary_cross_entropy_with_logits(guess, s[known])
        loss = F.binary_cross_entropy_with_logits(logits[graph.train], y[graph.train])
        of_model.zero_grad()
        (loss + method.covariance * cov - method.adversary * fooled).backward()
        of_model.step()
        guess = (hidden.detach() @ adversary[:-1] + adversary[-1])[known]
        of_adversary.zero_grad()
        F.binary_cross_entropy_with_logits(guess, s[known]).backward()
        of_adversary.step()
    return torch.cat([model, adversary]).detach().numpy()


@pytest.mark.parametrize("known", ["train", "all"])
@pytest.mark.parametrize("weights", [(0.0, 0.0), (5.0, 0.0), (0.0, 0.7), (5.0, 0.7)])
def test_training_is_that_of_the_authors_code(make_graph, known, weights):
    graph, settings = make_graph(), config(covariance=weights[0], adversary=weights[1], known=known)
    released = start(graph, settings)
    found = released - create(graph, settings, 0).train(released).delta
    nodes = graph.train if known == "train" else np.ones(graph.num_nodes, bool)
    expected = trained_as_by_the_authors(graph, settings, released, nodes)
    np.testing.assert_allclose(found, expected, atol=5e-5)


def test_covariance_is_numpys(make_graph):
    rng = np.random.default_rng(0)
    s, p = rng.integers(0, 2, 50).astype(np.float64), rng.random(50)
    assert float(covariance(torch.from_numpy(s), torch.from_numpy(p))) == pytest.approx(np.cov(s, p, bias=True)[0, 1])


def test_with_both_weights_zero_the_model_is_fedavgs(make_graph):
    graph, settings = make_graph(), config(dropout=0.5, covariance=0.0, adversary=0.0)
    released = start(graph, settings)
    size = len(released) - HIDDEN - 1
    plain = create(
        graph,
        Config(
            model=settings.model.model_dump(),
            method={"name": "fedavg", "local_epochs": 5, "learning_rate": 1e-2, "weight_decay": 1e-3},
        ),
        0,
    ).train(released[:size])
    fair = create(graph, settings, 0).train(released)
    np.testing.assert_allclose(fair.delta[:size], plain.delta, atol=1e-7)
    assert np.abs(fair.delta[size:]).min() > 0  # the adversary learns all the same


def test_the_adversary_sees_the_representation_of_the_same_dropout(make_graph):
    """With the classifier as adversary and the labels as groups, both losses are of the very same logits."""
    graph = make_graph()
    graph = replace(graph, sensitive=graph.labels)
    settings = config(dropout=0.5, covariance=0.0, adversary=0.0)
    client = create(graph, settings, 0)
    net = client.network
    model = net.initial_parameters(0)
    both = torch.tensor(np.concatenate([model, model[-HIDDEN - 1 :]]), dtype=torch.float32)[None]
    total = FairGNN.objective(Batch([client]), both, [np.random.default_rng(3)])
    alone = net.loss(Batch([client]).logits(both[:, : net.size], [np.random.default_rng(3)]), client.labels)
    assert float(total) == pytest.approx(2 * float(alone), rel=1e-6)


@pytest.mark.parametrize("kind", [{"train": "none"}, {"train": "one group"}, {"nodes": 1, "edges": 0}])
def test_degenerate_clients(make_graph, kind):
    graph, settings = make_graph(**kind), config()
    released = start(graph, settings)
    update = create(graph, settings, 0).train(released)
    assert np.isfinite(update.delta).all() and update.delta.shape == released.shape
    assert graph.train.any() or (update.delta == 0).all()


def test_groups_of_nodes_that_are_not_known_move_nothing(make_graph):
    graph = make_graph()
    other = replace(graph, sensitive=np.where(graph.train, graph.sensitive, 1 - graph.sensitive).astype(np.int8))
    for known in ("train", "all"):
        settings = config(known=known)
        first, second = (create(g, settings, 0).train(start(g, settings)).delta for g in (graph, other))
        assert np.array_equal(first, second) == (known == "train")


def test_a_presets_weight_of_f2gnns_penalty_is_not_taken_for_its_own():
    own = load_config(["german"], overrides=["method.name=fairgnn"]).method
    assert (own.covariance, own.adversary) == (10.0, 1.0)


def test_data_that_it_is_not_for(make_graph):
    for graph in (class_graph(), replace(make_graph(), sensitive=None)):
        with pytest.raises(ConfigError, match="fairgnn is for two classes and data with a sensitive attribute"):
            create(graph, config(), 0)


def test_one_owners_gap_falls_below_half_of_plain_trainings(make_graph):
    """The promise in the method's name, of one client that holds everything: groups that the features tell."""
    graph, rng = make_graph(nodes=200, edges=400), np.random.default_rng(0)
    x = graph.features + 2 * (graph.sensitive[:, None] == graph.labels[:, None]) * rng.random(graph.features.shape)
    x[:, 0] += 2 * graph.sensitive
    flipped = (graph.sensitive == 1) & (rng.random(200) < 0.8)
    graph = replace(graph, features=x.astype(np.float32), labels=np.where(flipped, 1, graph.labels).astype(np.int8))
    gaps = {}
    for name in ("fedavg", "fairgnn"):
        method = {"name": name, "local_epochs": 150, "learning_rate": 1e-2}
        settings = Config(model={"hidden": HIDDEN, "dropout": 0.0}, method=method)
        client = create(graph, settings, 0)
        beside = method_class(name).beside(settings)
        released = np.concatenate([client.network.initial_parameters(0), beside])
        predicted = client.predict(released - client.train(released).delta, own=False)[graph.train]
        s = graph.sensitive[graph.train]
        gaps[name] = abs(predicted[s == 1].mean() - predicted[s == 0].mean())
    assert gaps["fedavg"] > 0.15 and gaps["fairgnn"] < gaps["fedavg"] / 2, gaps


@pytest.mark.usefixtures("forkserver")
def test_federated_it_runs_on_shares_within_the_bound_and_resumes(tiny, tmp_path):
    own = ("method.name=fairgnn", "method.covariance=1")
    _, results = run(tiny(tmp_path, *own, "engine={name: embedded, preprocessing: dealer}"), audit=True)
    assert all(0 < r.difference <= r.bound for r in results)
    assert np.abs(results[-1].parameters[-method_class("fairgnn").beside(tiny(tmp_path)).size :]).min() > 0
    config = tiny(tmp_path, *own, "federation.rounds=5", "model.dropout=0.5")
    whole, results = run(config)
    broken = CrashingFolder.create(config)
    with pytest.raises(Crash):
        train(config, broken)
    resumed, read = RunFolder.open(broken.path)
    np.testing.assert_array_equal(train(read, resumed, resume=True), results[-1].parameters)
    assert (resumed.path / "metrics.jsonl").read_bytes() == (whole.path / "metrics.jsonl").read_bytes()
