from __future__ import annotations

import numpy as np
import pytest
import torch

from orchestrator.config import Config
from orchestrator.evaluation.metrics import Evaluator
from orchestrator.methods import create, f2gnn
from orchestrator.methods.f2gnn import F2GNN
from orchestrator.models import create_network

FAST = {"local_epochs": 3, "learning_rate": 1e-2}


def config(clients=None, seed=31, dropout=0.5, **method):
    return Config(seed=seed, model={"hidden": 8, "dropout": dropout}, method=FAST | method, clients=clients or {})


def start(graph, seed=0):
    return create_network(graph.num_features, graph.classes, config().model).initial_parameters(seed)


def rounds(client, parameters, count):
    """Train again and again, the client's own model becoming the global one."""
    updates = []
    for _ in range(count):
        updates.append(client.train(parameters))
        parameters = parameters - 0.5 * updates[-1].delta
    return updates, parameters


def local_model(client):
    return client.state_dict()["local"]


def test_delta_is_global_minus_local(make_graph):
    graph = make_graph()
    client, parameters = create(graph, config(), 0), start(make_graph())
    for seed in (0, 1):
        released = start(graph, seed)
        update = client.train(released)
        np.testing.assert_array_equal(update.delta, released - local_model(client))
        assert update.delta.dtype == np.float64 and update.delta.shape == parameters.shape
        assert update.norm == np.linalg.norm(update.delta) > 0


def test_training_lowers_the_loss_so_that_subtracting_delta_helps(make_graph):
    graph = make_graph()
    settings = config(dropout=0.0, local_epochs=20)
    parameters = start(graph)
    evaluator = Evaluator(graph, settings.model)

    def loss(vector):
        logits = torch.from_numpy(evaluator.logits(vector)[graph.train, 1])
        labels = torch.from_numpy(graph.labels[graph.train]).float()
        return float(torch.nn.functional.binary_cross_entropy_with_logits(logits, labels))

    update = create(graph, settings, 0).train(parameters)
    assert loss(parameters - update.delta) < loss(parameters) < loss(parameters + update.delta)


def test_auc_rises_on_a_learnable_graph(make_graph):
    graph = make_graph(nodes=120, edges=120)
    settings = config()
    evaluator = Evaluator(graph, settings.model)
    parameters = start(graph, seed=1)
    _, trained = rounds(create(graph, settings, 0), parameters, 15)
    before, after = (evaluator.evaluate(w)["val"].metrics["auc"] for w in (parameters, trained))
    assert after > before + 0.1 and after > 0.85


def test_first_participation_starts_from_the_global_model(make_graph, monkeypatch):
    graph = make_graph()
    seen = []
    monkeypatch.setitem(f2gnn._DIVERGENCES, "js", lambda *args: seen.append(args) or 0.0)
    create(graph, config(), 0).train(start(graph))
    assert seen == []
    create(graph, config(local_init="own"), 0).train(start(graph))
    assert len(seen) == 1


def test_own_local_models_differ_by_client_and_seed(make_graph):
    graph = make_graph()
    models = [
        local_model(F2GNN(graph, config(local_init="own", seed=seed), client))
        for seed, client in ((1, 0), (1, 1), (2, 0))
    ]
    assert (models[0] != models[1]).any() and (models[0] != models[2]).any()
    np.testing.assert_array_equal(models[0], local_model(F2GNN(graph, config(local_init="own", seed=1), 0)))


@pytest.mark.parametrize("stateful", [True, False])
def test_a_first_local_model_is_trained_from_the_clients_own_start(make_graph, monkeypatch, stateful):
    """Algorithm 1, line 3: what a client has that is released its own start, and trains on it without another model."""
    graph, seen = make_graph(), []
    own = local_model(F2GNN(graph, config(local_init="own", dropout=0.0), 0))
    alone = create(graph, config(dropout=0.0), 0)
    alone.train(own)
    monkeypatch.setitem(f2gnn._DIVERGENCES, "js", lambda *args: seen.append(args[0]) or 1.0)
    client = create(graph, config(local_init="trained", dropout=0.0, stateful=stateful), 0)
    for seed in (0, 1):
        client.train(start(graph, seed))
    expected = Evaluator(graph, config().model).logits(local_model(alone))[graph.train, 1]
    np.testing.assert_allclose(seen[0], expected, atol=1e-6)
    assert (seen[0] == seen[1]).all() != stateful  # without a state, every participation is as the first


@pytest.mark.parametrize("js", [0.0, 0.25, 1.0])
def test_start_interpolates_between_local_and_global(make_graph, monkeypatch, js):
    graph = make_graph()
    monkeypatch.setitem(f2gnn._DIVERGENCES, "js", lambda *_: js)
    client = create(graph, config(learning_rate=1e-12), 0)  # training moves nothing to speak of
    first, second = start(graph, 0), start(graph, 1)
    client.train(first)
    client.train(second)
    np.testing.assert_allclose(local_model(client), (1 - js) * first + js * second, atol=1e-6)


def test_divergence_compares_training_nodes(make_graph, monkeypatch):
    graph = make_graph()
    seen = []
    monkeypatch.setitem(f2gnn._DIVERGENCES, "js", lambda *args: seen.append(args) or 0.5)
    settings = config(local_init="own", tau_combine=0.25)
    client, released = create(graph, settings, 0), start(graph)
    own = local_model(client)
    client.train(released)
    ((local, other, temperature),) = seen
    evaluator = Evaluator(graph, settings.model)
    np.testing.assert_array_equal(local, evaluator.logits(own)[graph.train, 1])
    np.testing.assert_array_equal(other, evaluator.logits(released)[graph.train, 1])
    assert temperature == 0.25


def updates_with(graph, **method):
    client = create(graph, config(**method), 0)
    return [client.train(start(graph, seed)) for seed in (0, 1)]


def differ(a, b):
    return any((x.delta != y.delta).any() for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    ("switch", "value"),
    [
        ("divergence", "js_distance_over_nodes"),
        ("divergence_local_mode", "train"),
        ("local_init", "own"),
        ("local_init", "trained"),
        ("tau_combine", 10.0),
    ],
)
def test_switches_of_the_start_change_the_update(make_graph, switch, value):
    graph = make_graph()
    assert differ(updates_with(graph, tau_combine=0.1), updates_with(graph, **({"tau_combine": 0.1} | {switch: value})))


@pytest.mark.parametrize(
    ("switch", "value"), [("penalty", "broadcast"), ("eo_denominator", "group"), ("alpha", 0.0), ("tau_fair", 1.0)]
)
def test_switches_of_the_penalty_change_the_update(make_graph, switch, value):
    graph = make_graph(train="half")
    assert graph.labels[graph.train & (graph.sensitive == 0)].sum() > 0
    base = {"alpha": 1.0}
    assert differ(updates_with(graph, **base), updates_with(graph, **(base | {switch: value})))


def test_divergence_in_training_mode_is_noisy_but_the_global_model_is_not(make_graph, monkeypatch):
    graph = make_graph()
    seen = {}
    for mode in ("eval", "train"):
        monkeypatch.setitem(f2gnn._DIVERGENCES, "js", lambda *args, mode=mode: seen.update({mode: args}) or 0.5)
        create(graph, config(local_init="own", divergence_local_mode=mode), 0).train(start(graph))
    assert (seen["eval"][0] != seen["train"][0]).any()
    np.testing.assert_array_equal(seen["eval"][1], seen["train"][1])


def expected_penalty(graph, settings, parameters):
    """NumPy, from the definitions."""
    logits = Evaluator(graph, settings.model).logits(parameters)[graph.train, 1].astype(np.float64)
    p = 1 / (1 + np.exp(-logits / settings.method.tau_fair))
    y, s = graph.labels[graph.train], graph.sensitive[graph.train]
    rate = [p[s == g].mean() for g in (0, 1)]
    hit = [p[(s == g) & (y == 1)].mean() for g in (0, 1)]
    return abs(rate[0] - rate[1]) + abs(hit[0] - hit[1])


def test_score_is_the_penalty_of_the_trained_model(make_graph):
    graph, settings = make_graph(), config()
    client = create(graph, settings, 0)
    update = client.train(start(graph))
    assert set(update.scores) == {"balance", "fairness"}
    assert update.scores["fairness"] == pytest.approx(expected_penalty(graph, settings, local_model(client)), rel=1e-4)


def test_score_of_the_last_epoch_is_the_penalty_before_the_last_step(make_graph):
    graph = make_graph()
    settings = config(dropout=0.0, score_from="last_epoch")
    update = create(graph, settings, 0).train(start(graph))
    earlier = create(graph, config(dropout=0.0, local_epochs=2), 0)
    earlier.train(start(graph))
    assert update.scores["fairness"] == pytest.approx(expected_penalty(graph, settings, local_model(earlier)), rel=1e-4)
    noisy = create(graph, config(score_from="last_epoch"), 0).train(start(graph))
    assert noisy.scores["fairness"] != update.scores["fairness"]


def test_reciprocal_score_is_capped(make_graph):
    graph = make_graph()
    penalty = create(graph, config(), 0).train(start(graph)).scores["fairness"]
    free = create(graph, config(score="reciprocal", score_max=1e5), 0).train(start(graph)).scores["fairness"]
    assert free == pytest.approx(1 / (penalty + 1e-5))
    assert create(graph, config(score="reciprocal", score_max=2.0), 0).train(start(graph)).scores["fairness"] == 2.0
    assert create(graph, config(score_max=1e-9), 0).train(start(graph)).scores["fairness"] == 1e-9


@pytest.mark.parametrize("self_loops", [False, True])
def test_balance_score_follows_its_switch(make_graph, monkeypatch, self_loops):
    graph = make_graph()
    monkeypatch.setattr(f2gnn, "group_balance", lambda g, loops: 0.75 if loops else 0.5)
    client = create(graph, config(clients={"balance_self_loops": self_loops}), 0)
    assert client.train(start(graph)).scores["balance"] == (0.75 if self_loops else 0.5)


REFERENCE = {
    "penalty": "broadcast",
    "eo_denominator": "group",
    "divergence": "js_distance_over_nodes",
    "divergence_local_mode": "train",
    "score": "reciprocal",
    "score_from": "last_epoch",
    "local_init": "own",
    "score_max": 1e5,
}


@pytest.mark.parametrize("method", [{}, REFERENCE])
@pytest.mark.parametrize(
    "kind",
    [
        {"train": "none"},
        {"train": "one class"},
        {"train": "one group"},
        {"train": "one node"},
        {"nodes": 1, "edges": 0},
        {"nodes": 1, "edges": 0, "train": "none"},
        {"nodes": 8, "edges": 0},
    ],
)
def test_degenerate_clients_never_give_nan(make_graph, kind, method):
    graph = make_graph(**kind)
    settings = config(**method)
    client = create(graph, settings, 3)
    for seed in range(3):
        update = client.train(start(graph, seed))
        assert np.isfinite(update.delta).all() and np.isfinite(update.norm)
        assert 0 <= update.scores["balance"] <= 1
        assert 0 <= update.scores["fairness"] <= settings.method.score_max
        if not graph.train.any():
            assert (update.delta == 0).all() and update.scores["fairness"] == 0
            np.testing.assert_array_equal(local_model(client), start(graph, seed))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_a_global_model_that_is_not_usable_is_named(make_graph, bad):
    from orchestrator.errors import RangeError

    graph = make_graph()
    parameters = start(graph)
    parameters[5] = bad
    with pytest.raises(RangeError, match="client 7"):
        create(graph, config(), 7).train(parameters)
