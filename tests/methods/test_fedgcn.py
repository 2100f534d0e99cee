"""FedGCN: what clients predict after the sums against the whole graph's own layers; what runs on shares; refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest

from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import Config
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import ConfigError
from orchestrator.evaluation.metrics import Evaluator
from orchestrator.graphs import client_graphs
from orchestrator.methods import create
from orchestrator.models import create_network
from orchestrator.models.gcn import normalised_adjacency
from tests.class_graphs import class_graph
from tests.training_runs import Crash, CrashingFolder, run

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")

GRAPH = class_graph(120, edges=360)
FEDGCN = (
    "method.name=fedgcn",
    "model={name: gcn-classifier, hidden: 6, dropout: 0.0}",
    "clients={partition: disjoint, count: 4}",
    "federation.cohort=3",
    "evaluation.where=clients",
)


def config(hops=1, partition="disjoint", name="gcn-classifier", **method):
    return Config(
        clients={"partition": partition, "count": 1 if partition == "whole" else 4},
        federation={"cohort": 1},
        model={"name": name, "hidden": 6, "dropout": 0.0},
        method={"name": "fedgcn", "hops": hops} | method,
    )


def heard(graph, own):
    """The clients after their sums, added up here without shares."""
    parts = client_graphs(graph, own.clients, own.seed)
    clients = [create(part, own, k) for k, part in enumerate(parts)]
    for each in own.method.statistics():
        total = np.sum([client.statistic(each.name) for client in clients], axis=0)
        for client in clients:
            client.hear_total(each.name, total)
    return parts, clients


def start(graph, own, seed=0):
    return create_network(graph.num_features, graph.classes, own.model).initial_parameters(seed)


@pytest.mark.parametrize("partition", ["disjoint", "louvain", "whole"])
@pytest.mark.parametrize("name", ["gcn", "gcn-classifier"])
def test_with_2_hops_a_clients_network_is_the_whole_graphs_at_its_nodes(partition, name):
    graph = class_graph(120, classes=2 if name == "gcn" else 3, edges=360)
    own = config(2, partition, name)
    parts, clients = heard(graph, own)
    released = start(graph, own)
    expected = Evaluator(graph, own.model).logits(released)
    for k, client in enumerate(clients):
        np.testing.assert_allclose(client.logits(released, own=False), expected[parts.nodes(k)], atol=1e-5)
    if partition != "whole":
        alone = create(parts[0], own.changed(method={"name": "fedavg"}), 0).logits(released, own=False)
        assert np.abs(alone - expected[parts.nodes(0)]).max() > 1e-2


def test_with_1_hop_the_first_layer_is_the_whole_graphs_and_the_second_lacks_what_was_cut():
    own = config(1)
    parts, clients = heard(GRAPH, own)
    whole = normalised_adjacency(GRAPH).toarray()
    for k, client in enumerate(clients):
        nodes = parts.nodes(k)
        np.testing.assert_allclose(client.tensors.propagated.numpy(), whole[nodes] @ GRAPH.features, atol=1e-5)
        np.testing.assert_allclose(client.tensors.adjacency.to_dense().numpy(), whole[np.ix_(nodes, nodes)], atol=1e-6)


def test_the_cut_is_what_the_whole_graphs_edges_say():
    parts = client_graphs(GRAPH, config().clients, 31)
    links = {(int(a), int(b)) for u, v in GRAPH.edges.T for a, b in ((u, v), (v, u))}
    for k, part in enumerate(parts):
        mine = set(parts.nodes(k).tolist())
        assert part.cut.nodes.tolist() == parts.nodes(k).tolist() and part.cut.size == 120
        found = {(int(part.cut.nodes[a]), int(b)) for a, b in part.cut.ends.T}
        assert found == {(u, v) for u, v in links if u in mine and v not in mine} and len(found) > 0
    for partition in ({"partition": "ego"}, {"partition": "overlapping", "count": 10, "copies": 5}):
        clients = config().changed(clients=partition).clients
        assert all(part.cut is None for part in client_graphs(GRAPH, clients, 31))


def test_with_1_hop_only_what_crosses_clients_is_added():
    own = config(1)
    parts = client_graphs(GRAPH, own.clients, own.seed)
    for k, part in enumerate(parts):
        rows = create(part, own, k).statistic("features").reshape(120, -1)
        assert not rows[parts.nodes(k)].any()
        assert set(np.flatnonzero(np.abs(rows).sum(axis=1))) == set(part.cut.ends[1])


def test_training_uses_what_was_heard_and_forgets_the_features():
    own = config(2, local_epochs=2)
    parts, clients = heard(GRAPH, own)
    alone = create(parts[0], own.changed(method={"name": "fedavg"}), 0)
    released = start(GRAPH, own)
    assert np.abs(clients[0].train(released).delta - alone.train(released).delta).max() > 1e-4
    assert clients[0]._features is None and clients[0].graph.features.size == 0


def test_longer_numbers_than_the_bound_are_told():
    for bound, expected in ((1e3, 0.0), (1e-3, 1.0)):
        _, clients = heard(GRAPH, config(1, bound=bound))
        assert clients[0].facts() == {"sums_shortened": expected}


def test_nodes_at_several_clients_are_refused():
    own = config().changed(clients={"partition": "ego"})
    with pytest.raises(ConfigError) as caught:
        create(client_graphs(GRAPH, own.clients, 31)[0], own, 0)
    assert str(caught.value) == (
        "clients.partition = ego: method.name = fedgcn needs clients whose nodes were cut out of one graph, each "
        "for one client: disjoint, louvain or given"
    )


def test_with_noise_the_sums_need_noise_too():
    private = {"clip_norm": 1.0, "noise_multiplier": 1.0, "epsilon_budget": 1e6}
    with pytest.raises(ConfigError, match="features"):
        plan_of(config(1).changed(privacy=private))
    plan = plan_of(config(2, sum_noise=2.0).changed(privacy=private))
    assert [each.name for each in plan.privacy.sums] == ["degrees", "features"]


@pytest.mark.parametrize("hops", [1, 2])
def test_on_shares_clients_hear_the_same(tiny, tmp_path, hops):
    losses = {}
    for engine in ("plaintext", "embedded"):
        own = tiny(tmp_path, *FEDGCN, f"method.hops={hops}", f"engine={{name: {engine}, preprocessing: dealer}}")
        folder, results = run(own, graph=GRAPH, audit=True)
        assert all(r.difference <= r.bound for r in results)
        losses[engine] = results[-1].parameters
        assert folder.records()[-1]["sums_shortened"] == 0
    assert 0 < np.abs(losses["plaintext"] - losses["embedded"]).max() < 1e-2


def test_an_interrupted_run_continues_as_if_it_had_not_been(tiny, tmp_path):
    own = tiny(tmp_path, *FEDGCN, "method.hops=2", "federation.rounds=5", "model.dropout=0.5")
    whole, results = run(own, graph=GRAPH)
    broken = CrashingFolder.create(own)
    with pytest.raises(Crash):
        train(own, broken, graph=GRAPH)
    resumed, read = RunFolder.open(broken.path)
    np.testing.assert_array_equal(train(read, resumed, graph=GRAPH, resume=True), results[-1].parameters)
    lines = [(f.path / "metrics.jsonl").read_text().splitlines() for f in (resumed, whole)]
    assert [json.loads(line) for line in lines[0]] == [json.loads(line) for line in lines[1]]
