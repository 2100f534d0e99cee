"""Simulated clients on Flower's nodes: the same rounds as with clients in processes of one machine."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs safegnn[flower]")

from flwr.app import Context, Metadata, RecordDict
from flwr.app.message import make_message

from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import load_config
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import ConfigError, PeerLostError, PeerTimeoutError
from orchestrator.flower import simulation
from orchestrator.flower.app_folder import write_app
from orchestrator.flower.parcel import packed, unpacked
from orchestrator.flower.simulation import GridClients, OnGrid, refuse_unkept
from tests.flower.federation import Federation

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


class ActorPost:
    """Nodes whose orders are carried out in this process, each as by an actor that has not seen the node before."""

    def __init__(self, nodes: int) -> None:
        self.contexts = {node: RecordDict() for node in range(100, 100 + nodes)}
        self._replies = {}

    def nodes(self):
        return set(self.contexts)

    def send(self, kind, contents, lifetime_sec):
        sent = {}
        for node, content in contents.items():
            metadata = Metadata(
                run_id=1, message_id="m", src_node_id=1, dst_node_id=node, reply_to_message_id="", group_id="",
                created_at=0.0, ttl=lifetime_sec, message_type=kind,
            )  # fmt: skip
            context = Context(run_id=1, node_id=node, node_config={}, state=self.contexts[node], run_config={})
            reply = simulation.client(message=make_message(metadata, content=packed(content)), context=context)
            self.contexts[node] = context.state
            sent[f"{node} {len(self._replies)}"] = node
            self._replies[f"{node} {len(self._replies)}"] = unpacked(reply.content)
        return sent

    def collect(self, messages, names):
        return {message: self._replies[message] for message in messages}


def trained(config, name, post=None):
    """The model and the figures of a run, on nodes or in processes."""
    folder, evaluations = RunFolder.create(config, name), []
    population = None if post is None else OnGrid(config, post)
    model = train(config, folder, population=population, observe=lambda result: evaluations.append(result.evaluations))
    return model, evaluations


@pytest.mark.parametrize("nodes", [1, 2, 99])
@pytest.mark.parametrize("method", ["method.name=fedavg", "method.name=f2gnn", "method.stateful=false"])
def test_the_run_is_that_of_processes_bit_by_bit(tiny, tmp_path, nodes, method):
    config = tiny(tmp_path, "engine.name=plaintext", "federation.rounds=3", "clients.batch=1", method)

    ours, said = trained(config, "grid", ActorPost(nodes))
    theirs, expected = trained(config, "pool")

    assert np.array_equal(ours, theirs)
    assert said == expected


def test_a_run_is_resumed_from_states_in_files(tiny, tmp_path):
    whole = tiny(tmp_path, "engine.name=plaintext", "federation.rounds=4", "clients.batch=1", "method.stateful=true")
    expected, _ = trained(whole, "whole")
    trained(whole.changed(federation={"rounds": 2}), "half", ActorPost(2))
    folder, _ = RunFolder.open(whole.run.dir / "half")

    anew = OnGrid(whole, ActorPost(2))  # whose contexts are empty
    assert np.array_equal(train(whole, folder, resume=True, population=anew), expected)


def test_what_an_actor_does_not_keep_is_refused(tiny, tmp_path):
    refuse_unkept(tiny(tmp_path))
    for preset, reason in (("fedpub-cora-disjoint-5", "reply key"), ("fedsage-plus-cora-louvain-5", "prepare")):
        with pytest.raises(ConfigError, match=reason):
            refuse_unkept(load_config([preset]))
    with pytest.raises(ConfigError, match=r"privacy\.ledger"):
        refuse_unkept(load_config(["dp-large"], None, ["privacy.ledger=/tmp/ledger"]))


def test_an_actor_that_fails_names_its_clients(tiny, tmp_path):
    config = tiny(tmp_path)

    class Silent(ActorPost):
        def collect(self, messages, names):
            return {}

    class Broken(ActorPost):
        def collect(self, messages, names):
            return {message: PeerLostError(names[message], "flower", 0, "Flower says: unknown") for message in messages}

    soon = config.changed(engine={"training_timeout_sec": 0.01})
    for post, error in ((Silent(2), PeerTimeoutError), (Broken(2), PeerLostError)):
        clients = GridClients(4, config, soon, post, wait=lambda seconds: None)
        with pytest.raises(error) as caught:
            clients.evaluate(3, [1], np.zeros(3), own=False)
        assert "clients 1, 3" in caught.value.peer
        assert caught.value.round == 3


def test_there_must_be_nodes(tiny, tmp_path):
    config = tiny(tmp_path)
    with pytest.raises(ConfigError, match="num-supernodes"):
        GridClients(4, config, config, ActorPost(0))


@pytest.mark.timeout(600)
def test_flower_run_on_ray_leaves_the_models_of_train(tiny, tmp_path):
    pytest.importorskip("ray", reason="needs safegnn[simulation]")
    config = tiny(tmp_path, "engine.name=embedded", "federation.rounds=1", "privacy.clip_norm=0.5")
    expected, _ = trained(config, "pool")
    (tmp_path / "settings.yaml").write_text(config.to_yaml())
    write_app(tmp_path / "app", simulation=True)

    with Federation(tmp_path / "f", tls=False) as federation:
        federation.start_link("--simulation")
        told = f"config='{tmp_path / 'settings.yaml'}' folder='ray'"
        resources = "num-supernodes=3 client-resources-num-cpus=1"
        printed = federation.run(tmp_path / "app", told, "--federation-config", resources, timeout_sec=500)

    assert (tmp_path / "ray").exists(), printed
    model = RunFolder.open(tmp_path / "ray")[0].load().parameters
    bound = plan_of(config).error_bound(config.federation.cohort, largest_coordinate=0.5)
    assert 0 < np.abs(model - expected).max() <= 2 * bound  # both round at random
