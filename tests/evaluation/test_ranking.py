"""AUC against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.metrics import roc_auc_score

from orchestrator.evaluation.ranking import auc


@given(st.integers(2, 40), st.integers(0, 2**32 - 1))
def test_two_classes_are_sklearns_also_with_ties(nodes, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, nodes).astype(np.int8)
    labels[:2] = 0, 1
    logits = rng.integers(-3, 3, (nodes, 2)).astype(np.float32)
    assert auc(logits, labels) == pytest.approx(roc_auc_score(labels, logits[:, 1] - logits[:, 0]), abs=1e-12)


@given(st.integers(3, 6), st.integers(0, 2**32 - 1))
def test_several_classes_are_sklearns_macro_one_against_the_rest(classes, seed):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, 30)]).astype(np.int8)
    logits = rng.normal(scale=3, size=(len(labels), classes))
    expected = roc_auc_score(labels, softmax(logits, axis=1), multi_class="ovr", average="macro")
    assert auc(logits, labels) == pytest.approx(expected, abs=1e-9)


def test_a_class_that_no_node_has_is_left_out():
    labels = np.array([0, 2, 0, 2, 2], np.int8)
    logits = np.random.default_rng(1).normal(size=(5, 3))
    chances = softmax(logits, axis=1)
    expected = [roc_auc_score(labels == c, chances[:, c]) for c in (0, 2)]
    assert auc(logits, labels) == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("labels", [[], [1, 1, 1], [0]])
@pytest.mark.parametrize("classes", [2, 3])
def test_one_class_has_none_rather_than_0_or_1(labels, classes):
    assert auc(np.zeros((len(labels), classes)), np.array(labels, np.int8)) is None


def test_saturated_logits_still_rank():
    """Probabilities would all be 1 or 0."""
    labels = np.array([0, 0, 1, 1, 2], np.int8)
    logits = np.array([[800, 0, 0], [700, 0, 0], [0, 750, 0], [0, 900, 0], [0, 0, 800]], np.float32)
    assert auc(logits, labels) == 1.0
