"""What every method must do, whatever its loss: one set of tests run over all of them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from orchestrator.config import Config, settings_class
from orchestrator.errors import RangeError
from orchestrator.methods import LocalMethod, create, method_class
from orchestrator.models import create_network
from orchestrator.registry import METHODS
from tests.conftest import FITS

NAMES = sorted(METHODS.keys() - {"fedsage+", "fedgcn"})  # which train only after their clients have exchanged something
OWN = {"f2gnn": {"alpha": 0.1, "tau_combine": 1.0}, "edits": {"masked": 1, "edge_steps": 3}}
"""So that what only this method does is seen in what it trains."""
MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def config(name, seed=31, dropout=0.5, **method):
    networks = METHODS[name].networks or ("gcn",)
    return Config(
        seed=seed,
        model={"name": networks[0], "hidden": 8, "dropout": dropout, "neighbours": 2},
        method={"name": name, "local_epochs": 3} | OWN.get(name, {}) | method,
        evaluation={"where": "clients" if "evaluation.where=clients" in FITS[name] else "whole_graph"},
    )


def start(name, graph, seed=0):
    """As a run releases first; FairDual's ledger is one that pulls."""
    settings = config(name)
    model = create_network(graph.num_features, graph.classes, settings.model).initial_parameters(seed)
    return np.concatenate([model, method_class(name).beside(settings) + 0.2])


def run(name, client, graph, first, last):
    """Rounds first to last - 1 of a run whose released model is another one each round."""
    return [train(name, [client], graph, round)[0] for round in range(first, last)]


def train(name, clients, graph, round, together=False):
    released = start(name, graph, round)
    updates = (
        method_class(name).train_together(clients, released)
        if together
        else [client.train(released) for client in clients]
    )
    if METHODS[name].personal and METHODS[name].rule:
        for client, update in zip(clients, updates, strict=True):
            client.receive(released - 0.5 * update.delta)
    return updates


def assert_equal(a, b):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x.delta, y.delta)
        assert x.norm == y.norm and x.scores.keys() == y.scores.keys()
        for score in x.scores:
            np.testing.assert_array_equal(x.scores[score], y.scores[score])


@pytest.mark.parametrize("name", NAMES)
def test_create_follows_the_configuration(make_graph, name):
    client = create(make_graph(), config(name), 0)
    assert type(client) is method_class(name) and isinstance(client, LocalMethod)


STARTS = [(name, {}) for name in NAMES] + [
    ("f2gnn", {"local_init": "own"}),
    ("f2gnn", {"local_init": "trained"}),
]


@pytest.mark.parametrize(("name", "method"), STARTS)
@pytest.mark.parametrize("taken", [0, 1, 2])
def test_an_interrupted_client_continues_bit_by_bit(make_graph, name, method, taken):
    graph, settings = make_graph(), config(name, **method)
    whole = run(name, create(graph, settings, 2), graph, 0, 5)
    before = create(graph, settings, 2)
    assert_equal(run(name, before, graph, 0, taken), whole[:taken])
    dump = pickle.dumps(before.state_dict())
    run(name, before, graph, taken, 5)  # the state is a copy: training on does not change it
    after = create(graph, settings, 2)
    after.load_state_dict(pickle.loads(dump))
    assert_equal(run(name, after, graph, taken, 5), whole[taken:])


@pytest.mark.parametrize("name", NAMES)
def test_state_is_plain_data_and_loading_forgets_what_was(make_graph, name):
    graph, settings = make_graph(), config(name)
    client = create(graph, settings, 0)
    empty = client.state_dict()
    fresh = run(name, client, graph, 0, 2)

    def leaves(value):
        return [x for item in value.values() for x in leaves(item)] if isinstance(value, dict) else [value]

    assert all(isinstance(leaf, (int, float, np.ndarray)) for leaf in leaves(client.state_dict()))
    client.load_state_dict(empty)
    assert_equal(run(name, client, graph, 0, 2), fresh)


@pytest.mark.parametrize("name", NAMES)
def test_training_is_a_function_of_seed_client_and_participation(make_graph, name):
    graph = make_graph()

    def deltas(seed=31, client=0, count=1):
        torch.rand(3)  # the global generator plays no part
        member = create(graph, config(name, seed=seed), client)
        return [member.train(start(name, graph)).delta for _ in range(count)]

    (base,) = deltas()
    np.testing.assert_array_equal(base, deltas()[0])
    assert (base != deltas(seed=32)[0]).any()
    assert (base != deltas(client=1)[0]).any()
    assert (base != deltas(count=2)[1]).any()


@pytest.mark.parametrize("name", NAMES)
def test_training_does_not_touch_its_argument(make_graph, name):
    graph = make_graph()
    parameters = start(name, graph)
    parameters.flags.writeable = False
    update = create(graph, config(name), 0).train(parameters)
    update.delta[:] = 0
    np.testing.assert_array_equal(parameters, start(name, graph))


@pytest.mark.parametrize("name", NAMES)
def test_adam_moments_persist_between_participations(make_graph, name):
    graph, settings = make_graph(), config(name)
    client = create(graph, settings, 0)
    run(name, client, graph, 0, 2)
    assert client.state_dict()["step"] == 2 * settings.method.local_epochs
    forgotten = create(graph, settings, 0)
    forgotten.load_state_dict({k: v for k, v in client.state_dict().items() if k not in MOMENTS})
    assert (client.train(start(name, graph, 2)).delta != forgotten.train(start(name, graph, 2)).delta).any()


@pytest.mark.parametrize("name", NAMES)
def test_each_participation_has_dropout_of_its_own(make_graph, name):
    graph, settings = make_graph(), config(name)
    deltas = []
    for participations in (0, 0, 1):
        client = create(graph, settings, 0)
        client.load_state_dict(client.state_dict() | {"participations": participations})
        deltas.append(client.train(start(name, graph)).delta)
        assert client.state_dict()["participations"] == participations + 1
    np.testing.assert_array_equal(deltas[0], deltas[1])
    assert (deltas[0] != deltas[2]).any()


# Many clients at once

KINDS = [
    {},
    {"nodes": 7, "edges": 5},
    {"train": "none"},
    {"train": "one class"},
    {"train": "one group"},
    {"train": "one node"},
    {"nodes": 1, "edges": 0},
    {"nodes": 1, "edges": 0, "train": "none"},
    {"nodes": 8, "edges": 0},
    {"nodes": 90, "edges": 300},
]
SWITCHES = {
    "default": {},
    "stateless": {"stateful": False},
    "first models": {"local_init": "trained"},
    "reference": {
        "penalty": "broadcast",
        "divergence": "js_distance_over_nodes",
        "divergence_local_mode": "train",
        "score": "reciprocal",
        "score_from": "last_epoch",
        "local_init": "own",
        "score_max": 1e5,
    },
}


@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(name, method, id=f"{name}-{label}")
        for name in NAMES
        for label, method in SWITCHES.items()
        if method.keys() <= settings_class(name).model_fields.keys()
    ],
)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_clients_that_train_together_do_what_each_does_alone(make_graph, name, method, dropout):
    settings = config(name, dropout=dropout, **method)
    graphs = [make_graph(**kind) for kind in KINDS]
    alone, together = ([create(graph, settings, c) for c, graph in enumerate(graphs)] for _ in range(2))
    cohorts = [[0, 3, 9, 1], [9, 0, 2, 4, 5, 6, 7, 8], [2, 7], [6], list(range(10)), [1, 0]]  # histories that differ
    for round, cohort in enumerate(cohorts):
        expected = train(name, [alone[c] for c in cohort], graphs[0], round)
        updates = train(name, [together[c] for c in cohort], graphs[0], round, together=True)
        for one, other in zip(updates, expected, strict=True):
            np.testing.assert_allclose(one.delta, other.delta, rtol=1e-3, atol=2e-6)
            assert one.norm == pytest.approx(other.norm, rel=1e-5, abs=1e-7)
            assert one.scores.keys() == other.scores.keys()
            for score in one.scores:
                assert one.scores[score] == pytest.approx(other.scores[score], rel=1e-3, abs=1e-6)
    for one, other in zip(alone, together, strict=True):
        assert one.state_dict().keys() == other.state_dict().keys()
        assert one.state_dict()["participations"] == other.state_dict()["participations"]


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_client_among_many_is_named(make_graph, name):
    graph, bad = make_graph(), make_graph()
    bad.features[:] = 3e38
    clients = [create(graph, config(name), 4), create(bad, config(name), 8)]
    with pytest.raises(RangeError, match="client 8: "):
        method_class(name).train_together(clients, start(name, graph))


@pytest.mark.parametrize(("name", "method"), [start for start in STARTS if not METHODS[start[0]].personal])
def test_every_participation_of_a_stateless_client_is_as_its_first(make_graph, name, method):
    graph, settings = make_graph(), config(name, stateful=False, **method)
    client = create(graph, settings, 0)
    updates = run(name, client, graph, 0, 3)
    assert client.state_dict() == {"participations": 3}
    fresh = create(graph, settings, 0)
    fresh.load_state_dict({"participations": 2})
    assert_equal(updates[2:], [fresh.train(start(name, graph, 2))])


def test_a_method_that_says_nothing_of_batches_trains_one_after_the_other(make_graph):
    class Counting(LocalMethod):
        def __init__(self, graph, config, client):
            self.client = client

        def train(self, parameters):
            return self.client

        def logits(self, parameters, own):
            raise NotImplementedError

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    assert Counting.train_together([Counting(None, None, c) for c in (5, 2)], np.zeros(1)) == [5, 2]


@pytest.mark.parametrize("name", NAMES)
def test_a_client_holds_its_graph_once(make_graph, name):
    """Ten thousand clients, or one of a million edges: features and edges are in the network's tensors only."""
    graph = make_graph()
    client = create(graph, config(name), 0)
    client.train(start(name, graph))
    assert client.graph.features.size == client.graph.edges.size == 0
    np.testing.assert_array_equal(client.graph.labels, graph.labels)
    assert client._trained is None  # nobody asks for what it trained
