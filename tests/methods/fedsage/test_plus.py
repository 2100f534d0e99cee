"""FedSage+'s client: what passes between clients before the first round, and what they learn from afterwards."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from orchestrator.config import Config
from orchestrator.evaluation.group_table import GroupTable
from orchestrator.methods import create
from orchestrator.methods.fedsage.neighgen import QUALITY
from orchestrator.models import create_network
from orchestrator.secure_sum import Sizes
from tests.class_graphs import class_graph


def config(generator=None, **method) -> Config:
    generator = {"encoder_hidden": 8, "latent": 6, "widths": [8, 16], "local_epochs": 3, "exchanges": 2} | (
        generator or {}
    )
    return Config(
        clients={"count": 3},
        model={"name": "sage", "hidden": 8, "dropout": 0.5},
        method={"name": "fedsage+", "local_epochs": 2, "learning_rate": 0.01, "generator": generator} | method,
        federation={"cohort": 3},
        evaluation={"where": "clients"},
    )


def graphs(**first):
    return [class_graph(seed=0, **first), class_graph(seed=1), class_graph(nodes=40, seed=2)]


def start(graph, own):
    return create_network(graph.num_features, graph.classes, own.model).initial_parameters(1)


def prepared(parts, own):
    """The clients after their preparation, all questions, and by step and client its answers to everybody."""
    clients, questions, answers = [create(graph, own, c) for c, graph in enumerate(parts)], [], []
    for step in range(type(clients[0]).preparations(own)):
        asked = {c: client.ask(step) for c, client in enumerate(clients)}
        questions.append(asked)
        heard: Any = [None] * len(clients)
        if own.method.answers() is not None:
            answers.append([client.answer(step, asked) for client in clients])
            heard = np.split(np.sum(answers[-1], axis=0), len(clients))
        for client, answer in zip(clients, heard, strict=True):
            client.hear(step, answer)
    return clients, questions, answers


def differ(one, other):
    """Whether these clients generated other neighbours."""
    return not np.array_equal(one.state_dict()["generated"], other.state_dict()["generated"])


@pytest.fixture(scope="module")
def preparation():
    """That of three clients, for tests which leave it as it is."""
    return prepared(graphs(), config())


def test_clients_learn_from_mended_graphs_and_are_measured_on_their_own_nodes(preparation):
    parts, own = graphs(), config()
    clients, *_ = preparation
    for graph, client in zip(parts, clients, strict=True):
        owners = client.state_dict()["owners"]
        assert len(owners) and client.tensors.sizes == [graph.num_nodes + len(owners)]
        np.testing.assert_array_equal(client.nodes.numpy(), np.flatnonzero(graph.train))
        model = start(graph, own)
        predicted = client.predict(model, own=False)
        assert predicted.shape == (graph.num_nodes,)
        said = client.evaluate(model, own=False)
        expected = GroupTable.of(None, graph.labels[graph.test], predicted[graph.test], 3)
        np.testing.assert_array_equal(said["test"], expected.counts)
        assert said["val"].sum() == graph.val.sum()


def test_generated_neighbours_change_what_is_learnt():
    parts, own = graphs(), config()
    (mended, *_), *_ = prepared(parts, own)
    plain = create(parts[0], own.changed(method={"name": "fedsage"}), 0)
    model = start(parts[0], own)
    assert np.abs(mended.train(model).delta - plain.train(model).delta).max() > 1e-4


def test_messages_are_a_generator_noisy_embeddings_and_gradients_and_hold_no_features(preparation):
    parts = graphs()
    _, questions, answers = preparation
    assert len(questions) == len(answers) == 2 and all(len(asked) == 3 for asked in questions)
    rows = {row.tobytes() for graph in parts for row in graph.features}
    width = 4 * parts[0].num_features
    messages = [value for asked in questions for question in asked.values() for value in question.values()]
    messages += [answer.astype(np.float32) for given in answers for answer in given]
    for value in messages:
        assert value.shape[-1:] != (parts[0].num_features,)
        content = np.ascontiguousarray(value).tobytes()
        assert not any(content[k : k + width] in rows for k in range(0, len(content) - width + 1, 4))


def test_a_client_answers_everybody_but_itself_as_long_as_the_sum_expects(preparation):
    _, questions, answers = preparation
    described, sizes = config().method.answers(), Sizes(100, graphs()[0].num_features, 3, 1, clients=3)
    for asked, given in zip(questions, answers, strict=True):
        for c, answer in enumerate(given):
            assert answer.shape == (described.length(sizes),) and np.linalg.norm(answer) < described.bound
            parts_of = np.split(answer, 3)
            assert [asker for asker in range(3) if not parts_of[asker].any()] == [c]
            assert {len(part) for part in parts_of} == {len(question["parameters"]) for question in asked.values()}


def test_answers_matter_by_their_weight(preparation):
    (client, *_), *_ = prepared(graphs(), config({"cross_weight": 5.0}))
    assert differ(client, preparation[0][0])


@pytest.mark.parametrize("generator", [{"cross_weight": 0.0}, {"exchanges": 0}])
def test_generators_that_learn_alone_send_nothing(generator):
    own = config(generator)
    clients, questions, answers = prepared(graphs(), own)
    assert questions == [{c: {} for c in range(3)}] and answers == []
    assert all("owners" in client.state_dict() for client in clients)


def test_the_preparation_is_a_function_of_seed_and_client(preparation):
    again, other = (prepared(graphs(), config().model_copy(update={"seed": seed}))[0][0] for seed in (config().seed, 5))
    assert not differ(again, preparation[0][0]) and differ(other, again)


def test_a_restored_client_has_its_mended_graph_and_continues_bit_by_bit():
    parts, own = graphs(), config()
    (client, *_), *_ = prepared(parts, own)
    model = start(parts[0], own)
    client.train(model)
    state = pickle.loads(pickle.dumps(client.state_dict()))
    restored = create(parts[0], own, 0)
    restored.load_state_dict(state)
    assert restored.facts() == client.facts() and client.evaluate(model, own=False).keys() >= set(QUALITY)
    assert np.isfinite([client.facts()[name] for name in QUALITY]).all()
    np.testing.assert_array_equal(restored.predict(model, own=False), client.predict(model, own=False))
    np.testing.assert_array_equal(restored.train(model).delta, client.train(model).delta)


def test_after_its_preparation_a_client_answers_no_more(preparation):
    (client, *_), questions, _ = preparation
    with pytest.raises(RuntimeError, match="preparation"):
        client.answer(0, questions[0])


@pytest.mark.parametrize(
    "odd", [{"pairs": []}, {"train": "none"}, {"train": "one node"}, {"only": 1}, {"nodes": 1, "pairs": []}]
)
def test_odd_clients_prepare_and_train(odd):
    parts, own = graphs(**odd), config({"local_epochs": 1, "exchanges": 1})
    clients, *_ = prepared(parts, own)
    model = start(parts[0], own)
    for client in clients:
        assert np.isfinite(client.train(model).delta).all()
    assert clients[0].evaluate(model, own=False)["val"].sum() == parts[0].val.sum()
