"""A trained model: what it needs of a graph, what its file holds, and what is refused in one line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config import ModelConfig
from orchestrator.errors import DataError, RunError
from orchestrator.graphs.graph import Graph
from orchestrator.graphs.meaning import Meaning
from orchestrator.graphs.scaling import POLICIES, Scaling
from orchestrator.models import create_network
from orchestrator.models.trained import FORMAT, TrainedModel, load_model
from tests.class_graphs import class_graph

NAMES = Meaning(("age", "income", "visits"), ("no", "yes"), ("f", "m"))
RNG = np.random.default_rng(5)
X = RNG.uniform(1, 9, (20, 3)).astype(np.float32)
EDGES = np.array([range(19), range(1, 20)])


def raw(x=X, names=NAMES, **options) -> Graph:
    return Graph.from_arrays(x, EDGES[:, : len(x) - 1], None, meaning=names, **options)


def trained(policy: str, names: Meaning = NAMES, classes: int = 2) -> TrainedModel:
    name = "gcn" if classes == 2 else "sage"
    network = create_network(3, classes, ModelConfig(name=name, hidden=4))
    return TrainedModel(network, network.initial_parameters(1), Scaling.of(policy, X), names)


def assert_same(first: pd.DataFrame, second: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(first, second)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_loaded_predicts_what_was_saved(policy, tmp_path):
    model = trained(policy)
    model.save(tmp_path / "model.pt")
    loaded = load_model(str(tmp_path / "model.pt"))
    assert_same(loaded.predict(raw()), model.predict(raw()))
    assert (loaded.meaning, loaded.scaling) == (NAMES, model.scaling)
    assert (tmp_path / "model.pt").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_features_are_scaled_as_the_model_says(policy):
    """By hand, and by the graph that was scaled for training."""
    model = trained(policy)
    scaled = raw(scaling=policy).scaled_to_predict()
    with torch.no_grad():
        edge_index = torch.from_numpy(np.concatenate([EDGES, EDGES[::-1]], axis=1))
        expected = torch.sigmoid(model.module()(torch.from_numpy(scaled.features), edge_index)).numpy()
    table = model.predict(raw())
    np.testing.assert_allclose(table["probability_yes"], expected, rtol=1e-5)
    np.testing.assert_allclose(table["probability_no"] + table["probability_yes"], 1, rtol=1e-5)
    assert (table["predicted"] == np.where(expected > 0.5, "yes", "no")).all()
    assert_same(model.predict(scaled), table)


def test_a_pooled_model_scales_others_as_its_own():
    """A few nodes, even one, are not brought to mean 0 by themselves."""
    model, scaled = trained("pooled"), Scaling.of("pooled", X).apply(X, "t")
    one = Graph.from_arrays(X[:1], EDGES[:, :0], None, meaning=NAMES)
    with torch.no_grad():
        logit = model.module()(torch.from_numpy(scaled[:1]), torch.empty(2, 0, dtype=torch.int64))
    np.testing.assert_allclose(model.predict(one)["probability_yes"], torch.sigmoid(logit), rtol=1e-5)
    with pytest.raises(DataError, match="one node; the model's features are scaled over the nodes that"):
        trained("by_client").predict(one)


def test_constant_features_are_left_out_of_new_graphs_too():
    wide = np.insert(X, 1, 3, axis=1)  # constant in training
    network = create_network(3, 2, ModelConfig(hidden=4))
    names = Meaning(("age", "country", "income", "visits"))
    vector = network.initial_parameters(1)
    for named in (names, Meaning()):
        model = TrainedModel(network, vector, Scaling.of("pooled", wide), named)
        new = wide.copy()
        new[:, 1] = np.arange(20)
        assert_same(model.predict(raw(new, named)), model.predict(raw(wide, named)))


def test_many_classes_and_no_names():
    table = trained("none", Meaning(), classes=4).predict(raw(names=Meaning()))
    assert list(table) == [*(f"probability_{c}" for c in range(4)), "predicted"]
    assert set(table["predicted"]) <= {"0", "1", "2", "3"}
    np.testing.assert_allclose(table.iloc[:, :4].sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("policy", POLICIES)
@given(order=st.permutations(range(3)))
def test_features_are_found_by_name(policy, order):
    names = replace(NAMES, features=tuple(NAMES.features[k] for k in order))
    graph, model = raw(X[:, order], names), trained(policy)
    assert_same(model.predict(graph), model.predict(raw()))
    assert model.reordered(graph) == (list(order) != [0, 1, 2])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("age", "visits"), "features lack 'income'; expected those that the model was trained on"),
        (("age", "income", "visits", "bmi"), "features have 'bmi'; expected .* trained on; drop the others"),
        (("age", "Income", "visits"), "features lack 'income' and have 'Income'; .*; drop the others"),
        (tuple("abcdefgh"), "lack 'age', 'income', 'visits' and have 'a', 'b', 'c', 'd', 'e' and 3 more; "),
        ((), "graph: 2 features; the model was trained on 3"),
    ],
)
@pytest.mark.parametrize("policy", POLICIES)
def test_other_features_are_refused_in_one_line(policy, columns, message):
    graph = raw(np.ones((20, len(columns) or 2)), Meaning(columns))
    with pytest.raises(DataError, match=message) as caught:
        trained(policy).predict(graph)
    assert "\n" not in str(caught.value)


def test_features_that_were_scaled_otherwise_are_refused():
    shifted = raw(X + 1, scaling="pooled")
    for model, graph, message in (
        (
            trained("pooled"),
            shifted,
            r"already \(pooled\), and not as the model's \(pooled\); give them as they",
        ),
        (trained("none"), shifted, r"scaled already \(pooled\), and not as the model's \(none\)"),
        (trained("pooled"), raw(scaling="by_client").scaled_to_train(), r"\(by_client\), and not .* \(pooled\)"),
        (trained("by_client"), raw(scaling="row_normalised"), r"\(row_normalised\), and not .* \(by_client\)"),
        (
            trained("by_client"),
            replace(raw(scaling="by_client"), meaning=Meaning(("income", "age", "visits"))).scaled_to_train(),
            r"\(by_client\), and not .* \(by_client\)",  # nothing is reordered after scaling
        ),
        (trained("by_client"), raw(X[:, :2], Meaning(), scaling="by_client").scaled_to_train(), "2 features; .* on 3"),
    ):
        with pytest.raises(DataError, match=message):
            model.predict(graph)


def test_labels_do_not_matter_not_even_of_a_class_that_the_model_does_not_know():
    labels = np.arange(20) % 3
    graph = Graph.from_arrays(X, EDGES, labels, labels % 2, meaning=NAMES)
    assert_same(trained("by_client").predict(graph), trained("by_client").predict(raw()))


class Foreign:
    pass


def test_files_that_are_no_models_are_refused_by_name(tmp_path):
    path = tmp_path / "model.pt"
    trained("pooled").save(path)
    whole, content = path.read_bytes(), torch.load(path, weights_only=True)
    for damaged in (b"", b"text", whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=r"model\.pt"):
            load_model(path)
    torch.save(content, path)
    load_model(path)  # what the following lack something of
    scaling = content["scaling"]
    for changed in (
        {},
        [1],
        {"format": FORMAT},
        content | {"parameters": torch.zeros(3)},
        content | {"parameters": torch.zeros(1, 37)},
        content | {"parameters": ["a"] * 37},
        content | {"parameters": None},
        content | {"classes": 3},
        content | {"model": {"hidden": 4, "name": "transformer"}},
        content | {"model": None},
        content | {"scaling": None},
        content | {"scaling": scaling | {"policy": "quantile"}},
        content | {"scaling": scaling | {"mean": torch.zeros(2)}},
        content | {"scaling": scaling | {"mean": None}},
        content | {"scaling": scaling | {"deviation": torch.full((3,), np.inf)}},
        content | {"meaning": {"features": ["age"]}},
        Foreign(),
    ):
        torch.save(changed, path)
        with pytest.raises(RunError, match=r"model\.pt: ") as caught:
            load_model(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(RunError, match="absent"):
        load_model(tmp_path / "absent.pt")


@pytest.mark.parametrize("version", [None, 0, FORMAT + 1, "new"])
def test_a_model_of_another_version_says_so(tmp_path, version):
    path = tmp_path / "model.pt"
    trained("none").save(path)
    torch.save(torch.load(path, weights_only=True) | {"format": version}, path)
    with pytest.raises(RunError, match=rf"model\.pt: a model of format {version}, which .* expected {FORMAT}"):
        load_model(path)


def test_a_model_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in ("nowhere/below", "file"):
        with pytest.raises(RunError, match=folder.partition("/")[0]):
            trained("none").save(tmp_path / folder / "model.pt")


def test_a_table_that_was_trained_on_is_predicted_without_its_labels():
    graph = class_graph(30)
    network = create_network(graph.num_features, graph.classes, ModelConfig(name="sage", hidden=4))
    model = TrainedModel(network, network.initial_parameters(2))
    links = np.array(graph.edges)
    assert_same(model.predict(Graph.from_arrays(graph.features, links, None)), model.predict(graph))
