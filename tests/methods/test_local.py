"""What every method must do, whatever its loss: one set of tests run over all of them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from orchestrator.config import Config
from orchestrator.methods import METHODS, LocalMethod, create
from orchestrator.models import initial_parameters

NAMES = sorted(METHODS)


def config(name, seed=31, **method):
    return Config(
        seed=seed, model={"hidden": 8, "dropout": 0.5}, method={"name": name, "local_epochs": 3, "alpha": 0.1} | method
    )


def start(graph, seed=0):
    return initial_parameters(graph.num_features, config("fedavg").model, seed)


def run(client, graph, first, last):
    """Rounds first to last - 1 of a run whose global model is another one each round."""
    return [client.train(start(graph, round)) for round in range(first, last)]


def assert_equal(a, b):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x.delta, y.delta)
        assert (x.norm, dict(x.scores)) == (y.norm, dict(y.scores))


@pytest.mark.parametrize("name", NAMES)
def test_create_follows_the_configuration(make_graph, name):
    client = create(make_graph(), config(name), 0)
    assert type(client) is METHODS[name] and isinstance(client, LocalMethod)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("local_init", ["global", "own"])
@pytest.mark.parametrize("taken", [0, 1, 2])
def test_an_interrupted_client_continues_bit_by_bit(make_graph, name, local_init, taken):
    graph, settings = make_graph(), config(name, local_init=local_init)
    whole = run(create(graph, settings, 2), graph, 0, 5)
    before = create(graph, settings, 2)
    assert_equal(run(before, graph, 0, taken), whole[:taken])
    dump = pickle.dumps(before.state_dict())
    run(before, graph, taken, 5)  # the state is a copy: training on does not change it
    after = create(graph, settings, 2)
    after.load_state_dict(pickle.loads(dump))
    assert_equal(run(after, graph, taken, 5), whole[taken:])


@pytest.mark.parametrize("name", NAMES)
def test_state_is_plain_data_and_loading_forgets_what_was(make_graph, name):
    graph, settings = make_graph(), config(name)
    client = create(graph, settings, 0)
    empty = client.state_dict()
    fresh = run(client, graph, 0, 2)

    def leaves(value):
        return [x for item in value.values() for x in leaves(item)] if isinstance(value, dict) else [value]

    assert all(isinstance(leaf, (int, float, np.ndarray)) for leaf in leaves(client.state_dict()))
    client.load_state_dict(empty)
    assert_equal(run(client, graph, 0, 2), fresh)


@pytest.mark.parametrize("name", NAMES)
def test_training_is_a_function_of_seed_client_and_participation(make_graph, name):
    graph = make_graph()

    def deltas(seed=31, client=0, count=1):
        torch.rand(3)  # the global generator plays no part
        member = create(graph, config(name, seed=seed), client)
        return [member.train(start(graph)).delta for _ in range(count)]

    (base,) = deltas()
    np.testing.assert_array_equal(base, deltas()[0])
    assert (base != deltas(seed=32)[0]).any()
    assert (base != deltas(client=1)[0]).any()
    assert (base != deltas(count=2)[1]).any()


@pytest.mark.parametrize("name", NAMES)
def test_training_does_not_touch_its_argument(make_graph, name):
    graph = make_graph()
    parameters = start(graph)
    parameters.flags.writeable = False
    update = create(graph, config(name), 0).train(parameters)
    update.delta[:] = 0
    np.testing.assert_array_equal(parameters, start(graph))


@pytest.mark.parametrize("name", NAMES)
def test_adam_moments_persist_between_participations(make_graph, name):
    graph, settings = make_graph(), config(name)
    client = create(graph, settings, 0)
    run(client, graph, 0, 2)
    assert client.state_dict()["adam"]["step"] == 2 * settings.method.local_epochs
    forgotten = create(graph, settings, 0)
    forgotten.load_state_dict(client.state_dict() | {"adam": {}})
    assert (client.train(start(graph, 2)).delta != forgotten.train(start(graph, 2)).delta).any()


@pytest.mark.parametrize("name", NAMES)
def test_each_participation_has_dropout_of_its_own(make_graph, name):
    graph, settings = make_graph(), config(name)
    deltas = []
    for participations in (0, 0, 1):
        client = create(graph, settings, 0)
        client.load_state_dict({"participations": participations, "adam": {}})
        deltas.append(client.train(start(graph)).delta)
        assert client.state_dict()["participations"] == participations + 1
    np.testing.assert_array_equal(deltas[0], deltas[1])
    assert (deltas[0] != deltas[2]).any()
