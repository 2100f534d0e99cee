"""Training alone: a client goes on from its own model, whatever anybody else has."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from orchestrator.config import Config
from orchestrator.methods import create
from orchestrator.models import create_network
from tests.class_graphs import class_graph


def config(epochs=3, dropout=0.0, name="local", network="gcn-classifier"):
    return Config(
        model={"name": network, "hidden": 6, "dropout": dropout},
        method={"name": name, "local_epochs": epochs, "learning_rate": 1e-2},
        evaluation={"where": "clients"},
    )


def start(graph, seed=0, own=None):
    """Numbers that float32 holds exactly."""
    network = create_network(graph.num_features, graph.classes, (own or config()).model)
    return network.initial_parameters(seed).astype(np.float32).astype(np.float64)


def own_model(client, graph):
    """What the client ends with, from an update to a model of zeros."""
    zeros = np.zeros(len(start(graph, own=client.config)))
    return zeros - client.train(zeros).delta


def test_the_first_participation_is_fedavgs():
    graph = class_graph()
    alone, fedavg = (
        create(graph, config(dropout=0.5, name=name), 4).train(start(graph)) for name in ("local", "fedavg")
    )
    np.testing.assert_array_equal(alone.delta, fedavg.delta)
    assert alone.norm == fedavg.norm and alone.scores == {}


@pytest.mark.parametrize(("network", "classes"), [("gcn", 2), ("gcn-classifier", 3), ("sage", 3)])
def test_rounds_of_a_client_are_one_long_training(network, classes):
    """With Adam's moments, and whatever the released model says after the first round."""
    graph, short, long = class_graph(classes=classes), config(2, network=network), config(8, network=network)
    if network == "sage":
        short, long = (
            c.model_copy(update={"model": c.model.model_copy(update={"neighbours": 100})}) for c in (short, long)
        )
    client = create(graph, short, 0)
    first = start(graph, own=short)
    client.train(first)
    for number in (1, 2):
        client.train(start(graph, number, short))
    found = own_model(client, graph)
    expected = first - create(graph, long, 0).train(first).delta
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.abs(found - first).max() > 0.03


def test_predictions_are_of_its_own_model_and_the_given_one_where_it_has_none():
    graph = class_graph()
    client = create(graph, config(20), 0)
    given = client.predict(start(graph, 1), own=False)
    np.testing.assert_array_equal(client.predict(start(graph, 1), own=True), given)
    trained = start(graph) - client.train(start(graph)).delta
    np.testing.assert_array_equal(client.predict(start(graph, 1), own=False), given)
    own = client.predict(start(graph, 1), own=True)
    np.testing.assert_array_equal(own, client.predict(trained, own=False))
    assert (own != given).any()
    said = client.evaluate(start(graph, 1), own=True)
    assert set(said) == {"val", "test", "val_auc", "test_auc"}
    assert np.trace(said["val"], axis1=1, axis2=2).sum() == (own == graph.labels)[graph.val].sum()


def test_a_client_without_training_nodes_keeps_the_model_that_it_started_from():
    graph = class_graph(train="none")
    client = create(graph, config(), 0)
    client.train(start(graph))
    np.testing.assert_array_equal(own_model(client, graph), start(graph))


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_an_interrupted_client_continues_bit_by_bit(rounds):
    graph, settings = class_graph(), config(dropout=0.5)
    whole, before, after = (create(graph, settings, 2) for _ in range(3))
    expected = [whole.train(start(graph)).delta for _ in range(4)]
    for _ in range(rounds):
        before.train(start(graph))
    dump = pickle.dumps(before.state_dict())
    before.train(start(graph))  # the state is a copy
    after.load_state_dict(pickle.loads(dump))
    if rounds:  # what it says of its own model does not wait for the next training
        earlier = create(graph, settings, 2)
        for _ in range(rounds):
            earlier.train(start(graph))
        np.testing.assert_array_equal(after.predict(start(graph), True), earlier.predict(start(graph), True))
    for wanted in expected[rounds:]:
        np.testing.assert_array_equal(after.train(start(graph)).delta, wanted)


def test_loading_the_state_of_a_client_that_never_trained_forgets_the_own_model():
    graph = class_graph()
    client = create(graph, config(), 0)
    fresh = client.state_dict()
    client.train(start(graph, 1))
    client.load_state_dict(fresh)
    np.testing.assert_array_equal(
        client.train(start(graph)).delta, create(graph, config(), 0).train(start(graph)).delta
    )


def test_it_receives_nothing():
    graph = class_graph()
    with pytest.raises(NotImplementedError, match="Alone makes no model for one client alone"):
        create(graph, config(), 0).receive(start(graph))
