from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config import ModelConfig
from orchestrator.evaluation.figures import metric_names
from orchestrator.evaluation.metrics import Evaluator, evaluate, moving_average
from orchestrator.graphs.graph import MISSING, Graph
from orchestrator.models import create_network
from orchestrator.seeding import seeded_generator


def logits_of(margin):
    """Of both classes, from those of class 1 against class 0."""
    return np.stack([np.zeros_like(margin), margin], axis=1)


ALL = ["accuracy", "auc", "balanced_accuracy", "delta_sp", "delta_eo"]
LOGITS = logits_of(np.array([2.0, -1.0, 3.0, -2.0, 1.0, -3.0]))
LABELS = np.array([1, 0, 1, 1, 0, 0], np.int8)
SENSITIVE = np.array([1, 1, 1, 0, 0, 0], np.int8)


def test_metrics_by_hand():
    result = evaluate(LOGITS, LABELS, SENSITIVE)
    assert result.metrics["accuracy"] == pytest.approx(4 / 6)
    assert result.metrics["auc"] == pytest.approx(
        7 / 9
    )  # of 9 pairs of a positive and a negative, (-2, 1) and (-2, -1) are wrong
    assert result.metrics["delta_sp"] == pytest.approx(2 / 3 - 1 / 3)
    assert result.metrics["delta_eo"] == pytest.approx(1.0)
    assert result.undefined == {}
    assert result.counts == {
        "nodes": 6,
        "positives": 3,
        "nodes_s0": 3,
        "positives_s0": 1,
        "nodes_s1": 3,
        "positives_s1": 2,
    }


@pytest.mark.parametrize(
    ("labels", "sensitive", "undefined"),
    [
        ([1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], {"auc"}),
        ([0, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], {"auc", "delta_eo"}),
        ([1, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0], {"delta_sp", "delta_eo"}),
        ([1, 0, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0], {"delta_eo"}),
    ],
)
def test_what_is_undefined_is_none_with_a_reason(labels, sensitive, undefined):
    result = evaluate(LOGITS, np.array(labels, np.int8), np.array(sensitive, np.int8))
    assert set(result.undefined) == undefined
    for metric in ALL:
        value = result.metrics[metric]
        assert value is None if metric in undefined else 0 <= value <= 1
        assert metric not in undefined or result.undefined[metric]


def test_the_reason_names_the_group():
    result = evaluate(LOGITS, LABELS, np.zeros(6, np.int8))
    assert result.undefined == {"delta_sp": "no nodes with s = 1", "delta_eo": "no positives with s = 1"}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_not_finite_define_nothing(bad):
    result = evaluate(np.where(np.arange(6)[:, None] == 2, bad, LOGITS), LABELS, SENSITIVE)
    assert set(result.undefined) == set(ALL)


def test_an_empty_mask_defines_nothing():
    empty = np.zeros(0, np.int8)
    result = evaluate(np.zeros((0, 2)), empty, empty)
    assert result.metrics["accuracy"] is None and result.counts["nodes"] == 0 and set(result.undefined) == set(ALL)


@given(st.integers(0, 25), st.integers(0, 2**32 - 1))
def test_evaluations_are_json_without_nan(n, seed):
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(size=(n, 2)), rng.integers(0, 2, n).astype(np.int8)
    result = evaluate(logits, labels, rng.integers(0, 2, n).astype(np.int8)).as_dict()
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert set(result) == {*ALL, "gaps", "counts", "undefined"}
    for metric in ALL:
        assert (result[metric] is None) == (metric in result["undefined"])


def make_graph(n=30):
    """Three masks of nine nodes, and three nodes without label."""
    rng = seeded_generator(0, "evaluator")
    labels = (np.arange(n) % 2).astype(np.int8)
    labels[27:] = MISSING
    part = np.arange(n) // 9
    return Graph(
        features=rng.normal(size=(n, 4)).astype(np.float32),
        edges=np.array([[0, 1, 2], [10, 11, 12]]),
        labels=labels,
        sensitive=rng.integers(0, 2, n).astype(np.int8),
        train=part == 0,
        val=part == 1,
        test=part == 2,
    )


def test_evaluator_takes_labels_and_groups_of_each_mask():
    graph = make_graph()
    config = ModelConfig(hidden=4, dropout=0.5)
    evaluator, network = Evaluator(graph, config), create_network(4, 2, config)
    parameters = network.initial_parameters(0)
    logits = evaluator.logits(parameters)
    models = torch.tensor(parameters, dtype=torch.float32)[None]
    margin = network.logits(models, network.tensors(graph))  # without dropout
    np.testing.assert_array_equal(logits, logits_of(margin.numpy()))
    results = evaluator.evaluate(parameters, ("train", "val", "test"))
    assert list(results) == ["train", "val", "test"]
    for name, result in results.items():
        mask = getattr(graph, name)
        assert result.counts["nodes"] == 9 and result.counts["positives"] == graph.labels[mask].sum()
        assert result.metrics["accuracy"] == np.mean((margin.numpy()[mask] > 0) == graph.labels[mask])
    assert evaluator.evaluate(parameters) == {name: results[name] for name in ("val", "test")}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("groups", [True, False])
def test_any_number_of_classes_is_evaluated_and_gaps_where_there_are_groups(classes, groups):
    graph, config = make_graph(), ModelConfig(name="gcn-classifier", hidden=4)
    labels = np.where(graph.labels == MISSING, MISSING, np.arange(30) % classes).astype(np.int8)
    graph = replace(graph, labels=labels, classes=classes, sensitive=graph.sensitive if groups else None)
    network = create_network(4, classes, config)
    parameters = network.initial_parameters(0)
    logits = network.logits(torch.tensor(parameters, dtype=torch.float32)[None], network.tensors(graph))
    evaluator, mask = Evaluator(graph, config), graph.test
    np.testing.assert_array_equal(evaluator.logits(parameters), logits.numpy())
    predicted, result = network.predictions(logits)[mask], evaluator.evaluate(parameters)["test"]
    assert result.metrics["accuracy"] == np.mean(predicted == labels[mask]) and 0 <= result.metrics["auc"] <= 1
    assert list(result.metrics) == ALL[: None if groups else 3]
    assert list(result.gaps) == (["delta_sp", "delta_eo"] if groups else [])
    if groups:
        members = [predicted[graph.sensitive[mask] == g] for g in (0, 1)]
        shares = [np.bincount(own, minlength=classes) / len(own) for own in members]
        assert result.metrics["delta_sp"] == pytest.approx(np.abs(shares[1] - shares[0]).max())


def test_a_gap_comes_with_its_interval_and_the_nodes_of_both_groups():
    facts = evaluate(LOGITS, LABELS, SENSITIVE).gaps
    assert (facts["delta_sp"]["n_s0"], facts["delta_sp"]["n_s1"]) == (3, 3)
    assert (facts["delta_eo"]["n_s0"], facts["delta_eo"]["n_s1"]) == (1, 2)
    assert facts["delta_sp"]["low"] == 0 and facts["delta_sp"]["high"] > 0.7  # of three nodes each
    diverged = evaluate(np.full((6, 2), np.nan), LABELS, SENSITIVE).gaps["delta_eo"]
    assert diverged == {"low": None, "high": None, "n_s0": 1, "n_s1": 2, "rate_s0": None, "rate_s1": None}


def test_a_gap_is_the_difference_of_the_rates_beside_it():
    result = evaluate(LOGITS, LABELS, SENSITIVE)
    predicted = LOGITS.argmax(axis=1) if LOGITS.ndim > 1 else LOGITS > 0
    for gap, among in (("delta_sp", LABELS >= 0), ("delta_eo", LABELS == 1)):
        facts = result.gaps[gap]
        rates = [predicted[among & (g == SENSITIVE)].mean() for g in (0, 1)]
        assert (facts["rate_s0"], facts["rate_s1"]) == pytest.approx(rates)
        assert result.metrics[gap] == pytest.approx(abs(rates[1] - rates[0]))


def test_metric_names_are_those_of_an_evaluation_in_order():
    assert metric_names(evaluate(LOGITS, LABELS, SENSITIVE).as_dict()) == ALL


def test_moving_average_is_trailing():
    assert moving_average([1.0, 2.0, 3.0, 4.0], window=2) == [None, 1.5, 2.5, 3.5]
    assert moving_average([1.0, 2.0], window=1) == [1.0, 2.0]


def test_moving_average_skips_the_undefined():
    assert moving_average([2.0, None, 4.0, None, None, None], window=3) == [None, None, 3.0, None, None, None]
    assert moving_average([]) == []


@given(st.lists(st.none() | st.floats(-1, 1), max_size=60), st.integers(1, 25))
def test_moving_average_equals_the_mean_of_defined_values(values, window):
    result = moving_average(values, window)
    assert len(result) == len(values)
    for i, average in enumerate(result):
        seen = [v for j, v in enumerate(values) if i - window < j <= i and v is not None]
        assert average is None if len(seen) < min(2, window) else average == pytest.approx(np.mean(seen), abs=1e-12)


def test_moving_average_needs_a_window():
    with pytest.raises(ValueError, match="window"):
        moving_average([1.0], window=0)
