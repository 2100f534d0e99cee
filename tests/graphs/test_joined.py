"""Clients that bring a graph each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.config import ClientsConfig, DataConfig
from orchestrator.errors import DataError
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.graphs.joined import join_clients
from orchestrator.graphs.meaning import Meaning
from tests.class_graphs import class_graph

WHOLE = load_graph(DataConfig(synthetic={"nodes": 60, "edges": 150, "features": 4}, scaling="pooled"), 1)
PARTS = list(client_graphs(WHOLE, ClientsConfig(count=3, partition="disjoint"), 1))


def test_the_whole_holds_every_client_and_no_edge_between_two():
    joined, start = join_clients(PARTS), 0
    for part in PARTS:
        nodes = slice(start, start := start + part.num_nodes)
        for field in ("features", "labels", "sensitive", "train", "val", "test"):
            np.testing.assert_array_equal(getattr(joined, field)[nodes], getattr(part, field))
        inside = (joined.edges >= nodes.start) & (joined.edges < nodes.stop)
        assert (inside[0] == inside[1]).all()
        np.testing.assert_array_equal(joined.edges[:, inside[0]] - nodes.start, part.edges)
    assert joined.num_nodes == start == WHOLE.num_nodes and joined.classes == 2


def test_clients_without_a_sensitive_attribute_or_with_more_classes():
    joined = join_clients([class_graph(seed=1), class_graph(seed=2)])
    assert joined.sensitive is None and joined.classes == 3


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ([], "clients: there are none; expected a Graph each"),
        ([*PARTS, None], "clients: expected a Graph each, got NoneType as client 3"),
        ([PARTS[0], replace(PARTS[1], features=PARTS[1].features[:, :3])], "client 1 has 3 features, client 0 has 4"),
        ([PARTS[0], replace(PARTS[1], classes=3)], "client 1 has 3 classes, client 0 has 2; expected the same"),
        ([PARTS[0], replace(PARTS[1], sensitive=None)], "client 1 has 0 sensitive attributes, client 0 has 1"),
        ([replace(PARTS[0], sensitive=0 * PARTS[0].sensitive)], "clients: sensitive: .* only group 0; expected two"),
        ([replace(PARTS[0], labels=0 * PARTS[0].labels)], "clients: labels: .* only class 0; expected two or more"),
    ],
)
def test_clients_that_do_not_fit_each_other(clients, message):
    with pytest.raises(DataError, match=message):
        join_clients(clients)


def test_each_client_scales_what_the_whole_holds_of_it():
    raw = load_graph(DataConfig(synthetic={"nodes": 60, "edges": 150, "features": 4}), 1)
    parts = list(client_graphs(raw, ClientsConfig(count=3, partition="disjoint"), 1))
    joined = join_clients(parts)
    expected = np.concatenate([part.scaled_to_train().features for part in parts])
    np.testing.assert_array_equal(joined.features, expected)
    assert joined.scaled_to_predict() is joined and joined.scaling.policy == "by_client"
    assert join_clients(PARTS).scaling == WHOLE.scaling  # they were scaled together


def test_columns_in_another_order_at_another_client_are_refused():
    first = replace(PARTS[0], meaning=Meaning(("age", "income", "a", "b")))
    second = replace(PARTS[1], meaning=Meaning(("income", "age", "a", "b")))
    with pytest.raises(DataError, match="feature 0 of client 1 is called 'income', that of client 0 'age'; expected"):
        join_clients([first, second, PARTS[2]])
    joined = join_clients([first, replace(PARTS[1], meaning=first.meaning), PARTS[2]])  # none is as good
    assert joined.meaning == first.meaning


def test_names_go_with_every_part_and_what_was_left_out_stays_with_its_graph():
    whole = replace(WHOLE, meaning=Meaning(tuple("abcd"), ("no", "yes"), ("f", "m"), ("A", "B"), 70, ("kept 60",)))
    parts = list(client_graphs(whole, ClientsConfig(count=3, partition="disjoint"), 1))
    assert [part.meaning for part in parts] == [Meaning(tuple("abcd"), ("no", "yes"), ("f", "m"))] * 3
    noting = [parts[0], replace(parts[1], meaning=parts[1].meaning.noting("lost 2 edges")), parts[2]]
    assert join_clients(noting).meaning == parts[0].meaning.noting("client 1: lost 2 edges")
