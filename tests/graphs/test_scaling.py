"""Who scales over whose nodes, and that nobody's training depends on what it must not know."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from orchestrator.client.host import Clients
from orchestrator.config import ClientsConfig, DataConfig, load_config
from orchestrator.errors import DataError
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.graphs.graph import Graph
from orchestrator.graphs.scaling import POLICIES, Scaling
from tests.class_graphs import class_graph

SETTINGS = {"nodes": 80, "edges": 200, "features": 5}
CLIENTS = ClientsConfig(count=4, partition="disjoint")


def whole(scaling: str) -> Graph:
    return load_graph(DataConfig(synthetic=SETTINGS, scaling=scaling), 3)


def own_nodes(graph: Graph, mask: str, client: int) -> np.ndarray:
    """Of a client, in the numbers of the whole."""
    nodes = client_graphs(graph, CLIENTS, 1).nodes(client)
    return nodes[getattr(graph, mask)[nodes]]


@pytest.mark.parametrize("policy", ["by_client", "pooled"])
@given(values=arrays(np.float32, (7, 3), elements=st.floats(-1e6, 1e6, width=32)))
def test_varying_features_get_mean_0_and_variance_1(policy, values):
    mask = np.array([True] * 6 + [policy == "pooled"])
    scaling = Scaling.of("pooled", values) if policy == "pooled" else Scaling.by_client(values, mask)
    varying = values[mask].min(axis=0) < values[mask].max(axis=0)
    scaled = scaling.apply(values, "t").astype(np.float64)
    assert scaled.shape[1] == (varying.sum() if policy == "pooled" else 3)
    kept = scaled[mask] if policy == "pooled" else scaled[mask][:, varying]
    assert kept.mean(axis=0) == pytest.approx(0, abs=1e-5)
    assert kept.std(axis=0, ddof=1) == pytest.approx(1, abs=1e-5)
    if policy == "by_client":
        assert (scaled[:, ~varying] == 0).all()


@pytest.mark.parametrize("count", [0, 1])
def test_who_has_fewer_than_two_nodes_to_learn_a_scale_from_has_features_of_0(count):
    graph = whole("by_client")
    held_out = np.arange(80) >= count
    alone = replace(graph, train=~held_out & graph.train, val=np.zeros(80, bool), test=held_out & (graph.labels >= 0))
    assert (alone.scaled_to_train().features == 0).all()


@pytest.mark.parametrize("value", [0.1, 14.62, 1e-7, 3e4 + 1 / 3])
def test_a_constant_is_one_even_where_its_mean_is_rounded(value):
    """Whose deviation, computed, would be about 1e-16: an unseen value would become as large as the inverse of that."""
    values = np.full((1000, 1), value, np.float32)
    values[-1] = 2 * values[0]
    scaling = Scaling.by_client(values, np.arange(1000) < 999)
    assert (scaling.apply(values, "t") == 0).all()
    assert Scaling.of("pooled", values[:-1]).apply(values, "t").shape == (1000, 0)


def test_a_deviation_of_few_nodes_does_not_blow_up_the_others():
    """Five and five and a hair more, and held-out nodes far off."""
    values = np.array([[5], [5], [5.00001], [50], [-3e38]], np.float32)
    scaled = Scaling.by_client(values, np.array([True, True, True, False, False])).apply(values, "t")
    assert scaled[3:].tolist() == [[10], [-10]] and (abs(scaled[:3]) < 2).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_graph_is_scaled_once(policy):
    graph = class_graph(40) if policy == "row_normalised" else whole(policy)
    for scaled in (graph.scaled_to_train(), graph.scaled_to_predict()):
        assert scaled.scaled_to_train() is scaled and scaled.scaled_to_predict() is scaled
        assert (scaled is graph) == (policy != "by_client")


def test_to_predict_every_node_counts_and_to_train_those_that_are_not_held_out():
    graph = whole("by_client")
    everybody, known = graph.scaled_to_predict().scaling, graph.scaled_to_train().scaling
    np.testing.assert_allclose(everybody.mean, graph.features.astype(np.float64).mean(axis=0))
    np.testing.assert_allclose(known.mean, graph.features[~(graph.val | graph.test)].astype(np.float64).mean(axis=0))


def trained_on(graph: Graph, client: int) -> np.ndarray:
    """What the client's method is given in the client's process."""
    config = load_config(overrides=["clients={count: 4, partition: disjoint}", "federation.cohort=4"])
    seen: list[Graph] = []

    class Watching:
        def __init__(self, graph, config, client):
            seen.append(graph)

    Clients(client_graphs(graph, CLIENTS, 1), config, Watching)[client]
    return seen[0].features


@pytest.mark.parametrize("mask", ["test", "val"])
def test_held_out_nodes_and_other_clients_do_not_change_what_a_client_trains_on(mask):
    graph = whole("by_client")
    changed = graph.features.copy()
    nodes = client_graphs(graph, CLIENTS, 1).nodes(0)
    held_out = own_nodes(graph, mask, 0)
    changed[held_out] += 100
    changed[np.setdiff1d(np.arange(80), nodes)] *= -7
    before, after = trained_on(graph, 0), trained_on(replace(graph, features=changed), 0)
    same = ~np.isin(nodes, held_out)
    np.testing.assert_array_equal(before[same], after[same])
    assert (before[~same] != after[~same]).any() and len(held_out)


def test_pooling_does_change_it():
    """What the test above would see: the papers' way, which is for simulations."""
    graph = whole("none")
    changed = graph.features.copy()
    changed[own_nodes(graph, "test", 1)] += 100  # another client's, and held out
    before, after = (Scaling.of("pooled", x).apply(x, "t") for x in (graph.features, changed))
    nodes = own_nodes(graph, "train", 0)
    assert (before[nodes] != after[nodes]).all()


def test_clients_train_on_what_they_scaled_themselves():
    graph = whole("by_client")
    for number, part in enumerate(client_graphs(graph, CLIENTS, 1)):
        features = trained_on(graph, number)[~(part.val | part.test)].astype(np.float64)
        assert features.mean(axis=0) == pytest.approx(0, abs=1e-5)
        assert features.std(axis=0, ddof=1) == pytest.approx(1, abs=1e-5)


def test_equal_scalings_are_equal():
    x = np.random.default_rng(1).normal(size=(6, 2)).astype(np.float32)
    first, second = Scaling.of("pooled", x), Scaling.of("pooled", x.copy())
    assert first == second and hash(first) == hash(second)
    assert first != Scaling.of("pooled", x + 1) and first != Scaling() and first != Scaling("pooled") and first != "x"


def test_not_a_number_is_no_constant():
    x = np.array([[0, 1], [np.nan, 2], [0, 4]], np.float32)
    with pytest.raises(DataError, match="features: node 0, feature 0 is NaN"):
        Graph.from_arrays(
            x, [[0, 1], [1, 2]], [0, 1, 0], scaling="pooled", train=[True] * 3, val=[False] * 3, test=[False] * 3
        )
