"""GLocalFair's local Lagrangian, its score, and gaps that its constraints hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from orchestrator.config import load_config
from orchestrator.evaluation.metrics import Evaluator
from orchestrator.methods import create
from orchestrator.models import create_network


def config(name="glocalfair", **method):
    own = {"name": name, "local_epochs": 5, "learning_rate": 1e-2, "weight_decay": 0.0} | method
    return load_config(overrides=[f"method={own}".replace("'", ""), "model={hidden: 6, dropout: 0.0}"])


def start(graph, own):
    vector = create_network(graph.num_features, graph.classes, own.model).initial_parameters(0)
    return vector.astype(np.float32).astype(np.float64)


def rate_gaps(hit, s, y):
    """|TPR_1 - TPR_0| and |FPR_1 - FPR_0|, of numbers in [0, 1]."""
    return [abs(hit[(s == 1) & (y == c)].mean() - hit[(s == 0) & (y == c)].mean()) for c in (1, 0)]


def test_training_descends_on_soft_gaps_and_multipliers_ascend_on_hard_ones(make_graph):
    graph, own = make_graph(), config(step=0.7, tolerance=0.05, multiplier_max=0.9)
    released, client = start(graph, own), create(make_graph(), own, 0)
    found = released - client.train(released).delta
    net = create_network(graph.num_features, graph.classes, own.model)
    w, nodes = torch.tensor(released, dtype=torch.float32, requires_grad=True), np.flatnonzero(graph.train)
    s, y = graph.sensitive[nodes], graph.labels[nodes]
    adam, multipliers = torch.optim.Adam([w], lr=1e-2), np.zeros(2)
    for _ in range(5):
        adam.zero_grad()
        z = net.logits(w[None], net.tensors(graph))[torch.from_numpy(nodes)]
        gaps = rate_gaps(torch.sigmoid(z), torch.from_numpy(s), torch.from_numpy(y))
        loss = F.binary_cross_entropy_with_logits(z, torch.from_numpy(y).float())
        (loss + multipliers[0] * gaps[0] + multipliers[1] * gaps[1]).backward()
        adam.step()
        hard = np.array(rate_gaps((z.detach().numpy() > 0).astype(float), s, y))
        multipliers = np.clip(multipliers + 0.7 * (hard - 0.05), 0, 0.9)
    assert multipliers.max() > 0
    np.testing.assert_allclose(found, w.detach().numpy(), atol=2e-5)
    np.testing.assert_allclose(client.state_dict()["multipliers"], multipliers, atol=1e-6)


def test_the_score_says_how_fair_the_local_model_is(make_graph):
    graph, own = make_graph(), config(sharpness=3.0)
    released = start(graph, own)
    update = create(graph, own, 0).train(released)
    hit = (Evaluator(graph, own.model).logits(released - update.delta)[graph.train, 1] > 0).astype(float)
    gaps = rate_gaps(hit, graph.sensitive[graph.train], graph.labels[graph.train])
    assert update.scores["score"] == pytest.approx(3.0 * (1 - np.mean(gaps)), abs=1e-6)
    for kind in ("one group", "none"):
        lacking = make_graph(train=kind)
        assert create(lacking, own, 0).train(released).scores["score"] == pytest.approx(1.5)


def test_without_constraints_it_trains_as_fedavg(make_graph):
    graph = make_graph()
    plain = create(graph, config("fedavg"), 0).train(start(graph, config()))
    for own in (config(step=0.0), config(tolerance=1.0)):
        np.testing.assert_array_equal(create(graph, own, 0).train(start(graph, own)).delta, plain.delta)


def test_constraints_lower_the_clients_own_gaps(make_graph):
    """The promise in its name, on a client whose groups and labels go together."""
    graph = make_graph(120, 200)
    labels = np.where(np.arange(120) % 7 < 5, graph.sensitive, graph.labels).astype(np.int8)
    object.__setattr__(graph, "labels", labels)
    features = graph.features + np.where(graph.sensitive == 1, 1.5, -1.5)[:, None]
    object.__setattr__(graph, "features", features.astype(np.float32))
    late = {}
    for step in (0.0, 0.3):
        own = config(step=step, local_epochs=150)
        model = start(graph, own) - create(graph, own, 0).train(start(graph, own)).delta
        soft = 1 / (1 + np.exp(-Evaluator(graph, own.model).logits(model)[graph.train, 1]))
        late[step] = np.mean(rate_gaps(soft, graph.sensitive[graph.train], labels[graph.train]))
    assert late[0.3] < late[0.0] / 2, late


def test_multipliers_are_forgotten_without_state(make_graph):
    graph = make_graph()
    kept, forgotten = config(step=0.5), config(step=0.5, stateful=False)
    for own, same in ((kept, False), (forgotten, True)):
        client, released = create(graph, own, 0), start(graph, own)
        first, second = client.train(released), client.train(released)
        assert np.array_equal(first.delta, second.delta) == same
        assert ("multipliers" in client.state_dict()) != same
