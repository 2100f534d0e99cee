"""The methods on the real Cora: five clients of METIS learn its classes, and as well on secret shares."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.config import load_config
from orchestrator.graphs import load_graph
from tests.training_runs import run

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")

CORA = (
    "data={name: cora, scaling: row_normalised, split: [0.2, 0.4, 0.4]}",
    "clients={count: 5, partition: disjoint}",
    "model={hidden: 128, dropout: 0.5}",
    "method={local_epochs: 30, learning_rate: 0.01, weight_decay: 1e-6}",
    "federation={rounds: 3, cohort: 5}",
    "evaluation.where=clients",
    "engine={name: plaintext, preprocessing: dealer}",
)


@pytest.fixture(scope="module")
def cora(real_data):
    """``cora(run_dir, ...)``: settings, and the graph."""
    folder = real_data("planetoid")
    graph = load_graph(load_config(overrides=[*CORA, f"data.dir='{folder}'", "method.name=fedavg"]).data, 31)

    def build(run_dir, *overrides):
        return load_config(overrides=[*CORA, f"data.dir='{folder}'", f"run.dir='{run_dir}'", *overrides]), graph

    return build


@pytest.mark.parametrize(
    ("method", "network"),
    [("fedavg", "gcn-classifier"), ("fedpub", "gcn-classifier"), ("fedsage", "sage"), ("fedsage+", "sage")],
)
def test_clients_learn_in_a_few_rounds(cora, tmp_path, method, network):
    quick = ["method.generator={local_epochs: 2, exchanges: 1}"] * (method == "fedsage+")
    config, graph = cora(tmp_path, f"method.name={method}", f"model.name={network}", *quick)
    folder, results = run(config, graph=graph)
    accuracy = [record["test"]["accuracy"] for record in folder.records()]
    tested = int(graph.test.sum())
    assert folder.records()[0]["test"]["counts"] == {
        "clients": 5,
        "nodes": tested,
        "nodes_effective": tested,
    }
    largest_class = np.bincount(graph.labels[graph.test]).max() / graph.test.sum()
    assert len(results) == 3 and accuracy[-1] > 0.4 > largest_class > 1 / 7


def test_fedpub_on_secret_shares_learns_as_in_plaintext(cora, tmp_path):
    curves = {}
    for engine in ("plaintext", "embedded"):
        config, graph = cora(
            tmp_path,
            "method={name: fedpub, mask_penalty: 0.1, proximal: 1e-3}",
            "model={name: gcn-classifier, hidden: 16}",
            f"engine.name={engine}",
            "federation.rounds=2",
        )
        folder, results = run(config, graph=graph, audit=True)
        assert all(0 <= result.difference <= result.bound for result in results)
        curves[engine] = [record[mask]["accuracy"] for record in folder.records() for mask in ("val", "test")]
        assert (folder.weights() is None) == (engine == "embedded")
    assert curves["embedded"] == pytest.approx(curves["plaintext"], abs=0.005)
