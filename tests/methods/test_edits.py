"""EDITS: distances as SciPy has them, and graphs whose bias falls by what is taken away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from orchestrator.config import Config
from orchestrator.errors import ConfigError
from orchestrator.experiments.contenders import contender
from orchestrator.methods import create
from orchestrator.methods.edits import Groups, debiased, distances, propagations
from orchestrator.methods.reference_settings import EditsSettings
from orchestrator.models.gcn import normalised_adjacency
from tests.methods.conftest import build_graph
from tests.training_runs import run


def settings(**method):
    return EditsSettings(**{"name": "edits", "masked": 1, "edge_steps": 30, "edge_rate": 0.05} | method)


def biased(nodes=60, features=5, seed=0):
    """Feature 2 says the group, the others nothing; most edges are within a group."""
    rng = np.random.default_rng(seed)
    graph = build_graph(nodes, 4 * nodes, features)
    x = rng.normal(size=(nodes, features)).astype(np.float32)
    x[:, 2] += 3 * graph.sensitive
    same = graph.sensitive[graph.edges[0]] == graph.sensitive[graph.edges[1]]
    kept = same | (rng.random(graph.num_edges) < 0.3)
    return replace(graph, features=x, edges=graph.edges[:, kept], train=np.ones(nodes, bool), val=~np.ones(nodes, bool))


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32 - 1), st.booleans())
def test_the_distance_is_scipys(first, second, seed, ties):
    rng = np.random.default_rng(seed)
    n = first + second
    values = rng.integers(0, 3, (n, 4)).astype(np.float64) if ties else rng.normal(size=(n, 4))
    s = rng.permutation(np.repeat([0, 1], [first, second])).astype(np.int8)
    graph = build_graph(n, 0)
    graph = replace(graph, sensitive=s, train=np.ones(n, bool), val=np.zeros(n, bool))
    expected = [wasserstein_distance(values[s == 0, k], values[s == 1, k]) for k in range(4)]
    np.testing.assert_allclose(Groups(graph).distance(torch.from_numpy(values)).numpy(), expected, atol=1e-12)


def test_only_training_nodes_are_measured():
    graph = replace(biased(), train=np.arange(60) < 30, val=np.arange(60) >= 30)
    values = torch.from_numpy(graph.features)
    s, x = graph.sensitive[:30], graph.features[:30]
    expected = [wasserstein_distance(x[s == 0, k], x[s == 1, k]) for k in range(5)]
    np.testing.assert_allclose(Groups(graph).distance(values).numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("hops", [1, 3])
def test_propagation_is_that_of_the_dense_matrix(hops):
    graph = biased()
    weights = np.random.default_rng(2).random(graph.num_edges).astype(np.float32)
    dense = normalised_adjacency(graph).toarray()
    u, v = graph.edges
    dense[u, v] *= weights
    dense[v, u] *= weights
    found = propagations(graph, torch.from_numpy(weights), torch.from_numpy(graph.features), hops)
    for k, values in enumerate(found, 1):
        np.testing.assert_allclose(values.numpy(), np.linalg.matrix_power(dense, k) @ graph.features, atol=1e-5)


def test_the_attribute_that_says_the_group_goes_and_both_biases_fall():
    graph = biased()
    after = debiased(graph, settings())
    assert np.flatnonzero((after.features == 0).all(axis=0)).tolist() == [2]
    np.testing.assert_array_equal(np.delete(after.features, 2, 1), np.delete(graph.features, 2, 1))
    for before, now in zip(distances(graph, 2), distances(after, 2), strict=True):
        assert now.mean() < before.mean() / 2


def test_edges_go_along_which_the_difference_spreads():
    """With every attribute kept, what is left is less biased than as many edges drawn at random leave it."""
    graph = biased(120)
    after = debiased(graph, settings(masked=0, edge_steps=60))
    assert 0 < after.num_edges < graph.num_edges
    np.testing.assert_array_equal(after.features, graph.features)
    rng, chance = np.random.default_rng(0), []
    for _ in range(20):
        kept = np.sort(rng.choice(graph.num_edges, after.num_edges, replace=False))
        chance.append(distances(replace(graph, edges=graph.edges[:, kept]), 2)[1].mean())
    assert distances(after, 2)[1].mean() < min(chance)


def test_what_is_not_asked_for_stays():
    graph = biased()
    after = debiased(graph, settings(masked=0, edge_steps=0))
    np.testing.assert_array_equal(after.features, graph.features)
    np.testing.assert_array_equal(after.edges, graph.edges)
    assert debiased(graph, settings(masked=0, edge_penalty=1e6)).num_edges > 0.5 * graph.num_edges


def test_units_of_attributes_do_not_matter():
    graph = biased()
    scaled = replace(graph, features=graph.features * np.array([1, 1e3, 1e-3, 1, 7], np.float32))
    for first, second in zip(distances(graph, 2), distances(scaled, 2), strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-4)


@pytest.mark.parametrize("kind", [{"train": "none"}, {"train": "one group"}, {"nodes": 1, "edges": 0}, {"edges": 0}])
def test_graphs_without_two_groups_or_edges_are_left_or_debiased_without_error(kind):
    graph = build_graph(**kind)
    after = debiased(graph, settings(masked=2))
    if kind.get("train") or kind.get("nodes"):
        np.testing.assert_array_equal(after.features, graph.features)
        np.testing.assert_array_equal(after.edges, graph.edges)


def test_a_client_trains_and_predicts_on_what_is_left():
    graph = biased()
    edits = Config(
        model={"hidden": 8, "dropout": 0.0},
        method=settings(local_epochs=3).model_dump(),
        evaluation={"where": "clients"},
    )
    fedavg = edits.changed(method={"name": "fedavg"})
    client, plain = create(graph, edits, 0), create(debiased(graph, edits.method), fedavg, 0)
    released = client.network.initial_parameters(0)
    np.testing.assert_array_equal(client.train(released).delta, plain.train(released).delta)
    np.testing.assert_array_equal(client.logits(released, False), plain.logits(released, False))
    facts = client.facts()
    assert facts["structural_bias_after"] < facts["structural_bias_before"]
    assert facts["attribute_bias_after"] < facts["attribute_bias_before"] and 0 < facts["edges_kept"] < 1


def test_what_does_not_fit(make_graph):
    own = Config(method={"name": "edits"}, evaluation={"where": "clients"})
    with pytest.raises(ConfigError, match="edits is for data with a sensitive attribute"):
        create(replace(make_graph(), sensitive=None), own, 0)
    with pytest.raises(ConfigError, match=r"set evaluation\.where to clients"):
        create(make_graph(), Config(method={"name": "edits"}), 0)


@pytest.mark.parametrize("name", ["fairgnn", "edits"])
def test_compared_with_others_it_is_of_one_owner_of_everything(tiny, tmp_path, name):
    config = tiny(tmp_path, "evaluation.where=clients")
    own = contender(config, name)
    assert (own.method.name, own.clients.partition, own.clients.count, own.federation.cohort) == (name, "whole", 1, 1)
    assert config.changed(method={"name": name}).clients == config.clients  # alone it trains who is configured


def test_federated_it_runs_on_shares_within_the_bound(tiny, tmp_path):
    overrides = ("method={name: edits, edge_steps: 5}", "evaluation.where=clients")
    _, results = run(tiny(tmp_path, *overrides, "engine={name: embedded, preprocessing: dealer}"), audit=True)
    assert all(0 < r.difference <= r.bound for r in results)
