"""Plain answers: their levels are those that chance gives, and they say nothing that figures do not."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from orchestrator.experiments.paired import Paired
from orchestrator.page.verdicts import chance, compared, majority


@pytest.mark.parametrize(("ones", "zeros"), [(30, 50), (200, 100)])
def test_guessing_stays_within_what_is_said_of_chance_as_often_as_is_said(ones, zeros):
    rng, counts = np.random.default_rng(3), {"nodes": ones + zeros, "positives": ones}
    labels = np.repeat([1, 0], [ones, zeros])
    name, level, room = chance({"auc": 0.6, "counts": counts})
    found = [roc_auc_score(labels, rng.random(len(labels))) for _ in range(2000)]
    assert name == "auc" and np.mean(np.abs(np.array(found) - level) > room) == pytest.approx(0.05, abs=0.015)
    name, level, room = chance({"auc": None, "balanced_accuracy": 0.6, "counts": counts})
    found = [balanced_accuracy_score(labels, rng.integers(0, 2, len(labels))) for _ in range(2000)]
    assert name == "balanced_accuracy" and np.mean(np.abs(np.array(found) - level) > room) <= 0.065


def test_shared_nodes_count_once_and_a_mean_over_clients_has_no_such_level():
    counts = {"nodes": 100, "positives": 40}
    wide = chance({"auc": 0.6, "counts": {**counts, "nodes_effective": 25}})
    assert wide[2] == pytest.approx(2 * chance({"auc": 0.6, "counts": counts})[2])
    assert chance({"auc": 0.6, "balanced_accuracy": 0.6, "counts": {**counts, "clients": 5}})[0] == "balanced_accuracy"
    assert chance({"auc": 0.6, "counts": {"nodes": 100}}) is None  # of several classes
    assert chance({"auc": None, "balanced_accuracy": 1.0, "counts": {"nodes": 9, "positives": 9}}) is None
    assert majority({"counts": counts}) == 0.6 and majority({}) is None


@pytest.mark.parametrize(
    ("metric", "paired", "kind", "words"),
    [
        ("delta_sp", Paired(-0.05, -0.08, -0.02), "good", "fairer than fedavg by ΔSP"),
        ("delta_sp", Paired(0.05, 0.02, 0.08), "bad", "less fair than fedavg by ΔSP"),
        ("auc", Paired(0.05, 0.02, 0.08), "good", "better than fedavg by AUC"),
        ("auc", Paired(-0.05, -0.08, -0.02), "bad", "worse than fedavg by AUC"),
        ("delta_eo", Paired(-0.05, -0.12, 0.02), "plain", "ΔEO not told from fedavg's"),
        ("delta_eo", Paired(-0.05, None, None), "plain", "one seed: no interval"),
        ("delta_eo", Paired(None, None, None), "plain", "cannot be compared"),
    ],
)
def test_a_difference_is_one_only_where_its_interval_says_so(metric, paired, kind, words):
    verdict = compared("mine", "fedavg", metric, paired, 3)
    assert (
        verdict.kind == kind and words in verdict.short and ("fairer" in verdict.short) == (words.startswith("fairer"))
    )
