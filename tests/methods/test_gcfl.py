"""GCFL: sketches against the matrix that they stand for, and planted clusters that the weights find."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpc_programs.arithmetic import CLAMP
from orchestrator.config import Config
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import ConfigError
from orchestrator.graphs.graph import Graph
from orchestrator.methods import create
from orchestrator.methods.gcfl import sketch
from orchestrator.methods.gcfl_settings import GCFLSettings
from orchestrator.models import create_network
from tests.class_graphs import class_graph
from tests.training_runs import Crash, CrashingFolder, run

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


def config(length=16, **method):
    return Config(
        model={"name": "gcn-classifier", "hidden": 6, "dropout": 0.0},
        method={"name": "gcfl", "local_epochs": 3, "learning_rate": 1e-2, "sketch": length} | method,
        evaluation={"where": "clients"},
    )


def start(graph, seed=0):
    return create_network(graph.num_features, graph.classes, config().model).initial_parameters(seed)


def cosine(u, v):
    return u @ v / np.linalg.norm(u) / np.linalg.norm(v)


@given(st.integers(1, 40), st.integers(2, 9), st.integers(0, 99))
def test_a_sketch_is_one_public_matrix_times_the_update_scaled_to_length_1(size, length, seed):
    """The matrix has one entry a column, 1 or -1; read off the sketches of unit vectors."""
    matrix = np.stack([sketch(unit, length, seed) for unit in np.eye(size)], axis=1)
    assert (np.abs(matrix).sum(axis=0) == 1).all() and set(np.unique(np.abs(matrix))) <= {0.0, 1.0}
    update = np.random.default_rng(seed).normal(size=size)
    image = matrix @ update
    norm = np.linalg.norm(image)
    np.testing.assert_allclose(sketch(update, length, seed), image / norm if norm else 0 * image, atol=1e-12)
    assert not sketch(np.zeros(size), length, seed).any()


@pytest.mark.parametrize("length", [16, 64])
def test_cosines_of_sketches_are_those_of_the_updates_within_what_is_stated(length):
    rng = np.random.default_rng(0)
    u, w = rng.normal(size=(2, 3000))
    for v in (u, -u, w, u + w):
        found = [sketch(u, length, seed) @ sketch(v, length, seed) for seed in range(200)]
        assert np.mean(found) == pytest.approx(cosine(u, v), abs=0.05)
        assert np.std(found) <= np.sqrt(2 / length)


def test_the_score_is_the_sketch_of_the_difference_that_the_last_training_made():
    graph, own = class_graph(), config()
    client = create(graph, own, 0)
    for received in (None, start(graph, 1)):
        begun = start(graph)
        if received is not None:
            client.receive(received)
            begun = received
        update = client.train(start(graph))
        trained = start(graph) - update.delta
        expected = sketch(begun - trained, 16, own.seed)
        np.testing.assert_allclose(update.scores["embedding"], expected, atol=1e-4)
        assert np.linalg.norm(update.scores["embedding"]) == pytest.approx(1)


def test_a_client_without_training_nodes_is_like_nobody():
    client = create(class_graph(train="none"), config(), 0)
    client.receive(start(class_graph(), 1))
    update = client.train(start(class_graph()))
    assert update.scores["embedding"].shape == (16,) and not update.scores["embedding"].any()
    np.testing.assert_array_equal(start(class_graph()) - update.delta, start(class_graph(), 1))


def test_all_scales_that_settings_allow_are_in_reach_of_the_exponential():
    [limit] = [item.le for item in GCFLSettings.model_fields["similarity"].metadata if hasattr(item, "le")]
    assert 2 * limit == CLAMP


def two_worlds() -> Graph:
    """Four graphs without an edge between them, two of each world; classes of one are the other's, swapped."""
    parts = [class_graph(160, classes=2, edges=600, seed=seed) for seed in range(4)]
    labels = [part.labels if k < 2 else 1 - part.labels for k, part in enumerate(parts)]
    return Graph(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.edges + 160 * k for k, part in enumerate(parts)], axis=1),
        np.concatenate(labels).astype(np.int8),
        None,
        classes=2,
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in ("train", "val", "test")},
    )


WORLDS = (
    "clients={partition: disjoint, count: 4}",
    "model={name: gcn-classifier, hidden: 8, dropout: 0.0}",
    "evaluation.where=clients",
    "federation={rounds: 8, cohort: 4}",
)
GCFL = ("method={name: gcfl, local_epochs: 4, learning_rate: 0.02}",)
FEDAVG = ("method={name: fedavg, local_epochs: 4, learning_rate: 0.02}",)


def accuracy(results):
    return results[-1].evaluations["test"].as_dict()["accuracy"]


def test_weights_find_two_planted_clusters_and_models_serve_both(tiny, tmp_path):
    from orchestrator.graphs import client_graphs

    graph, own = two_worlds(), tiny(tmp_path, *WORLDS, *GCFL)
    parts = client_graphs(graph, own.clients, own.seed)
    world = np.array([round(float((parts.nodes(c) >= 320).mean())) for c in range(4)])
    assert sorted(world) == [0, 0, 1, 1]
    _, results = run(own, graph=graph)
    for result in results:
        order = world[result.cohort]
        same = order[:, None] == order[None]
        assert (result.weights * same).sum(axis=1).min() > 0.9  # a client takes from its own world
        if result.round <= 3:  # and, while it learns, from the other one there
            assert result.weights[same].min() > 0.2
    assert accuracy(results) > 0.9
    _, mean = run(tiny(tmp_path, *WORLDS, *FEDAVG), graph=graph)
    assert accuracy(mean) < accuracy(results) - 0.2


def test_on_shares_it_is_the_same_within_the_bound(tiny, tmp_path):
    settings = (*WORLDS, *GCFL, "method.sketch=16", "federation.rounds=2")
    embedded = tiny(tmp_path, *settings, "engine={name: embedded, preprocessing: dealer}")
    _, results = run(embedded, graph=two_worlds(), audit=True)
    assert all(0 < r.difference <= r.bound and r.weights is None for r in results)


def test_an_interrupted_run_continues_as_if_it_had_not_been(tiny, tmp_path):
    own = tiny(tmp_path, *WORLDS, *GCFL, "federation.rounds=5", "federation.cohort=3", "model.dropout=0.5")
    whole, _ = run(own, graph=two_worlds())
    broken = CrashingFolder.create(own)
    with pytest.raises(Crash):
        train(own, broken, graph=two_worlds())
    resumed, read = RunFolder.open(broken.path)
    train(read, resumed, graph=two_worlds(), resume=True)
    assert (resumed.path / "metrics.jsonl").read_bytes() == (whole.path / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("wrong", ["privacy.clip_norm=1", "privacy={clip_norm: 1, noise_multiplier: 1}"])
def test_noise_is_refused_by_name(tiny, tmp_path, wrong):
    from orchestrator.agreement.from_settings import plan_of

    with pytest.raises(ConfigError, match=r"method\.name = gcfl gives every client its own model and does not go with"):
        plan_of(tiny(tmp_path, *WORLDS, *GCFL, wrong))
