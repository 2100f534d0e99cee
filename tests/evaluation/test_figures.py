"""What is said of clients' tables: means, the union, the worst, and how sure a gap is."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from orchestrator.evaluation.figures import of_clients
from orchestrator.evaluation.group_table import GroupTable

CLASSES = 5
CLIENT = st.lists(st.tuples(st.integers(0, CLASSES - 1), st.integers(0, CLASSES - 1)), max_size=12)
UNKNOWN = float("nan")


def split(pairs):
    """Labels as graphs hold them, and predictions as networks give them."""
    return np.array([y for y, _ in pairs], np.int8), np.array([z for _, z in pairs], np.int64)


def table(pairs, classes=CLASSES):
    """Of nodes without group."""
    return GroupTable.of(None, *split(pairs), classes).counts


def grouped(*nodes, classes=2):
    """Of nodes (group, label, prediction)."""
    groups, labels, predicted = np.array(nodes, np.int64).reshape(-1, 3).T
    return GroupTable.of(groups, labels, predicted, classes).counts


def summarise(tables, aucs=None):
    return of_clients(tables, [UNKNOWN] * len(tables) if aucs is None else aucs)


@given(st.lists(CLIENT, min_size=1, max_size=5).filter(any))
def test_means_over_the_clients_that_have_nodes_are_sklearns(clients):
    result = summarise([table(pairs) for pairs in clients])
    kept = [split(pairs) for pairs in clients if pairs]
    metrics = result.metrics
    assert metrics["accuracy"] == pytest.approx(np.mean([accuracy_score(*pair) for pair in kept]), abs=1e-12)
    # By default scikit-learn takes the labels that are present in either.
    assert metrics["macro_f1"] == pytest.approx(np.mean([f1_score(*pair, average="macro") for pair in kept]), abs=1e-12)
    nodes = sum(map(len, clients))
    assert result.counts == {"clients": len(kept), "nodes": nodes, "nodes_effective": nodes}
    assert result.undefined == {"auc": "no client has nodes of two classes"} and result.gaps == {}


def test_every_client_counts_alike_however_large():
    small, large = [(0, 1)], [(0, 0)] * 9
    assert summarise([table(small), table(large)]).metrics["accuracy"] == 0.5


def test_a_class_that_nobody_has_or_predicts_is_left_out():
    assert summarise([table([(0, 0), (1, 1)])]).metrics["macro_f1"] == 1.0
    assert summarise([table([(0, 0), (1, 2)])]).metrics["macro_f1"] == pytest.approx(1 / 3)


def test_auc_is_the_mean_over_the_clients_that_have_one():
    result = summarise([table([(0, 0)])] * 3, [0.5, UNKNOWN, 0.75])
    assert result.metrics["auc"] == 0.625 and result.undefined == {}


@pytest.mark.parametrize("clients", [1, 3])
def test_without_nodes_all_is_undefined_with_a_reason(clients):
    result = summarise([table([])] * clients)
    assert result.metrics == dict.fromkeys(("accuracy", "macro_f1", "auc", "balanced_accuracy"))
    assert result.counts == {"clients": 0, "nodes": 0, "nodes_effective": 0}
    assert result.undefined == dict.fromkeys(result.metrics, "no client has such nodes")
    fairness = summarise([grouped()] * clients)
    assert set(fairness.undefined) == set(fairness.metrics) and fairness.metrics["delta_sp_worst"] is None
    assert fairness.undefined["delta_eo"] == "no positives with s = 0 or s = 1"


FAIR = grouped((0, 1, 1), (0, 0, 0), (1, 1, 1), (1, 0, 0))
UNFAIR = grouped((0, 1, 1), (0, 0, 1), (1, 1, 0), (1, 0, 1))
ONE_GROUP = grouped((0, 1, 1), (0, 0, 1))


def test_gaps_are_of_the_union_and_over_the_clients_that_have_both_groups():
    result = summarise([FAIR, UNFAIR, ONE_GROUP])
    union = GroupTable(FAIR + UNFAIR + ONE_GROUP)
    for name, sizes in (("delta_sp", (0.0, 0.5)), ("delta_eo", (0.0, 1.0))):
        gap, facts = union.gap(name), result.gaps[name]
        assert result.metrics[name] == gap.size and (facts["low"], facts["high"]) == (gap.low, gap.high)
        assert (facts["n_s0"], facts["n_s1"]) == gap.nodes
        assert result.metrics[f"{name}_mean"] == np.mean(sizes) and result.metrics[f"{name}_worst"] == max(sizes)
        # A client without a group is not a fair one: it has no gap.
        assert (facts["clients"], facts["clients_lacking"]) == (2, 1)
    assert (result.gaps["delta_sp"]["worst_n_s0"], result.gaps["delta_sp"]["worst_n_s1"]) == (2, 2)
    assert (result.gaps["delta_eo"]["worst_n_s0"], result.gaps["delta_eo"]["worst_n_s1"]) == (1, 1)
    assert list(result.metrics)[4:] == [
        "delta_sp", "delta_sp_mean", "delta_sp_worst", "delta_eo", "delta_eo_mean", "delta_eo_worst",
    ]  # fmt: skip
    assert result.counts["nodes_s0"] == 6 and result.counts["positives_s1"] == 2


def test_groups_that_no_client_has_together_still_have_a_gap_together():
    result = summarise([ONE_GROUP, grouped((1, 1, 0), (1, 0, 0))])
    assert result.metrics["delta_sp"] == 1.0 and result.metrics["delta_sp_mean"] is None
    assert (result.gaps["delta_sp"]["clients"], result.gaps["delta_sp"]["clients_lacking"]) == (0, 2)
    assert result.gaps["delta_sp"]["worst_n_s0"] is None


def test_a_single_client_is_no_mean_and_no_worst():
    result = summarise([UNFAIR])
    assert result.metrics["delta_sp"] == 0.5
    assert result.undefined["delta_sp_mean"] == "fewer than two clients have nodes of both groups"
    assert result.undefined["delta_eo_worst"] == "fewer than two clients have positives of both groups"
    assert result.metrics["delta_sp_worst"] is None


def test_nodes_that_clients_share_make_no_interval_narrower():
    alone = of_clients([UNFAIR], [UNKNOWN])
    shared = of_clients([UNFAIR] * 9, [UNKNOWN] * 9, independent=1 / 9)
    counted = of_clients([UNFAIR] * 9, [UNKNOWN] * 9)
    for name in ("delta_sp", "delta_eo"):
        low, high = (shared.gaps[name][end] for end in ("low", "high"))
        assert (low, high) == pytest.approx((alone.gaps[name]["low"], alone.gaps[name]["high"]))
        assert counted.gaps[name]["high"] - counted.gaps[name]["low"] < high - low
    assert shared.counts["nodes"] == 36 and shared.counts["nodes_effective"] == 4


def test_of_several_classes_the_class_is_named():
    nodes = [(s, y, y) for s in (0, 1) for y in (0, 1, 2)] + [(1, 2, 0)] * 3
    result = summarise([grouped(*nodes, classes=3)] * 2)
    facts = result.gaps["delta_eo"]
    assert (facts["class"], facts["classes_compared"]) == (2, 3) and result.metrics["delta_eo"] == 0.75
    assert (facts["n_s0"], facts["n_s1"]) == (2, 8) and "positives" not in result.counts
    split_up = summarise([grouped((0, 0, 0), (1, 1, 1), classes=3)])
    assert split_up.undefined["delta_eo"] == "no class has nodes of both groups"
    assert split_up.metrics["delta_sp"] == 1.0


def test_the_document_is_plain_json_with_metrics_first():
    for tables in ([table([(1, 1), (2, 0)])], [FAIR, UNFAIR], [grouped()]):
        result = summarise(tables)
        document = json.loads(json.dumps(result.as_dict(), allow_nan=False))
        assert [*document] == [*result.metrics, "gaps", "counts", "undefined"]
