"""Confusion tables and the means over clients, against scikit-learn."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

from orchestrator.evaluation.classification import CLASSIFICATION_METRICS, confusion, summarise

CLASSES = 5
CLIENT = st.lists(st.tuples(st.integers(0, CLASSES - 1), st.integers(0, CLASSES - 1)), max_size=12)


def split(pairs):
    """Labels as graphs hold them, and predictions as networks give them."""
    return np.array([y for y, _ in pairs], np.int8), np.array([z for _, z in pairs], np.int64)


def table(pairs, classes=CLASSES):
    return confusion(*split(pairs), classes)


@given(CLIENT)
def test_a_table_is_sklearns(pairs):
    labels, predicted = split(pairs)
    found = table(pairs)
    assert found.dtype == np.int64 and found.shape == (CLASSES, CLASSES)
    expected = confusion_matrix(labels, predicted, labels=range(CLASSES)) if pairs else np.zeros((CLASSES, CLASSES))
    np.testing.assert_array_equal(found, expected)


def test_int8_labels_of_128_classes_do_not_overflow():
    found = confusion(np.array([127, 127, 0], np.int8), np.array([127, 3, 127]), 128)
    assert found[127, 127] == found[127, 3] == found[0, 127] == 1 and found.sum() == 3


@given(st.lists(CLIENT, min_size=1, max_size=5).filter(any))
def test_means_over_the_clients_that_have_nodes_are_sklearns(clients):
    result = summarise([table(pairs) for pairs in clients])
    kept = [split(pairs) for pairs in clients if pairs]
    assert result.accuracy == pytest.approx(np.mean([accuracy_score(*pair) for pair in kept]), abs=1e-12)
    # By default scikit-learn takes the labels that are present in either.
    assert result.macro_f1 == pytest.approx(np.mean([f1_score(*pair, average="macro") for pair in kept]), abs=1e-12)
    assert result.counts == {"clients": len(kept), "nodes": sum(map(len, clients))} and result.undefined == {}


def test_every_client_counts_alike_however_large():
    small, large = [(0, 1)], [(0, 0)] * 9
    assert summarise([table(small), table(large)]).accuracy == 0.5


def test_a_class_that_nobody_has_or_predicts_is_left_out():
    assert summarise([table([(0, 0), (1, 1)])]).macro_f1 == 1.0
    assert summarise([table([(0, 0), (1, 2)])]).macro_f1 == pytest.approx(1 / 3)


@pytest.mark.parametrize("clients", [0, 1, 3])
def test_without_nodes_both_are_undefined_with_a_reason(clients):
    result = summarise([table([])] * clients)
    assert (result.accuracy, result.macro_f1) == (None, None)
    assert result.counts == {"clients": 0, "nodes": 0}
    assert result.undefined == dict.fromkeys(CLASSIFICATION_METRICS, "no client has such nodes")


def test_the_document_is_plain_json_with_metrics_first():
    for tables in ([table([(1, 1), (2, 0)])], []):
        document = json.loads(json.dumps(summarise(tables).as_dict(), allow_nan=False))
        assert tuple(document) == (*CLASSIFICATION_METRICS, "counts", "undefined")
