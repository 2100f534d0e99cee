"""Algebra of the group balance."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import DataError
from orchestrator.graphs import group_balance


@pytest.mark.parametrize(
    ("sensitive", "pairs", "plain", "with_loops"),
    [
        ([0, 0, 1, 1], [(0, 1), (2, 3), (0, 2), (1, 3)], 1.0, 8 / 12),  # intra 2, inter 2; loops: 8 against 4
        ([0, 0, 1, 1], [(0, 1), (0, 2), (0, 3)], 2 / 3, 8 / 10),  # intra 1, inter 2; loops: 6 against 4
        ([0, 0], [(0, 1)], 0.0, 0.0),
        ([0, 1], [(0, 1)], 0.0, 1.0),  # loops: 2 against 2
        ([0, 1], [], 0.0, 0.0),
        ([], [], 0.0, 0.0),
    ],
)
def test_by_hand(make_graph, sensitive, pairs, plain, with_loops):
    graph = make_graph(len(sensitive), pairs, sensitive)
    assert group_balance(graph) == pytest.approx(plain)
    assert group_balance(graph, self_loops=True) == pytest.approx(with_loops)


@given(
    st.lists(st.integers(0, 1), min_size=9, max_size=9),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=25),
    st.booleans(),
)
def test_in_the_unit_interval_and_blind_to_which_group_is_which(make_graph, sensitive, pairs, loops):
    balance = group_balance(make_graph(9, pairs, sensitive), loops)
    assert 0 <= balance <= 1
    assert balance == group_balance(make_graph(9, pairs, [1 - s for s in sensitive]), loops)


def test_without_groups_there_is_no_balance(make_graph):
    with pytest.raises(DataError, match="graph: no sensitive attribute; fairness between groups needs data"):
        group_balance(replace(make_graph(2, [(0, 1)]), sensitive=None))
