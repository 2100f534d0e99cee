"""Tables of counts: they add up, know no order of the groups, and give what scikit-learn and fairlearn give."""

from __future__ import annotations

import numpy as np
import pytest
from fairlearn.metrics import (
    demographic_parity_difference,
    equal_opportunity_difference,
    selection_rate,
    true_positive_rate_difference,
)
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, recall_score

from orchestrator.evaluation.group_table import GAPS, GroupTable


@st.composite
def nodes(draw, classes=None, least=0):
    """Groups, labels, predictions and the number of classes."""
    classes = classes or draw(st.integers(2, 5))
    n = draw(st.integers(least, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    skew = draw(st.sampled_from([0.0, 0.05, 0.5]))
    groups = (rng.random(n) < skew).astype(np.int8)
    return groups, rng.integers(0, classes, n).astype(np.int8), rng.integers(0, classes, n), classes


@given(nodes())
def test_a_table_is_sklearns_confusion_matrix_of_each_group(drawn):
    groups, labels, predicted, classes = drawn
    table = GroupTable.of(groups, labels, predicted, classes)
    assert table.counts.dtype == np.int64 and table.counts.shape == (2, classes, classes)
    for group in (0, 1):
        own = groups == group
        expected = np.zeros((classes, classes))
        if own.any():
            expected = confusion_matrix(labels[own], predicted[own], labels=range(classes))
        np.testing.assert_array_equal(table.counts[group], expected)
    unknown = GroupTable.of(None, labels, predicted, classes)
    np.testing.assert_array_equal(unknown.counts, [table.confusion])


def test_int8_labels_of_128_classes_do_not_overflow():
    found = GroupTable.of(np.array([1, 1, 0], np.int8), np.array([127, 127, 0], np.int8), np.array([127, 3, 127]), 128)
    counts = found.counts
    assert counts[1, 127, 127] == counts[1, 127, 3] == counts[0, 0, 127] == 1 and counts.sum() == 3


@given(nodes(least=1))
def test_accuracy_and_f1_are_sklearns(drawn):
    table = GroupTable.of(*drawn)
    assert table.accuracy == pytest.approx(accuracy_score(drawn[1], drawn[2]))
    found = recall_score(drawn[1], drawn[2], labels=np.unique(drawn[1]), average="macro")  # as balanced_accuracy_score
    assert table.balanced_accuracy == pytest.approx(found)
    # By default scikit-learn takes the labels that are present in either.
    assert table.macro_f1 == pytest.approx(f1_score(drawn[1], drawn[2], average="macro"))


@given(nodes(classes=2))
def test_gaps_of_two_classes_are_fairlearns(drawn):
    groups, labels, predicted, _ = drawn
    table = GroupTable.of(*drawn)
    parity, opportunity = table.gap("delta_sp"), table.gap("delta_eo")
    both = len(set(groups)) == 2
    assert (parity.size is not None) == both
    if both:
        expected = demographic_parity_difference(labels, predicted, sensitive_features=groups)
        assert parity.size == pytest.approx(expected, abs=1e-12)
        rates = [selection_rate(labels[groups == g], predicted[groups == g]) for g in (0, 1)]
        assert parity.size == pytest.approx(abs(rates[1] - rates[0]), abs=1e-12)
    among = len(set(groups[labels == 1])) == 2
    assert (opportunity.size is not None) == among
    if among:
        for theirs in (equal_opportunity_difference, true_positive_rate_difference):
            expected = theirs(labels, predicted, sensitive_features=groups)
            assert opportunity.size == pytest.approx(expected, abs=1e-12)


@given(nodes())
def test_gaps_of_several_classes_are_the_largest_of_one_class_against_the_rest(drawn):
    groups, labels, predicted, classes = drawn
    assume(classes > 2)
    table = GroupTable.of(*drawn)
    parity, opportunity = {}, {}
    for c in range(classes):
        members = [groups == g for g in (0, 1)]
        if all(own.any() for own in members):
            rates = [np.mean(predicted[own] == c) for own in members]
            parity[c] = abs(rates[1] - rates[0])
        if all((labels[own] == c).any() for own in members):
            recalls = [recall_score(labels[own] == c, predicted[own] == c) for own in members]
            opportunity[c] = abs(recalls[1] - recalls[0])
    for name, expected in (("delta_sp", parity), ("delta_eo", opportunity)):
        gap = table.gap(name)
        assert gap.compared == len(expected)
        if expected:
            assert gap.size == pytest.approx(max(expected.values()), abs=1e-12)
            assert expected[gap.of_class] == pytest.approx(gap.size, abs=1e-12)
        else:
            assert (gap.size, gap.low, gap.high) == (None, None, None) and np.isnan(table.sizes(name))


@given(st.lists(nodes(classes=3), min_size=1, max_size=5))
def test_the_sum_of_tables_is_the_table_of_the_union(clients):
    tables = GroupTable(np.stack([GroupTable.of(*drawn).counts for drawn in clients]))
    union = GroupTable.of(*(np.concatenate([drawn[k] for drawn in clients]) for k in range(3)), 3)
    np.testing.assert_array_equal(tables.total().counts, union.counts)
    for k, drawn in enumerate(clients):
        assert tables.counts[k].max(initial=0) <= len(drawn[1])  # so sums fit wherever numbers of nodes do
    for gap in GAPS:
        alone = [GroupTable(counts).gap(gap).size for counts in tables.counts]
        np.testing.assert_allclose(tables.sizes(gap), [np.nan if size is None else size for size in alone])
        sizes = [size for size in alone if size is not None]
        largest = tables.largest(gap)
        assert largest is None if not sizes else alone[largest] == max(sizes)


@given(nodes())
def test_which_group_is_called_1_does_not_matter(drawn):
    groups, *rest = drawn
    one, other = GroupTable.of(groups, *rest), GroupTable.of(1 - groups, *rest)
    for name in GAPS:
        first, second = one.gap(name), other.gap(name)
        assert first.size == pytest.approx(second.size) and first.nodes == second.nodes[::-1]
        assert (first.low, first.high) == (pytest.approx(second.low), pytest.approx(second.high))


@given(nodes(), st.integers(2, 9))
def test_an_interval_holds_its_gap_and_shrinks_with_nodes(drawn, times):
    table = GroupTable.of(*drawn)
    for name in GAPS:
        gap, more = table.gap(name), GroupTable(times * table.counts).gap(name)
        assert more.size == gap.size
        if gap.size is not None:
            assert 0 <= gap.low <= gap.size <= gap.high <= 1 and gap.high > 0.01
            says_nothing = (more.low, more.high) == (gap.low, gap.high) == (0, 1)
            assert says_nothing or more.high - more.low < gap.high - gap.low
            again = GroupTable(times * table.counts).gap(name, independent=1 / times)
            assert (again.low, again.high) == pytest.approx((gap.low, gap.high))


def test_the_largest_of_several_classes_lies_in_its_interval_nineteen_times_of_twenty():
    rng = np.random.default_rng(3)
    rates = np.array([[0.5, 0.3, 0.2], [0.35, 0.35, 0.3]])
    truth, held = np.abs(rates[1] - rates[0]).max(), 0
    for _ in range(1_000):
        counts = np.zeros((2, 3, 3), np.int64)
        counts[:, 0] = [rng.multinomial(60, row) for row in rates]
        gap = GroupTable(counts).gap("delta_sp")
        held += gap.low <= truth <= gap.high
    assert held > 0.95 * 1_000


def test_one_node_a_group_says_next_to_nothing():
    """A gap of 0.0000 that could be nearly anything: not perfectly fair."""
    gap = GroupTable.of(np.array([0, 1]), np.array([1, 1]), np.array([1, 1]), 2).gap("delta_eo")
    assert gap.size == 0 and gap.low == 0 and gap.high > 0.75 and gap.nodes == (1, 1)


def test_an_empty_side_leaves_the_other_sides_nodes_known():
    gap = GroupTable.of(np.array([0, 0, 0, 1]), np.array([1, 1, 1, 0]), np.array([1, 0, 1, 1]), 2).gap("delta_eo")
    assert gap.size is gap.low is gap.high is None and gap.nodes == (3, 0)


def test_of_equally_unfair_clients_the_one_with_the_most_nodes_is_the_worst():
    small = GroupTable.of(np.array([0, 1]), np.array([1, 1]), np.array([0, 1]), 2).counts
    assert GroupTable(np.stack([small, 5 * small, 2 * small])).largest("delta_sp") == 1
    assert GroupTable(np.zeros((3, 2, 2, 2), np.int64)).largest("delta_sp") is None
