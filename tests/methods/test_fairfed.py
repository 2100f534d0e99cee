"""FairFed against its paper's equation, round by round, and what its servers compute of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit

from mpc_programs.rules import RoundParameters
from orchestrator.config import load_config
from orchestrator.coordinator.audit import float64_aggregate
from orchestrator.evaluation.metrics import Evaluator
from orchestrator.methods import create, method_class
from orchestrator.methods.base import LocalUpdate
from orchestrator.methods.fairfed import FairFed, Ledger
from orchestrator.methods.reweighing import reweighing
from orchestrator.models import create_network


def config(name="fairfed", **method):
    own = {"name": name, "local_epochs": 3, "learning_rate": 2e-2} | method
    return load_config(overrides=[f"method={own}".replace("'", ""), "model={hidden: 6, dropout: 0.0}"])


def start(graph, own):
    model = create_network(graph.num_features, graph.classes, own.model).initial_parameters(0)
    return np.concatenate([model, method_class(own.method.name).beside(own)])


def rates(graph, own, model):
    """(F for sp, F for eo, accuracy) of a client's training nodes, and its cells, by direct counts."""
    hit = (Evaluator(graph, own.model).logits(model)[:, 1] > 0)[graph.train]
    s, y = graph.sensitive[graph.train] == 1, graph.labels[graph.train] == 1
    with np.errstate(invalid="ignore"):
        gaps = [
            hit[s & among].sum() / (s & among).sum() - hit[~s & among].sum() / (~s & among).sum()
            for among in (s | ~s, y)
        ]
    return (
        *gaps,
        (hit == y).mean(),
        [((s == g) & w & h).mean() for h in (s | ~s, hit) for w in (s | ~s, y) for g in (0, 1)],
    )


@pytest.mark.parametrize("metric", ["sp", "eo"])
def test_weights_are_those_of_the_papers_equation_over_rounds(make_graph, metric):
    """With all clients in every round and rate 1 the federation's figures are those of the released model before."""
    own = config(beta=0.8, metric=metric, rate=1.0)
    graphs = [make_graph(40, 90), make_graph(30, 60), make_graph(25, 50), make_graph(train="one group")]
    clients, released = [create(graph, own, c) for c, graph in enumerate(graphs)], start(graphs[0], own)
    size, column = len(released) - Ledger.SIZE, ("sp", "eo").index(metric)
    rule = RoundParameters("softmax", 4, **own.method.rule_parameters(own.model))
    weights, previous, mean = np.ones(4), None, None
    moved = 0.0
    for _ in range(5):
        told = [rates(graph, own, released[:size]) for graph in graphs]
        distances = None
        if previous is not None:
            f, accuracy = previous
            distances = np.array(
                [abs(f - t[column]) if math.isfinite(t[column]) else abs(accuracy - t[2]) for t in told]
            )
            if mean is not None:
                weights = np.clip(weights - 0.8 * (distances - mean), 0.25, 4)
                moved = max(moved, np.abs(weights - 1).max())
            mean = distances.mean()
        cells = np.mean([t[3] for t in told], axis=0).reshape(2, 2, 2)  # hit, among, group
        previous = float(np.diff(cells[1, column] / cells[0, column])[0]), np.mean([t[2] for t in told])
        updates = FairFed.train_together(clients, released)
        found = np.array([update.scores["score"] for update in updates])
        np.testing.assert_allclose(0.25 * np.exp(found), weights, atol=1e-9)
        local = np.stack([released[:size] - update.delta[:size] for update in updates])
        released = float64_aggregate(released, rule, None, updates)
        np.testing.assert_allclose(released[:size], weights @ local / weights.sum(), atol=1e-9)
        # The next test is about how far the ledger moves; here it is at the means.
        released[size:] = np.concatenate([*cells.transpose(0, 1, 2).reshape(4, 2), [previous[1]], [0.0, 0.0]])
        if distances is not None:
            released[-2:] = distances.mean(), 1.0
    assert moved > 0.02


def test_the_ledger_moves_to_the_plain_means_whatever_the_weights(make_graph):
    own = config(rate=0.5, beta=0.0)
    graphs = [make_graph(40, 90), make_graph(30, 60)]
    clients, released = [create(graph, own, c) for c, graph in enumerate(graphs)], start(graphs[0], own)
    for client, weight in zip(clients, (0.5, 3.0), strict=True):
        client.load_state_dict(client.state_dict() | {"weight": weight})
    released[-Ledger.SIZE :] = np.linspace(0.1, 0.3, Ledger.SIZE)
    rule = RoundParameters("softmax", 2, **own.method.rule_parameters(own.model))
    after = float64_aggregate(released, rule, None, FairFed.train_together(clients, released))[-Ledger.SIZE :]
    told = [rates(graph, own, released[: -Ledger.SIZE]) for graph in graphs]
    f = Ledger.of(released[-Ledger.SIZE :])
    own_numbers = []
    for _, eo, accuracy, cells in told:
        own_numbers.append([*np.array(cells).reshape(4, 2).ravel(), accuracy, abs(f.gaps[1] - eo), 1.0])
    step = 0.5 * 2 / 3.5  # the rate times q / sum w
    np.testing.assert_allclose(after, f.numbers + step * (np.mean(own_numbers, axis=0) - f.numbers), atol=1e-9)


def test_a_federation_of_like_clients_and_beta_0_are_fedavg(make_graph):
    graph = make_graph()
    plain = create(graph, config("fedavg"), 0).train(start(graph, config("fedavg")))
    for own in (config(debias="none"), config(debias="none", beta=0.0)):
        update = create(graph, own, 0).train(start(graph, own))
        np.testing.assert_array_equal(update.delta[: -Ledger.SIZE], plain.delta)
        assert update.scores["score"] == pytest.approx(math.log(4))


def test_without_state_every_participation_starts_from_weight_one(make_graph):
    graph, own = make_graph(), config(stateful=False, beta=0.5)
    client, released = create(graph, own, 0), start(graph, own)
    released[-Ledger.SIZE :] = [*[0.5, 0.5, 0.2, 0.2, 0.3, 0.1, 0.1, 0.1], 0.5, 0.1, 1.0]
    first, second = client.train(released), client.train(released)
    assert first.scores == second.scores and first.scores["score"] != pytest.approx(math.log(4))
    kept = create(graph, config(beta=0.5), 0)
    assert kept.train(released).scores != kept.train(released).scores


def test_the_weight_stays_in_its_public_range(make_graph):
    graph, own = make_graph(), config(beta=50.0)
    released = start(graph, own)
    for mean, end in ((0.0, 0.0), (2.0, math.log(16))):
        released[-Ledger.SIZE :] = [*[0.5, 0.5, 0.2, 0.2, 0.3, 0.0, 0.2, 0.0], 0.5, mean, 1.0]
        assert create(graph, own, 0).train(released).scores["score"] == pytest.approx(end, abs=1e-12)


def test_reweighed_groups_and_labels_are_independent_and_the_loss_is_that_of_the_weights(make_graph):
    rng = np.random.default_rng(1)
    for counts in (rng.integers(1, 20, (2, 2)), np.array([[3, 0], [2, 5]])):
        weights = reweighing(counts)
        joint = weights * counts / counts.sum()
        if counts.min() > 0:
            np.testing.assert_allclose(joint, np.outer(joint.sum(1), joint.sum(0)), atol=1e-12)
            np.testing.assert_allclose(joint.sum(0), counts.sum(0) / counts.sum(), atol=1e-12)
        for s, y in np.argwhere(counts):
            expected = counts[s].sum() * counts[:, y].sum() / counts.sum() / counts[s, y]
            assert weights[s, y] == pytest.approx(expected)
    np.testing.assert_array_equal(reweighing(np.zeros((2, 2))), np.ones((2, 2)))
    np.testing.assert_array_equal(reweighing(-np.ones((2, 2))), np.ones((2, 2)))

    graph, own = make_graph(train="half"), config(local_epochs=1, weight_decay=0.0)
    labels = np.where(graph.sensitive == 1, 1, graph.labels).astype(np.int8)  # group 1 is all positive
    object.__setattr__(graph, "labels", labels)
    released = start(graph, own)
    moved = create(graph, own, 0).train(released).delta[: -Ledger.SIZE]
    s, y = graph.sensitive[graph.train], labels[graph.train]
    w = np.array([(s == a).mean() * (y == b).mean() / ((s == a) & (y == b)).mean() for a, b in zip(s, y, strict=True)])
    logits = Evaluator(graph, own.model).logits(released[: -Ledger.SIZE])[graph.train, 1]
    bias = np.sign((w * (expit(logits) - y)).mean())  # the gradient of the classifier's bias, the vector's last number
    assert moved[-1] == pytest.approx(2e-2 * bias, rel=1e-3)


def test_uploads_of_like_weights_are_a_plain_mean():
    rule = RoundParameters("softmax", 3, fairness_max=math.log(16))
    uploads = [LocalUpdate(delta, 1.0, {"score": math.log(4)}) for delta in np.eye(3)]
    np.testing.assert_allclose(float64_aggregate(np.zeros(3), rule, None, uploads), -np.full(3, 1 / 3), atol=1e-12)
