"""What FedProx's and the fair methods of table 1 have in common: both engines, resuming, batches, what they refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.config import load_config
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import ConfigError
from orchestrator.methods import create, method_class
from orchestrator.models import create_network
from tests.class_graphs import class_graph
from tests.training_runs import Crash, crash_after, run

FAIR = {
    "fairfed": {"beta": 2.0},
    "glocalfair": {"step": 0.5},
    "privfairfl": {},
    "afed": {"samples": 8},
    "f2pgnn": {"scale": 0.9},
    "fedfairgnn": {"parity": 2.0},
}
"""By name, with settings that make a difference in a few rounds."""

NAMES = [*FAIR]


def config(name, **method):
    own = {"name": name, "local_epochs": 3, "learning_rate": 1e-2} | FAIR[name] | method
    return load_config(overrides=[f"method={own}".replace("'", ""), "model={hidden: 6, dropout: 0.0}"])


def start(graph, own):
    model = create_network(graph.num_features, graph.classes, own.model).initial_parameters(0)
    beside = method_class(own.method.name).beside(own)
    released = np.concatenate([model, np.random.default_rng(3).uniform(0.1, 0.4, len(beside))])
    return released.astype(np.float32).astype(np.float64)


def tiny_run(tiny, tmp_path, name, *more):
    """Cohorts of two of three clients, so that some keep state over a round that they miss."""
    method = f"method={ {'name': name} | FAIR[name] }".replace("'", "")
    federation = ("clients.count=3", "federation={rounds: 2, cohort: 2}", "run.checkpoint_rounds=1")
    return tiny(tmp_path, method, *federation, *more)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "privfairfl"])  # whose own test does
def test_on_secret_shares_it_is_the_same_method(tiny, tmp_path, name):
    _, results = run(tiny_run(tiny, tmp_path, name, "engine={name: embedded, preprocessing: dealer}"), audit=True)
    assert all(0 < result.difference <= result.bound for result in results)


def test_a_run_resumes_as_it_was(tiny, tmp_path):
    """FairFed's, which has both numbers beside the model and a state at clients."""
    own = tiny_run(tiny, tmp_path, "fairfed", "federation.rounds=4")
    _, results = run(own)
    broken, after = RunFolder.create(own), []
    with pytest.raises(Crash):
        train(own, broken, observe=lambda result: crash_after(2, result))
    resumed, read = RunFolder.open(broken.path)
    model = train(read, resumed, resume=True, observe=after.append)
    assert 1 < after[0].round <= 3
    np.testing.assert_array_equal(model, results[-1].parameters)


@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_is_restored_goes_on_as_if_it_had_not_been(make_graph, name):
    own, graph = config(name), make_graph()
    first = create(graph, own, 0)
    released = start(graph, own)
    for _ in range(2):
        released = released - first.train(released).delta
    second = create(graph, own, 0)
    second.load_state_dict(first.state_dict())
    updates = [client.train(released) for client in (first, second, create(graph, own, 0))]
    np.testing.assert_array_equal(updates[0].delta, updates[1].delta)
    assert updates[0].scores == updates[1].scores
    assert not np.array_equal(updates[0].delta, updates[2].delta)  # it does have a state


@pytest.mark.parametrize("name", NAMES)
def test_clients_in_a_batch_train_as_alone(make_graph, name):
    own = config(name)
    graphs = [make_graph(), make_graph(30, 60), make_graph(train="one group"), make_graph(train="none")]
    released = start(graphs[0], own)
    alone = [create(graph, own, c).train(released) for c, graph in enumerate(graphs)]
    together = method_class(name).train_together([create(g, own, c) for c, g in enumerate(graphs)], released)
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one.delta, other.delta, atol=2e-6)
        assert one.scores == pytest.approx(other.scores, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "kind", [{"train": "none"}, {"train": "one class"}, {"train": "one group"}, {"nodes": 1, "edges": 0}]
)
def test_degenerate_clients(make_graph, name, kind):
    own, graph = config(name), make_graph(**kind)
    released = start(graph, own)
    for ledger in (0.0, 1.0, -50.0):  # as it starts, as it is, and as noise may leave it
        released[create_network(graph.num_features, 2, own.model).size :] *= ledger
        update = create(graph, own, 0).train(released)
        assert np.isfinite(update.delta).all() and update.norm == pytest.approx(np.linalg.norm(update.delta))
        assert all(
            0 <= score <= own.method.rule_parameters(own.model)["fairness_max"] for score in update.scores.values()
        )


@pytest.mark.parametrize("name", NAMES)
def test_labels_of_test_nodes_move_nothing(make_graph, name):
    graph, own = make_graph(), config(name)
    graph = replace(graph, val=np.zeros_like(graph.val), test=graph.val)
    other = replace(graph, labels=np.where(graph.test, 1 - graph.labels, graph.labels).astype(np.int8))
    updates = [create(g, own, 0).train(start(g, own)) for g in (graph, other)]
    np.testing.assert_array_equal(updates[0].delta, updates[1].delta)
    assert updates[0].scores == updates[1].scores


@pytest.mark.parametrize("name", NAMES)
def test_data_that_it_is_not_for(make_graph, name):
    for graph in (class_graph(), replace(make_graph(), sensitive=None)):
        with pytest.raises(ConfigError) as caught:
            create(graph, config(name), 0)
        assert str(caught.value) == f"method.name = {name} is for two classes and data with a sensitive attribute"
