"""FedSage+'s client: what passes between clients before the first round, and what they learn from afterwards."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from orchestrator.config import Config
from orchestrator.evaluation.group_table import GroupTable
from orchestrator.methods import create
from orchestrator.models import create_network
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
    """The clients after their preparation, and every message: (kind, step, from, to) to arrays."""
    clients, messages = [create(graph, own, c) for c, graph in enumerate(parts)], {}
    for step in range(type(clients[0]).preparations(own)):
        questions = [client.ask(step) for client in clients]
        answers = {}
        for asker, question in enumerate(questions):
            for c, client in enumerate(clients):
                if c != asker:
                    messages["question", step, asker, c] = question
                    answers[asker, c] = messages["answer", step, c, asker] = client.answer(step, question)
        for asker, client in enumerate(clients):
            client.hear(step, [answers[asker, c] for c in range(len(clients)) if c != asker])
    return clients, messages


def test_clients_learn_from_mended_graphs_and_are_measured_on_their_own_nodes():
    parts, own = graphs(), config()
    clients, _ = prepared(parts, own)
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
    (mended, *_), _ = prepared(parts, own)
    plain = create(parts[0], own.changed(method={"name": "fedsage"}), 0)
    model = start(parts[0], own)
    assert np.abs(mended.train(model).delta - plain.train(model).delta).max() > 1e-4


def test_messages_are_a_generator_noisy_embeddings_and_gradients_and_hold_no_features():
    parts, own = graphs(), config()
    _, messages = prepared(parts, own)
    assert len(messages) == 2 * 2 * 3 * 2
    rows = {row.tobytes() for graph in parts for row in graph.features}
    for (kind, *_), message in messages.items():
        assert message.keys() == (
            {"embeddings", "chosen", "parameters"} if kind == "question" else {"gradient", "loss"}
        )
        for value in message.values():
            assert value.shape[-1:] != (parts[0].num_features,)
            width = 4 * parts[0].num_features
            content = np.ascontiguousarray(value).tobytes()
            assert not any(content[k : k + width] in rows for k in range(0, len(content) - width + 1, 4))


def test_answers_matter_by_their_weight():
    generated = []
    for weight in (1.0, 5.0):
        clients, _ = prepared(graphs(), config({"cross_weight": weight}))
        generated.append(clients[0].state_dict()["generated"])
    assert generated[0].shape != generated[1].shape or not np.array_equal(*generated)


@pytest.mark.parametrize("generator", [{"cross_weight": 0.0}, {"exchanges": 0}])
def test_generators_that_learn_alone_send_nothing(generator):
    own = config(generator)
    clients, messages = prepared(graphs(), own)
    assert type(clients[0]).preparations(own) == 1
    assert messages and not any(messages.values())
    assert all("owners" in client.state_dict() for client in clients)


def test_the_preparation_is_a_function_of_seed_and_client():
    own = config()
    first, second = (prepared(graphs(), own)[0][0].state_dict() for _ in range(2))
    other = prepared(graphs(), own.model_copy(update={"seed": 5}))[0][0].state_dict()
    np.testing.assert_array_equal(first["generated"], second["generated"])
    assert first["generated"].shape != other["generated"].shape or not np.array_equal(
        first["generated"], other["generated"]
    )


def test_a_restored_client_has_its_mended_graph_and_continues_bit_by_bit():
    parts, own = graphs(), config()
    (client, *_), _ = prepared(parts, own)
    model = start(parts[0], own)
    client.train(model)
    state = pickle.loads(pickle.dumps(client.state_dict()))
    restored = create(parts[0], own, 0)
    restored.load_state_dict(state)
    np.testing.assert_array_equal(restored.predict(model, own=False), client.predict(model, own=False))
    np.testing.assert_array_equal(restored.train(model).delta, client.train(model).delta)


def test_after_its_preparation_a_client_answers_no_more():
    (client, *_), messages = prepared(graphs(), config())
    with pytest.raises(RuntimeError, match="preparation"):
        client.answer(0, messages["question", 0, 1, 0])


@pytest.mark.parametrize(
    "odd", [{"pairs": []}, {"train": "none"}, {"train": "one node"}, {"only": 1}, {"nodes": 1, "pairs": []}]
)
def test_odd_clients_prepare_and_train(odd):
    parts, own = graphs(**odd), config()
    clients, _ = prepared(parts, own)
    model = start(parts[0], own)
    for client in clients:
        assert np.isfinite(client.train(model).delta).all()
    assert clients[0].evaluate(model, own=False)["val"].sum() == parts[0].val.sum()
