"""What a round's metrics are of: who is asked, when, and what is kept of those who are not."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from orchestrator.client.states import read_states
from orchestrator.coordinator.cohorts import sample_cohort
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.evaluation.group_table import GroupTable
from orchestrator.evaluation.rounds import round_evaluation
from orchestrator.files import read_arrays
from orchestrator.graphs import client_graphs
from orchestrator.methods import create
from tests.class_graphs import class_graph
from tests.training_runs import Crash, CrashingFolder

BY_CLIENTS = ("evaluation.where=clients", "model.name=gcn-classifier")
CLIENTS = range(6)


class Pool:
    """Client c has c + 1 validation nodes, of which `right` are predicted rightly, and two test nodes."""

    def __init__(self, **facts):
        self.asked, self.right, self.facts = [], 0, facts

    def evaluate(self, round, clients, parameters, own):
        self.asked.append((round, sorted(clients), float(parameters[0]), own))
        return {c: self.said(c) for c in clients}

    def said(self, c):
        predicted = (np.arange(c + 1) >= self.right).astype(int)
        val = GroupTable.of(None, np.zeros(c + 1, np.int8), predicted, 3).counts
        test = GroupTable.of(None, np.array([1, 2]), np.array([1, 1]), 3).counts
        aucs = {"val_auc": np.nan, "test_auc": c / 10}
        return {"val": val, "test": test, **aucs, **{name: value(c) for name, value in self.facts.items()}}


@pytest.fixture
def by_clients(tiny, tmp_path):
    """``by_clients(pool, "method.name=fedpub", said={})``: the evaluation."""

    def build(pool, *overrides, said=()):
        return round_evaluation(tiny(tmp_path, *BY_CLIENTS, *overrides), class_graph(), pool, dict(said))

    return build


MODEL = np.full(3, 7.0)


def test_a_released_global_model_is_asked_of_everybody_after_each_aggregation(by_clients):
    pool = Pool()
    evaluation = by_clients(pool, "method.name=fedavg")
    for number, cohort in ((1, [2, 0]), (2, [])):
        evaluation.trained(number, cohort, MODEL - 1)
        assert len(pool.asked) == number - 1
        evaluation.aggregated(number, cohort, MODEL)
    assert pool.asked == [(1, [*CLIENTS], 7.0, False), (2, [*CLIENTS], 7.0, False)]


@pytest.mark.parametrize("method", ["fedpub", "local"])
def test_a_personal_model_is_asked_of_the_cohort_and_of_the_unheard_after_aggregation(by_clients, method):
    pool = Pool()
    evaluation = by_clients(pool, f"method.name={method}")
    for number, cohort in ((1, [2, 0]), (2, [5]), (3, [])):
        evaluation.trained(number, cohort, MODEL)
        evaluation.aggregated(number, cohort, MODEL)
    assert pool.asked == [(1, [*CLIENTS], 7.0, True), (2, [5], 7.0, True), (3, [], 7.0, True)]


@pytest.mark.parametrize("method", ["fedavg", "fedpub", "local"])
def test_a_trained_model_is_asked_of_those_who_trained_before_aggregation(by_clients, method):
    pool = Pool()
    evaluation = by_clients(pool, f"method.name={method}", "evaluation.model=trained")
    for number, cohort in ((1, [2, 0]), (2, [5])):
        evaluation.trained(number, cohort, MODEL)
        asked = list(pool.asked)
        evaluation.aggregated(number, cohort, MODEL + 1)
        assert pool.asked == asked
    assert pool.asked == [(1, [*CLIENTS], 7.0, True), (2, [5], 7.0, True)]


def test_who_is_not_asked_keeps_what_it_said(by_clients):
    pool = Pool()
    evaluation = by_clients(pool, "method.name=fedpub")
    evaluation.aggregated(1, [0, 1], MODEL)
    assert evaluation.evaluations()["val"].metrics["accuracy"] == 0
    pool.right = 1
    evaluation.aggregated(2, [1, 3], MODEL)
    assert evaluation.evaluations()["val"].metrics["accuracy"] == pytest.approx((1 / 2 + 1 / 4) / 6)
    evaluation.aggregated(3, [0], MODEL)
    found = evaluation.evaluations()
    assert found["val"].metrics["accuracy"] == pytest.approx((1 + 1 / 2 + 1 / 4) / 6)
    assert (
        found["val"].counts == {"clients": 6, "nodes": 21, "nodes_effective": 21}
        and found["test"].metrics["accuracy"] == 0.5
    )


def test_what_a_checkpoint_kept_is_not_asked_again(by_clients):
    first, second = Pool(), Pool()
    before = by_clients(first, "method.name=fedpub")
    before.aggregated(1, [0], MODEL)
    after = by_clients(second, "method.name=fedpub", said=before.said)
    after.aggregated(2, [4], MODEL)
    assert second.asked == [(2, [4], 7.0, True)] and after.said.keys() == set(CLIENTS)


def test_a_mean_does_not_depend_on_whose_process_answered_first(by_clients):
    """Or two runs with one seed would differ in their last digits."""

    class Shuffled(Pool):
        def evaluate(self, round, clients, parameters, own):
            return {c: self.said(c) for c in orders.pop()}

    orders, found = [[5, 3, 1, 0, 4, 2], [*CLIENTS]], []
    for _ in range(2):
        pool = Shuffled(share=lambda c: 0.1 * 3**c)
        pool.right = 1
        evaluation = by_clients(pool, "method.name=fedavg")
        evaluation.aggregated(1, [0], MODEL)
        found.append((list(evaluation.said), evaluation.facts(), evaluation.evaluations()))
    assert found[0] == found[1]


def test_facts_are_means_over_the_clients(by_clients):
    evaluation = by_clients(Pool(mask_sparsity=lambda c: c / 10, other=lambda c: -(c**2)), "method.name=fedpub")
    evaluation.aggregated(1, [0], MODEL)
    assert evaluation.facts() == pytest.approx({"mask_sparsity": 0.25, "other": -(1 + 4 + 9 + 16 + 25) / 6})
    some = by_clients(Pool(some=lambda c: c if c > 3 else np.nan, none=lambda c: np.nan), "method.name=fedpub")
    some.aggregated(1, [0], MODEL)
    assert some.facts() == {"some": 4.5, "none": None}
    plain = by_clients(Pool(), "method.name=fedavg")
    plain.aggregated(1, [0], MODEL)
    assert plain.facts() == {}


def test_auc_is_the_mean_of_the_clients(by_clients):
    evaluation = by_clients(Pool(), "method.name=fedavg")
    evaluation.aggregated(1, [0], MODEL)
    assert evaluation.evaluations()["test"].metrics["auc"] == pytest.approx(0.25)
    assert evaluation.evaluations()["val"].metrics["auc"] is None


@pytest.mark.parametrize("graph", [class_graph(), class_graph(classes=2)], ids=["three classes", "no groups"])
def test_the_whole_graph_may_have_many_classes_and_no_groups(tiny, tmp_path, graph):
    config = tiny(tmp_path, "method.name=fedavg", "model.name=gcn-classifier")
    groups = (np.arange(60) % 3 == 0).astype(np.int8)
    parameters = np.zeros(8 * 8 + 8 + 8 * 8 + 8 + graph.classes * 9)
    for sensitive, gaps in ((None, set()), (groups, {"delta_sp", "delta_eo"})):
        fine = round_evaluation(config, replace(graph, sensitive=sensitive), None, {})
        fine.aggregated(1, [0], parameters)
        found = fine.evaluations()["val"]
        assert set(found.metrics) == {"accuracy", "auc", "balanced_accuracy", *gaps} and set(found.gaps) == gaps
        assert 0 <= found.metrics["accuracy"] <= 1 and fine.facts() == {} and fine.said == {}


def test_who_holds_a_node_with_others_does_not_make_the_figures_surer(tiny, tmp_path):
    """Kish: nodes of weights w count as (sum w)^2 / sum w^2."""
    graph = class_graph()
    for partition, alone in (("{count: 6, partition: disjoint}", True), ("{count: 6, hops: 2}", False)):
        config = tiny(tmp_path, *BY_CLIENTS, "method.name=fedavg", f"clients={partition}")
        parts = client_graphs(graph, config.clients, config.seed)
        evaluation = round_evaluation(config, graph, Pool(), {}, parts)
        evaluation.aggregated(1, [0], MODEL)
        holders = np.zeros(60)
        for c in CLIENTS:
            holders[parts.nodes(c)] += graph.val[parts.nodes(c)]
        counts = evaluation.evaluations()["val"].counts
        assert counts["nodes_effective"] == round(21 * holders.sum() / (holders**2).sum())
        assert (counts["nodes_effective"] == 21) == alone
    own = round_evaluation(config, graph, Pool(), {}, list(parts))
    own.aggregated(1, [0], MODEL)
    assert own.evaluations()["val"].counts["nodes_effective"] == 21  # nobody knows which nodes they share


# In the round loop


GRAPH = replace(class_graph(120, edges=300), sensitive=(np.arange(120) % 5 < 2).astype(np.int8))


@pytest.mark.usefixtures("forkserver", "one_thread")
@pytest.mark.parametrize("which", ["released", "trained"])
@pytest.mark.parametrize("method", ["fedavg", "fedpub", "local"])
def test_records_are_what_the_clients_models_give(tiny, tmp_path, method, which):
    """Every client is played again, alone, from what the run folder holds; partial cohorts."""
    config = tiny(
        tmp_path,
        *BY_CLIENTS,
        f"method.name={method}",
        f"evaluation.model={which}",
        "federation={rounds: 4, cohort: 2}",
        "clients.hops=2",
    )
    folder = RunFolder.create(config)
    model = train(config, folder, graph=GRAPH)
    parts = client_graphs(GRAPH, config.clients, config.seed)
    cohorts = [sample_cohort(config.federation, 6, config.seed, number) for number in range(1, 5)]
    arrays = read_arrays(folder.state_dir / "state.npz")
    files = dict(zip(arrays["clients"].tolist(), arrays["files"].tolist(), strict=True))
    assert files.keys() == set().union(*cohorts)
    tables = dict(zip(arrays["evaluated"].tolist(), arrays["evaluation/test"], strict=True))
    accuracies, scores, gaps = [], [], []
    for c in CLIENTS:
        client = create(parts[c], config, c)
        if c in files:
            client.load_state_dict(read_states(folder.state_dir / files[c], [c])[c])
        # The model that was evaluated is at hand for all but those that were replaced after training.
        if which == "released" or method == "local":
            predicted, test = client.predict(model, own=method != "fedavg"), parts[c].test
            own = GroupTable.of(parts[c].sensitive[test], parts[c].labels[test], predicted[test], 3)
            np.testing.assert_array_equal(tables[c], own.counts)
        table = tables[c].sum(axis=0)
        labels, predicted = (np.repeat(np.stack(axis).ravel(), table.ravel()) for axis in np.indices((3, 3)))
        if len(labels):
            accuracies.append(accuracy_score(labels, predicted))
            scores.append(f1_score(labels, predicted, average="macro"))
        if tables[c].any(axis=(1, 2)).all():
            shares = tables[c].sum(axis=1) / tables[c].sum(axis=(1, 2))[:, None]
            gaps.append(np.abs(shares[1] - shares[0]).max())
    last = folder.records()[-1]
    assert last["test"]["accuracy"] == pytest.approx(np.mean(accuracies))
    assert last["test"]["macro_f1"] == pytest.approx(np.mean(scores))
    # The gaps of every method: global, local, personal.
    test, total = last["test"], sum(tables.values())
    shares = total.sum(axis=1) / total.sum(axis=(1, 2))[:, None]
    assert test["delta_sp"] == pytest.approx(np.abs(shares[1] - shares[0]).max())
    assert test["delta_sp_mean"] == pytest.approx(np.mean(gaps)) and test["delta_sp_worst"] == pytest.approx(max(gaps))
    assert test["gaps"]["delta_sp"]["clients"] == len(gaps) == 6 - test["gaps"]["delta_sp"]["clients_lacking"]
    assert ("mask_sparsity" in last) == (method == "fedpub")


@pytest.mark.usefixtures("forkserver", "one_thread")
@pytest.mark.parametrize("which", ["released", "trained"])
@pytest.mark.parametrize("method", ["fedpub", "local"])
def test_a_resumed_run_says_the_same_as_an_uninterrupted_one(tiny, tmp_path, method, which):
    overrides = [f"method.name={method}", f"evaluation.model={which}", "federation={rounds: 5, cohort: 2}"]
    overrides += ["method.mask_penalty=0.1"] * (method == "fedpub")
    config = tiny(tmp_path, *BY_CLIENTS, *overrides, "model.dropout=0.5")
    whole, broken = RunFolder.create(config), CrashingFolder.create(config)
    train(config, whole, graph=GRAPH)
    with pytest.raises(Crash):
        train(config, broken, graph=GRAPH)
    assert len(broken.records()) == 4  # one more than its checkpoint
    resumed = RunFolder(broken.path)
    train(config, resumed, graph=GRAPH, resume=True)
    assert json.dumps(resumed.records()) == json.dumps(whole.records())
    assert (method == "local") == (resumed.weights() is None)
    if method == "fedpub":
        assert (resumed.path / "weights.csv").read_bytes() == (whole.path / "weights.csv").read_bytes()
