"""Which nodes, edges and features survive, and how labelled nodes are split."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.errors import DataError
from orchestrator.graphs.cleaning import split_masks
from orchestrator.graphs.prepare import prepare_graph
from orchestrator.graphs.tables import RawGraph


def _raw(labels, sensitive, pairs, features=None):
    n = len(labels)
    if features is None:
        features = np.arange(n, dtype=np.float32)[:, None]
    edges = np.array(pairs, np.int64).reshape(-1, 2).T
    labels, sensitive = np.array(labels, np.int8), np.array(sensitive, np.int8)
    return RawGraph("tiny", features.astype(np.float32), labels, sensitive, edges, "t.csv: y", "t.csv: s", "t.txt")


@pytest.fixture
def raw():
    """0-1-2-3-4 and 5-6 are labelled; 7 has no label and joins the two components."""
    labels, sensitive = [0, 1, 0, 1, 0, 1, 0, -1], [0, 1] * 4
    pairs = [(0, 1), (1, 0), (1, 2), (2, 3), (3, 4), (5, 6), (4, 7), (7, 5), (2, 2)]
    features = np.stack([np.arange(8), np.ones(8), [0] * 7 + [9]], axis=1)
    return _raw(labels, sensitive, pairs, features)


def test_labelled_component(raw):
    graph = prepare_graph(raw, "labelled_component", 1, "pooled")
    assert graph.edges.T.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert graph.labels.tolist() == [0, 1, 0, 1, 0]
    assert graph.num_features == 1  # the second is constant, and so is the third over the kept nodes
    assert graph.train.sum() + graph.val.sum() + graph.test.sum() == 5


def test_all_nodes_masks_labels(raw):
    graph = prepare_graph(raw, "all", 1, "pooled")
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (8, 7, 2)
    assert graph.labels[7] == -1
    assert not (graph.train | graph.val | graph.test)[7]


def test_pooled_features_are_standardised_over_the_kept_nodes(raw):
    features = prepare_graph(raw, "labelled_component", 1, "pooled").features.astype(np.float64)
    assert features.mean(axis=0) == pytest.approx(0, abs=1e-6)
    assert features.std(axis=0, ddof=1) == pytest.approx(1, abs=1e-6)


@given(st.integers(4, 200), st.integers(0, 2**32))
def test_split_is_50_25_25_disjoint_and_decided_by_the_seed(n, seed):
    raw = _raw([i % 2 for i in range(n)], [i // 2 % 2 for i in range(n)], [(i, i + 1) for i in range(n - 1)])
    graph, again = (prepare_graph(raw, "all", seed, stratified=False) for _ in range(2))
    sizes = [int(mask.sum()) for mask in (graph.train, graph.val, graph.test)]
    assert sizes == [n // 2, n * 3 // 4 - n // 2, n - n * 3 // 4]
    assert (graph.train.astype(int) + graph.val + graph.test == 1).all()
    assert np.array_equal(graph.train, again.train) and np.array_equal(graph.val, again.val)


def test_another_seed_is_another_split():
    raw = _raw([0, 1] * 50, [0, 0, 1, 1] * 25, [(i, i + 1) for i in range(99)])
    assert not np.array_equal(prepare_graph(raw, "all", 1).train, prepare_graph(raw, "all", 2).train)


@pytest.mark.parametrize("nodes", ["labelled_component", "all"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.ones(8, np.int8)}, "t.csv: y: the kept nodes have only class 1"),
        ({"sensitive": np.zeros(8, np.int8)}, "t.csv: s: the kept nodes have only group 0"),
        ({"edges": np.array([[2, 3], [2, 3]])}, "t.txt: no edge between two"),
        ({"features": np.ones((8, 2), np.float32)}, "every feature is constant"),
        ({"labels": np.full(8, -1, np.int8)}, "t.csv: y: "),
    ],
)
def test_nothing_usable(raw, nodes, change, message):
    with pytest.raises(DataError, match=message):
        prepare_graph(replace(raw, **change), nodes, 1)


def test_too_few_labelled_nodes():
    with pytest.raises(DataError, match="3 labelled nodes are left; a 50/25/25 split needs at least 4"):
        prepare_graph(_raw([0, 1, 0], [0, 1, 0], [(0, 1), (1, 2)]), "all", 1)


@given(st.integers(10, 300), st.sampled_from([(0.2, 0.4, 0.4), (0.29, 0.0, 0.71), (1.0, 0.0, 0.0), (0.6, 0.4, 0.0)]))
def test_shares_of_the_split(n, split):
    raw = _raw([i % 2 for i in range(n)], [i // 2 % 2 for i in range(n)], [(i, i + 1) for i in range(n - 1)])
    graph = prepare_graph(raw, "all", 1, split=split, stratified=False)
    assert (graph.train.astype(int) + graph.val + graph.test == 1).all()
    train, val, test = (int(mask.sum()) for mask in (graph.train, graph.val, graph.test))
    assert train == round(100 * split[0]) * n // 100
    assert abs(val - split[1] * n) < 1 and abs(test - split[2] * n) < 1


@given(st.data(), st.sampled_from([(0.5, 0.25, 0.25), (0.6, 0.2, 0.2), (0.9, 0.05, 0.05), (0.7, 0.0, 0.3)]))
def test_a_stratified_split_has_every_small_group_and_class_in_every_mask(data, split):
    sizes = data.draw(st.lists(st.lists(st.integers(0, 12), min_size=2, max_size=3), min_size=1, max_size=2))
    strata = [(label, group) for group, row in enumerate(sizes) for label, size in enumerate(row) for _ in range(size)]
    assume(len(strata) >= 20)
    labels, groups = np.array([*strata, (-1, 0)], np.int8).T
    masks = split_masks(labels, groups, split, True, "t.csv", data.draw(st.integers(0, 9)))
    assert (masks.sum(axis=0) == (labels >= 0)).all()
    used = masks[np.array(split) > 0]
    for group, row in enumerate(sizes):
        members = groups == group
        for mine in (members, *(members & (labels == label) for label in range(len(row)))):
            count = int((mine & (labels >= 0)).sum())
            held = (used & mine).sum(axis=1)
            assert (held > 0).all() or count < len(used)
        assert (np.abs(masks[:, members].sum(axis=1) - np.array(split) * sum(row)) < 2 + 2 * len(row)).all()


def test_a_stratified_split_keeps_the_shares_of_large_strata():
    labels, groups = np.arange(4000) % 2, np.arange(4000) // 2 % 2
    masks = split_masks(labels.astype(np.int8), groups, (0.6, 0.2, 0.2), True, "t.csv", 1)
    for label in (0, 1):
        for group in (0, 1):
            counts = masks[:, (labels == label) & (groups == group)].sum(axis=1)
            assert (np.abs(counts - [600, 200, 200]) <= 2).all()


def test_a_plain_shuffle_can_leave_a_small_group_out():
    labels, groups = (np.arange(100) % 2).astype(np.int8), (np.arange(100) < 3).astype(np.int8)
    lacking = [
        (split_masks(labels, groups, (0.5, 0.25, 0.25), stratified, "t", seed)[:, :3].sum(axis=1) == 0).any()
        for stratified in (False, True)
        for seed in range(20)
    ]
    assert any(lacking[:20]) and not any(lacking[20:])


def test_a_group_of_three_whose_classes_are_smaller_is_in_every_mask():
    labels, groups = np.array([0, 1] * 20 + [0, 0, 1], np.int8), np.array([0] * 40 + [1] * 3)
    masks = split_masks(labels, groups, (0.6, 0.2, 0.2), True, "t", 1)
    assert masks[:, 40:].sum(axis=1).tolist() == [1, 1, 1]


def test_classes_of_one_and_two_nodes_do_not_stop_a_stratified_split():
    counts = [40, 13, 4, 3, 3, 2, 1]
    labels = np.repeat(np.arange(7), counts).astype(np.int8)
    masks = split_masks(labels, None, (0.7, 0.15, 0.15), True, "t", 1)
    held = np.array([[int((mask & (labels == label)).sum()) for label in range(7)] for mask in masks])
    assert held.sum(axis=0).tolist() == counts and (held[:, :5] > 0).all() and held[0].sum() >= 40


def test_a_split_is_decided_by_the_seed():
    labels, groups = (np.arange(40) % 2).astype(np.int8), (np.arange(40) // 2 % 2).astype(np.int8)
    first, again, other = (split_masks(labels, groups, (0.5, 0.25, 0.25), True, "t", seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_too_few_labelled_nodes_for_a_small_share():
    raw = _raw([0, 1] * 9, [0, 1] * 9, [(0, 1)])
    with pytest.raises(DataError, match="18 labelled nodes are left; a 90/5/5 split needs at least 20"):
        prepare_graph(raw, "all", 1, split=(0.9, 0.05, 0.05))


def test_normalised_rows_sum_to_one_and_blank_ones_stay(raw):
    features = np.array([[1, 3, 0], [0, 0, 0], [0, 0.25, 0], *[[1, 1, 0]] * 5], np.float32)
    graph = prepare_graph(replace(raw, features=features), "all", 1, "row_normalised")
    assert graph.features[:3].tolist() == [[0.25, 0.75, 0], [0, 0, 0], [0, 1, 0]]
    assert graph.num_features == 3  # constant columns stay


def test_negative_features_cannot_be_normalised_by_row(raw):
    with pytest.raises(DataError, match=r"tiny: data\.scaling = row_normalised needs features that are not negative"):
        prepare_graph(replace(raw, features=-raw.features), "all", 1, "row_normalised")


def test_many_classes_without_groups(raw):
    labels = np.array([0, 4, 2, 2, 0, 4, 2, -1], np.int8)
    graph = prepare_graph(replace(raw, labels=labels, sensitive=None, classes=5), "labelled_component", 1)
    assert graph.labels.tolist() == [0, 4, 2, 2, 0]
    assert graph.classes == 5 and graph.sensitive is None
