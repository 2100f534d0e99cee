"""The engine of clients that train alone: nothing leaves a client, and no round costs anything."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import load_config
from orchestrator.coordinator.alone import NoEngine
from orchestrator.coordinator.engine import Aggregation, RoundCost
from orchestrator.coordinator.factory import create_engine
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.methods.base import LocalUpdate
from orchestrator.models import create_network
from orchestrator.wire.message import Place
from tests.class_graphs import class_graph

LOCAL = ("method.name=local", "model.name=gcn-classifier", "evaluation.where=clients")
PLAN = plan_of(load_config(overrides=LOCAL))


@pytest.mark.parametrize("engine", ["plaintext", "embedded", "mpspdz"])
def test_local_training_has_it_whatever_the_engine(engine):
    assert isinstance(create_engine(load_config(overrides=[*LOCAL, f"engine.name={engine}"])), NoEngine)


def test_what_it_makes_of_an_update_is_nothing():
    engine = NoEngine(PLAN)
    encoder = pickle.loads(pickle.dumps(engine.encoder))
    assert encoder(LocalUpdate(np.ones(3), 1.0, {"embedding": np.ones(2)}), Place(1, 0, 5)) is None
    assert encoder(LocalUpdate(np.full(3, np.nan), np.inf, {}), Place(1, 0, 5), b"key") is None


def test_a_round_releases_nothing_and_costs_nothing():
    with NoEngine(PLAN) as engine:
        engine.start(np.ones(4))
        for number, cohort in ((1, [3, 1]), (2, [])):
            engine.prepare(number, len(cohort))
            for slot, client in enumerate(cohort):
                engine.submit(number, slot, client, None)
            assert engine.aggregate(number, cohort) == Aggregation(None, RoundCost())
    engine.close()


@pytest.mark.usefixtures("forkserver", "one_thread")
def test_in_the_round_loop_no_upload_holds_anything_and_clients_learn(tiny, tmp_path):
    class Watched(NoEngine):
        def submit(self, round, slot, client, upload):
            seen.append((round, client, upload))

    graph, seen = class_graph(120, edges=300), []
    config = tiny(
        tmp_path, *LOCAL, "federation={rounds: 6, cohort: 4}", "method.local_epochs=5", "clients.partition=disjoint"
    )
    folder = RunFolder.create(config)
    model = train(config, folder, audit=True, graph=graph, engine=Watched(plan_of(config)))
    assert [(number, upload) for number, _, upload in seen] == [(k, None) for k in range(1, 7) for _ in range(4)]
    costs = folder.costs()
    assert all(row[key] == 0 for row in costs for key in row if key not in ("round", "training_seconds"))
    network = create_network(graph.num_features, graph.classes, config.model)
    np.testing.assert_array_equal(model, network.initial_parameters(config.seed))  # where everybody started
    assert not (folder.path / "model.pt").exists()
    records = folder.records()
    assert records[-1]["val"]["accuracy"] > max(records[0]["val"]["accuracy"], 0.4)
    assert {row["model_difference"] for row in records} == {None} and folder.weights() is None
