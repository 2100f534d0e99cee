"""Counts that are added up: the sum says of all nodes what their tables say, and AUC within its stated error."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.evaluation.figures import of_clients, of_sum
from orchestrator.evaluation.group_table import GroupTable
from orchestrator.evaluation.ranking import auc
from orchestrator.evaluation.rounds import _OfTheSum
from orchestrator.evaluation.summed import CountsLayout, binned_auc


def drawn(seed: int, clients: int, classes: int, spread: float = 2.0):
    """Each client's graph, of up to 30 nodes, and logits of its nodes."""
    generator = np.random.default_rng(seed)
    for _ in range(clients):
        n = int(generator.integers(0, 30))
        labels, sensitive = generator.integers(0, classes, n), generator.integers(0, 2, n)
        part = generator.integers(0, 3, n)
        graph = SimpleNamespace(labels=labels, sensitive=sensitive, val=part == 1, test=part == 2)
        yield graph, (spread * generator.normal(size=(n, classes))).astype(np.float32)


@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from([2, 3]), st.integers(1, 40))
def test_the_sum_says_of_all_nodes_what_they_say_together(seed, clients, classes, bins):
    layout = CountsLayout(2, classes, bins if classes == 2 else 0)
    parts = list(drawn(seed, clients, classes))
    counts, present = layout.read(np.sum([layout.of(logits, graph) for graph, logits in parts], axis=0))
    assert present == clients
    for mask, own in counts.items():
        kept = [(graph, logits, getattr(graph, mask)) for graph, logits in parts]
        logits = np.concatenate([z[m] for _, z, m in kept])
        labels = np.concatenate([g.labels[m] for g, _, m in kept])
        sensitive = np.concatenate([g.sensitive[m] for g, _, m in kept])
        union = GroupTable.of(sensitive, labels, logits.argmax(axis=1), classes)
        np.testing.assert_array_equal(own.table, union.counts)
        if classes == 2:
            found, error = binned_auc(own.scores)
            exact = auc(logits, labels)
            assert (found is None) == (exact is None)
            if exact is not None:
                assert abs(found - exact) <= error + 1e-12 <= 0.5 + 1e-12


def test_more_bins_leave_less_error_and_of_one_bin_nothing_is_known():
    [(graph, logits)] = drawn(3, 1, 2)
    graph.val = np.ones_like(graph.val)
    errors = []
    for bins in (1, 4, 64, 4096):
        layout = CountsLayout(2, 2, bins)
        counts, _ = layout.read(layout.of(logits, graph))
        area, error = binned_auc(counts["val"].scores)
        errors.append(error)
        if bins == 1:
            assert (area, error) == (0.5, 0.5)
    assert errors == sorted(errors, reverse=True) and errors[-1] < 0.01


def test_a_logit_that_is_not_finite_still_has_a_bin():
    here, nowhere = np.ones(3, bool), np.zeros(3, bool)
    graph = SimpleNamespace(labels=np.array([0, 1, 1]), sensitive=None, val=here, test=nowhere)
    layout = CountsLayout(1, 2, 8)
    counts, _ = layout.read(layout.of(np.array([[np.nan, 0], [np.inf, np.inf], [-np.inf, 90]], np.float32), graph))
    assert counts["val"].scores.sum() == 3 and counts["val"].table.sum() == 3


def tables(seed: int, clients: int = 5) -> list[np.ndarray]:
    layout = CountsLayout(2, 2, 0)
    parts = [layout.read(layout.of(logits, graph))[0]["val"].table for graph, logits in drawn(seed, clients, 2)]
    return [part.astype(np.int64) for part in parts]


def test_gaps_are_those_of_the_union_and_what_needs_single_clients_is_absent():
    own = tables(5)
    apart, together = of_clients(own, [np.nan] * 5, 0.8), of_sum(GroupTable(sum(own)), 0.7, "", 0.8)
    for gap in ("delta_sp", "delta_eo"):
        assert together.metrics[gap] == apart.metrics[gap] is not None
        shared = {name: apart.gaps[gap][name] for name in together.gaps[gap]}
        assert together.gaps[gap] == shared and "rate_s0" in shared and "worst_n_s0" not in shared
        for name in (f"{gap}_mean", f"{gap}_worst"):
            assert together.metrics[name] is None
            assert together.undefined[name] == "tables are summed: no client's own is known"
    union = sum(own).sum(axis=0)
    assert together.metrics["accuracy"] == np.trace(union) / union.sum() and together.metrics["auc"] == 0.7
    assert together.metrics.keys() == apart.metrics.keys()


@pytest.mark.parametrize("gap", ["delta_sp", "delta_eo"])
def test_intervals_are_wide_enough_for_the_noise(gap):
    """Of a fixed table: what the noise alone does to the gap lies in the interval; without it, it is narrower."""
    counts = np.array([[[900, 400], [300, 800]], [[500, 300], [200, 700]]])
    exact, generator, noise = GroupTable(counts).gap(gap), np.random.default_rng(2), 60.0
    covered, wide = 0, 0.0
    for _ in range(400):
        seen = GroupTable(np.maximum(counts + generator.normal(0, noise, counts.shape), 0)).gap(gap, 1.0, noise)
        covered += seen.low <= exact.size <= seen.high
        wide += (seen.high - seen.low) / 400
    assert covered >= 0.95 * 400 and wide > 1.5 * (exact.high - exact.low)


class Summing:
    """Stands for the sum: the tables of some clients, shortened by a factor."""

    layout, clients, bound, error = CountsLayout(2, 2, 8), 3, 50.0, 1e-3

    def __init__(self, factor: float = 1.0, noise: float = 0.0):
        self.noise_stddev, self.left_out, self.asked = noise, {}, []
        self.numbers = sum(self.layout.of(logits, graph) for graph, logits in drawn(8, 3, 2)) * factor

    def add_up(self, round, parameters, own):
        self.asked.append((round, own))
        return self


def evaluated(summing: Summing, **settings):
    evaluation = _OfTheSum(summing, False, 1, {"val": 0.5, "test": 1.0})
    evaluation.aggregated(7, [0, 1], np.zeros(3))
    return evaluation


def test_where_a_clients_counts_were_shortened_nothing_is_said():
    """Without noise the sum is taken for the exact counts, and would not be them."""
    found = evaluated(Summing(factor=0.99)).evaluations()["val"]
    assert set(found.metrics.values()) == {None}
    assert set(found.undefined.values()) == {"a client's counts are longer than evaluation.bound = 50; raise it"}
    whole = evaluated(Summing())
    assert whole.evaluations()["val"].metrics["accuracy"] is not None
    assert whole.facts()["clients_evaluated"] == 3 and whole.facts()["val_auc_error"] > 0


def test_a_client_that_failed_is_none_that_was_shortened():
    summing = Summing()
    summing.clients, summing.left_out = 4, {2: "nothing arrived"}
    evaluation = evaluated(summing)
    assert evaluation.evaluations()["val"].metrics["accuracy"] is not None
    assert evaluation.facts()["evaluation_left_out"] == [{"client": 2, "reason": "nothing arrived"}]


def test_counts_that_noise_drowns_are_not_taken_for_metrics():
    found = evaluated(Summing(noise=40.0)).evaluations()["val"]
    assert set(found.undefined.values()) == {"drowned by noise of 40 on every count"}
    seen = evaluated(Summing(noise=1e-3)).evaluations()["val"]
    assert seen.metrics["accuracy"] is not None
    assert seen.counts["nodes_effective"] == seen.counts["nodes"]  # how many clients hold a node is not told


def test_a_round_that_is_not_evaluated_has_the_same_entries():
    evaluation = evaluated(Summing())
    before, facts = evaluation.evaluations()["val"].as_dict(), evaluation.facts()
    evaluation.passed(8)
    after = evaluation.evaluations()["val"].as_dict()
    assert after.keys() == before.keys() and after["gaps"].keys() == before["gaps"].keys()
    assert [*after["counts"]] == [*before["counts"]] and evaluation.facts().keys() == facts.keys()
    said = set(evaluation.evaluations()["test"].undefined.values())
    assert said == {"not evaluated in this round (evaluation.every)"}
