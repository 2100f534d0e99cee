"""The graph type refuses what it does not promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.errors import DataError


@pytest.fixture
def graph(make_graph):
    return make_graph(4, [(0, 1), (1, 2)], train=[0])


def test_sizes(graph):
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (4, 2, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.zeros((4, 2))}, "features: expected float32"),
        ({"features": np.full((4, 2), np.nan, np.float32)}, "node 0, feature 0 is NaN"),
        ({"labels": np.array([0, 1, 2, 0], np.int8)}, "labels"),
        ({"labels": np.array([0, 3, 2, 0], np.int8), "classes": 3}, "labels: expected int8 from 0 to 2"),
        ({"labels": np.array([0, 1, -2, 0], np.int8)}, "labels"),
        ({"labels": np.array([0, 1, 1, 0])}, "labels"),
        ({"classes": 1}, "classes: expected 2 to 128, got 1"),
        ({"classes": 129}, "classes"),
        ({"sensitive": np.array([0, 1, -1, 0], np.int8)}, "sensitive"),
        ({"sensitive": np.zeros(3, np.int8)}, "sensitive: expected 4 int8"),
        ({"train": np.ones(3, bool)}, "train"),
        ({"labels": np.array([-1, 1, 0, 0], np.int8)}, "train: holds a node without label"),
        ({"val": np.array([True, False, False, False])}, "the masks overlap"),
        ({"edges": np.array([[0], [4]])}, "node indices from 0 to 3"),
        ({"edges": np.array([[1], [1]])}, "self-loops"),
        ({"edges": np.array([[0, 0], [1, 1]])}, "without duplicates"),
    ],
)
def test_refuses(graph, change, message):
    with pytest.raises(DataError, match=message):
        replace(graph, **change)


def test_many_classes_without_groups(graph):
    labels = np.array([0, 127, -1, 3], np.int8)
    assert replace(graph, labels=labels, sensitive=None, classes=128).labels is labels
