"""Weights of personalised aggregation: their file, and the picture beside what is true of the clients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics.pairwise import cosine_similarity

from orchestrator.coordinator.cohorts import sample_cohort
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import RunError
from orchestrator.graphs import client_graphs
from orchestrator.reports import similarity
from orchestrator.reports.similarity import draw_similarity, label_similarity
from tests.class_graphs import class_graph

GRAPH = class_graph(120, edges=300)
FEDPUB = ("method.name=fedpub", "model.name=gcn-classifier", "evaluation.where=clients")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return RunFolder(tmp_path_factory.mktemp("weights"))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_weights_come_back_bit_by_bit(scratch, data):
    cohort = data.draw(st.lists(st.integers(0, 10**4), min_size=1, max_size=6, unique=True))
    numbers = st.floats(-1e300, 1e300) | st.floats(0, 1)
    weights = data.draw(arrays(np.float64, (len(cohort), len(cohort)), elements=numbers))
    scratch.save_weights(cohort, weights)
    clients, found = scratch.weights()
    assert clients == cohort and found.dtype == np.float64
    np.testing.assert_array_equal(found, weights)


def test_rows_are_the_clients_that_take(tmp_path):
    folder = RunFolder(tmp_path)
    folder.save_weights([7, 2], np.array([[0.75, 0.25], [0.5, 0.5]]))
    assert (tmp_path / "weights.csv").read_text() == "client,7,2\n7,0.75,0.25\n2,0.5,0.5\n"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"client\n",
        b"client,7,2\n",
        b"client,7,2\n7,0.75,0.25\n",
        b"client,7,2\n7,0.75,0.25\n2,0.5\n",
        b"client,7,2\n7,0.75\n2,0.5\n",
        b"client,7,2\n2,0.5,0.5\n7,0.75,0.25\n",
        b"client,7,2\n7,0.75,0.25\n2,0.5,half\n",
        b"client,a,b\na,1,0\nb,0,1\n",
        b"\xff\xfe\x00",
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, content):
    (tmp_path / "weights.csv").write_bytes(content)
    with pytest.raises(RunError) as caught:
        RunFolder(tmp_path).weights()
    assert str(caught.value).startswith(f"{tmp_path / 'weights.csv'}: cannot be read") and "\n" not in str(caught.value)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 99), st.booleans()), min_size=1, max_size=5))
def test_label_similarity_is_sklearns_cosine(clients):
    parts = [class_graph(n, classes=4, seed=s, only=s % 4 if one else None) for n, s, one in clients]
    counts = np.array([[(part.labels == c).sum() for c in range(4)] for part in parts])
    np.testing.assert_allclose(label_similarity(parts), cosine_similarity(counts), atol=1e-12)


def test_a_client_without_labels_is_like_nobody():
    blank = class_graph(4, train="none")
    blank.labels[:] = -1
    assert label_similarity([blank, class_graph(6)]).tolist() == [[0, 0], [0, pytest.approx(1)]]


@pytest.fixture
def drawn(monkeypatch):
    """What was drawn: weights, truth, its label, and the clients; and it is drawn."""
    calls, honest = [], similarity.plot_similarity

    def watched(weights, truth, label, clients, path, title):
        calls.append((weights, truth, label, clients))
        honest(weights, truth, label, clients, path, title)

    monkeypatch.setattr(similarity, "plot_similarity", watched)
    return calls


WEIGHTS = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])


def test_without_weights_there_is_no_picture(tiny, tmp_path, drawn):
    config = tiny(tmp_path, *FEDPUB)
    folder = RunFolder.create(config)
    assert draw_similarity(folder, GRAPH, config) is False
    assert not list(folder.path.glob("*.png")) and drawn == []


def test_beside_the_weights_stand_label_similarities(tiny, tmp_path, drawn):
    config = tiny(tmp_path, *FEDPUB)
    folder = RunFolder.create(config)
    folder.save_weights([4, 0, 3], WEIGHTS)
    assert draw_similarity(folder, GRAPH, config) is True
    assert (folder.path / "similarity.png").read_bytes().startswith(b"\x89PNG")
    parts = client_graphs(GRAPH, config.clients, config.seed)
    [(weights, truth, label, clients)] = drawn
    order = [1, 2, 0]  # that of the clients' numbers
    np.testing.assert_array_equal(weights, WEIGHTS[np.ix_(order, order)])
    np.testing.assert_allclose(truth, label_similarity([parts[0], parts[3], parts[4]]))
    assert label == "cosine of label counts" and clients == [0, 3, 4]


def test_or_communities_where_several_clients_come_from_one(tiny, tmp_path, drawn):
    config = tiny(tmp_path, *FEDPUB, "clients={count: 6, partition: overlapping, copies: 3}")
    folder = RunFolder.create(config)
    folder.save_weights([4, 0, 3], WEIGHTS)
    draw_similarity(folder, GRAPH, config)
    [(_, truth, label, _)] = drawn
    assert truth.tolist() == [[1, 0, 0], [0, 1, 1], [0, 1, 1]] and label == "same community"
    folder.save_weights([4, 0], WEIGHTS[:2, :2])  # a cohort with one client of each says nothing of communities
    draw_similarity(folder, GRAPH, config)
    assert drawn[1][2] == "cosine of label counts"


@pytest.mark.usefixtures("forkserver", "one_thread")
@pytest.mark.parametrize("method", ["fedpub", "fedavg"])
def test_a_plaintext_run_of_a_personal_rule_knows_its_weights(tiny, tmp_path, method):
    config = tiny(tmp_path, *FEDPUB, f"method.name={method}")
    folder = RunFolder.create(config)
    train(config, folder, graph=GRAPH)
    assert draw_similarity(folder, GRAPH, config) == (method == "fedpub")
    if method == "fedpub":
        clients, weights = folder.weights()
        assert clients == sample_cohort(config.federation, 6, config.seed, 2)
        np.testing.assert_allclose(weights.sum(axis=1), 1)
        assert (weights > 0).all() and (np.diag(weights) == weights.max(axis=1)).all()


@pytest.mark.usefixtures("forkserver", "one_thread")
def test_on_shares_nobody_does(tiny, tmp_path):
    config = tiny(tmp_path, *FEDPUB, "engine={name: embedded, preprocessing: dealer}", "federation.rounds=1")
    folder = RunFolder.create(config)
    train(config, folder, graph=GRAPH)
    assert folder.weights() is None and draw_similarity(folder, GRAPH, config) is False


@pytest.mark.usefixtures("forkserver", "one_thread")
def test_an_empty_cohort_leaves_the_weights_of_the_last_one(tiny, tmp_path):
    config = tiny(tmp_path, *FEDPUB, "federation={cohort: 1, sampling: poisson, rounds: 6}")
    cohorts = [sample_cohort(config.federation, 6, config.seed, number) for number in range(1, 7)]
    last = max(number for number, cohort in enumerate(cohorts) if not cohort and any(cohorts[:number])) + 1
    config = tiny(tmp_path, *FEDPUB, f"federation={{cohort: 1, sampling: poisson, rounds: {last}}}")
    folder = RunFolder.create(config)
    train(config, folder, graph=GRAPH)
    assert folder.weights()[0] == next(cohort for cohort in reversed(cohorts[:last]) if cohort)
    assert draw_similarity(folder, GRAPH, config)
