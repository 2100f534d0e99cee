"""FairDual: the ledger's arithmetic against direct counts, and gaps that it lowers on shares as in plaintext."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from orchestrator.config import Config
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import ConfigError
from orchestrator.evaluation.metrics import Evaluator
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.methods import create, method_class
from orchestrator.methods.fairdual import Ledger
from orchestrator.models import create_network
from orchestrator.models.trained import load_model
from tests.class_graphs import class_graph

EMPTY = np.zeros(Ledger.SIZE)


def config(name="fairdual", **method):
    return Config(model={"hidden": 8, "dropout": 0.0}, method={"name": name, "local_epochs": 4} | method)


def start(graph, settings):
    model = create_network(graph.num_features, graph.classes, settings.model).initial_parameters(0)
    return np.concatenate([model, method_class(settings.method.name).beside(settings)])


def rate(hits, of):
    return hits[of].mean()


@given(st.lists(arrays(np.int8, st.tuples(st.just(3), st.integers(1, 30)), elements=st.integers(0, 1)), min_size=1))
def test_gaps_are_those_of_all_nodes_where_each_client_counts_the_same(clients):
    """Every client is one (s, y, yhat) table; the oracle weighs each of its n nodes by 1/n."""
    shares = np.mean(
        [
            [[(s == g).mean() for g in (0, 1)], *([(w & (s == g)).mean() for g in (0, 1)] for w in (y, p, y & p))]
            for s, y, p in clients
        ],
        axis=0,
    )
    ledger = Ledger(shares, np.zeros(2))
    weight = np.concatenate([np.full(c.shape[1], 1 / c.shape[1]) for c in clients])
    s, y, p = np.concatenate(clients, axis=1)
    for k, among in enumerate((np.ones_like(y), y)):
        groups = [weight * among * (s == g) for g in (0, 1)]
        if min(group.sum() for group in groups) / len(clients) <= 0.01:
            assert ledger.gaps[k] == 0 and not ledger.known[k]
            continue
        first, second = (float(p @ group / group.sum()) for group in groups)
        assert ledger.gaps[k] == pytest.approx(second - first)
        signed = [(ledger.coefficients(s, y)[k] @ p) / len(s) for s, y, p in clients]
        assert np.mean(signed) == pytest.approx(second - first)


@given(arrays(np.float64, Ledger.SIZE, elements=st.floats(-60, 60)), st.floats(0.01, 16))
def test_whatever_noise_makes_of_the_ledger_the_next_one_is_finite_and_capped(numbers, largest):
    ledger = Ledger.of(numbers)
    np.testing.assert_array_equal(ledger.numbers, numbers)
    assert (np.abs(ledger.gaps) <= 1).all()
    after = ledger.next(np.full((4, 2), 0.25), 0.3, 0.1, largest)
    assert np.isfinite(after.numbers).all() and (np.abs(after.multipliers) <= largest).all()
    assert np.isfinite(ledger.coefficients(np.array([0, 1]), np.array([1, 1]))).all()


def test_a_round_moves_the_shares_by_the_rate_and_the_multipliers_by_the_gaps(make_graph):
    graph, settings = make_graph(), config(rate=0.25, step=0.5, measured="train")
    before = start(graph, settings)
    shares = np.array([[0.5, 0.5], [0.25, 0.25], [0.3, 0.1], [0.2, 0.1]])
    before[-10:] = Ledger(shares, np.array([0.1, -0.2])).numbers
    update = create(graph, settings, 0).train(before)
    after = Ledger.of((before - update.delta)[-10:])
    assert after.multipliers == pytest.approx([0.1 + 0.5 * (0.2 - 0.6), -0.2 + 0.5 * (0.4 - 0.8)])
    logits = Evaluator(graph, settings.model).logits(before)[graph.train, 1]
    s, y = graph.sensitive[graph.train], graph.labels[graph.train]
    own = [[((s == g) & what).mean() for g in (0, 1)] for what in (s >= 0, y == 1, logits > 0, (y == 1) & (logits > 0))]
    np.testing.assert_allclose(after.shares, 0.75 * shares + 0.25 * np.array(own), atol=1e-12)
    assert update.norm == pytest.approx(np.linalg.norm(update.delta)) and not update.scores


@pytest.mark.parametrize("measured", ["train", "train_val"])
def test_nodes_that_are_not_measured_move_nothing(make_graph, measured):
    graph = make_graph()
    settings = config(measured=measured)
    other = make_graph()
    labels = other.labels.copy()
    labels[graph.val] = 1 - labels[graph.val]
    object.__setattr__(other, "labels", labels)
    moves = [create(g, settings, 0).train(start(g, settings)).delta[-10:] for g in (graph, other)]
    assert np.array_equal(*moves) == (measured == "train")


def test_labels_of_test_nodes_move_nothing(make_graph):
    graph = make_graph()
    graph = replace(graph, val=np.zeros_like(graph.val), test=graph.val)
    other = replace(graph, labels=np.where(graph.test, 1 - graph.labels, graph.labels).astype(np.int8))
    settings = config()
    moves = [create(g, settings, 0).train(start(g, settings)).delta for g in (graph, other)]
    np.testing.assert_array_equal(*moves)


def test_without_multipliers_it_is_fedavg(make_graph):
    graph = make_graph()
    plain = create(graph, config("fedavg"), 0).train(start(graph, config("fedavg")))
    fair = create(graph, config(), 0).train(start(graph, config()))
    np.testing.assert_array_equal(fair.delta[:-10], plain.delta)


@pytest.mark.parametrize(
    "kind", [{"train": "none"}, {"train": "one class"}, {"train": "one group"}, {"nodes": 1, "edges": 0}]
)
def test_degenerate_clients(make_graph, kind):
    graph, settings = make_graph(**kind), config()
    released = start(graph, settings)
    released[-10:] = Ledger(np.full((4, 2), 0.3), np.array([3.0, -3.0])).numbers
    update = create(graph, settings, 0).train(released)
    assert np.isfinite(update.delta).all() and update.delta.shape == released.shape
    assert graph.train.any() or (update.delta[:-10] == 0).all()


def test_a_multiplier_pulls_the_gap_of_its_sign(make_graph):
    graph, settings = make_graph(), config(local_epochs=10, learning_rate=1e-2)
    s, y = graph.sensitive[graph.train], graph.labels[graph.train]
    shares = np.array(
        [[(s == g).mean() for g in (0, 1)], [((s == g) & (y == 1)).mean() for g in (0, 1)], *2 * [[0.2] * 2]]
    )

    def gap(multiplier):
        released = start(graph, settings)
        released[-10:] = Ledger(shares, np.array([multiplier, 0.0])).numbers
        model = released - create(graph, settings, 0).train(released).delta
        soft = 1 / (1 + np.exp(-Evaluator(graph, settings.model).logits(model)[graph.train, 1]))
        return rate(soft, s == 1) - rate(soft, s == 0)

    assert gap(2.0) < gap(0.0) - 0.01 and gap(-2.0) > gap(0.0) + 0.01


def test_data_that_it_is_not_for(make_graph):
    for graph in (class_graph(), replace(make_graph(), sensitive=None)):
        with pytest.raises(ConfigError, match="fairdual is for two classes and data with a sensitive attribute"):
            create(graph, config(), 0)


BIASED = {
    "data": {
        "scaling": "pooled",
        "synthetic": {"nodes": 800, "edges": 1600, "features": 8, "label_bias": 0.2, "group_signal": 2.0},
    },
    "clients": {"count": 8, "hops": 2},
    "model": {"hidden": 8, "dropout": 0.0},
}


def trained(tmp_path, engine, name, rounds=40, **method):
    sections = BIASED | {
        "run": {"dir": tmp_path, "checkpoint_rounds": 100},
        "federation": {"rounds": rounds, "cohort": 4},
    }
    settings = Config(
        engine={"name": engine}, method={"name": name, "local_epochs": 8, "learning_rate": 2e-3} | method, **sections
    )
    results = []
    train(settings, RunFolder.create(settings), audit=engine == "embedded", observe=results.append)
    return settings, results


def federation_gaps(settings, parameters):
    """Over the training nodes of all clients, each client counting the same; |SP| and |EO|, by direct counts."""
    graph = load_graph(settings.data, settings.seed)
    parts = client_graphs(graph, settings.clients, settings.seed)
    rows = []
    for part in parts:
        hard = (Evaluator(part, settings.model).logits(parameters)[:, 1] > 0)[part.train]
        s, y = part.sensitive[part.train], part.labels[part.train] == 1
        rows.append([[[((s == g) & w & h).mean() for g in (0, 1)] for w in (s >= 0, y)] for h in (s >= 0, hard)])
    sizes, hits = np.mean(rows, axis=0)
    return np.abs(np.diff(hits / sizes, axis=1).ravel())


def test_both_gaps_of_the_federation_are_at_most_half_of_fedavgs(tmp_path):
    """The promise in the method's name; a run in which it does nothing fails here."""
    late = {}
    for name in ("fedavg", "fairdual"):
        settings, results = trained(
            tmp_path, "plaintext", name, **({"measured": "train"} if name == "fairdual" else {})
        )
        late[name] = np.mean([federation_gaps(settings, r.parameters) for r in results[-8:]], axis=0)
    assert (late["fedavg"] > 0.1).all(), late
    assert (late["fairdual"] < late["fedavg"] / 2).all(), late


def test_on_shares_it_is_the_same_within_the_bound_of_fixed_point(tmp_path):
    _, results = trained(tmp_path, "embedded", "fairdual", rounds=3)
    [saved] = tmp_path.glob("*/model.pt")  # the model alone, which predicts
    size = load_model(saved).network.size
    np.testing.assert_array_equal(load_model(saved).parameters, results[-1].parameters[:size])
    assert len(results[-1].parameters) == size + Ledger.SIZE
    assert all(0 < r.difference <= r.bound for r in results)
    assert np.abs(results[-1].parameters[-10:]).max() > 0
