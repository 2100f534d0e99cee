"""Cora, CiteSeer and PubMed: what their files hold, counted, and files that must not be unpickled."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures

from orchestrator.config import DataConfig
from orchestrator.errors import DataError
from orchestrator.graphs import load_graph
from orchestrator.graphs.edges import canonical_edges
from orchestrator.graphs.fetch import SOURCES
from orchestrator.graphs.graph import MISSING
from orchestrator.graphs.planetoid import read_planetoid
from orchestrator.graphs.prepare import prepare_graph


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "words", "classes"),
    [
        ("cora", 2_708, 5_278, 1_433, [351, 217, 418, 818, 426, 298, 180]),
        ("citeseer", 3_327, 4_552, 3_703, [264, 590, 668, 701, 596, 508]),
        ("pubmed", 19_717, 44_324, 500, [4_103, 7_739, 7_875]),
    ],
)
def test_the_files(planetoid, name, nodes, edges, words, classes):
    raw = read_planetoid(name, planetoid(name))
    assert raw.features.shape == (nodes, words)
    if name == "pubmed":  # weighted by how rare a word is
        assert ((raw.features >= 0) & (raw.features < 2)).all()
    else:
        assert set(np.unique(raw.features)) == {0, 1}
    assert canonical_edges(raw.edges, nodes).shape == (2, edges)
    assert np.bincount(raw.labels).tolist() == classes and raw.classes == len(classes)
    assert raw.sensitive is None


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "classes"),
    [
        ("cora", 2_485, 5_069, [344, 214, 406, 726, 379, 285, 131]),
        ("citeseer", 2_120, 3_679, [125, 308, 532, 388, 463, 304]),
        ("pubmed", 19_717, 44_324, [4_103, 7_739, 7_875]),
    ],
)
def test_the_largest_component(planetoid, name, nodes, edges, classes):
    graph = load_graph(DataConfig(name=name, dir=planetoid(name), scaling="row_normalised"), 1)
    assert (graph.num_nodes, graph.num_edges, graph.classes) == (nodes, edges, len(classes))
    assert np.bincount(graph.labels).tolist() == classes


def test_citeseer_has_nodes_without_words_or_class_and_isolated_ones(real_data):
    raw = read_planetoid("citeseer", real_data("planetoid"))
    blank = np.flatnonzero(raw.features.sum(axis=1) == 0)
    degree = np.bincount(canonical_edges(raw.edges, 3_327).ravel(), minlength=3_327)
    assert len(blank) == 15 and blank.min() > 2_312  # behind the nodes that are in no test set
    assert (raw.labels[blank] == 0).all() and (degree[blank] > 0).all()
    assert (degree == 0).sum() == 48
    component = prepare_graph(raw, "labelled_component", 1, "row_normalised")
    assert (component.features.sum(axis=1) == 0).sum() == 10
    raw.labels[blank] = MISSING  # gives the other size that is published
    component = prepare_graph(raw, "labelled_component", 1, "row_normalised")
    assert (component.num_nodes, component.num_edges) == (2_110, 3_668)


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_rows_are_normalised_as_by_pytorch_geometric(planetoid, name):
    raw = read_planetoid(name, planetoid(name))
    expected = NormalizeFeatures()(Data(x=torch.from_numpy(raw.features))).x.numpy()
    assert np.array_equal(prepare_graph(raw, "all", 1, "row_normalised").features, expected)


def test_every_file_must_be_there(tmp_path):
    for file in SOURCES["cora"].files:
        message = rf"{file}: no such file; run `safegnn data fetch cora --data-dir .*` or put {file} there"
        with pytest.raises(DataError, match=message):
            read_planetoid("cora", tmp_path)
        (tmp_path / file).touch()


@pytest.mark.parametrize("damage", [b"", b"cos\nsystem\n(S'exit 1'\ntR.", None])
def test_nothing_but_the_pinned_files_is_unpickled(real_data, tmp_path, monkeypatch, damage):
    for file in SOURCES["cora"].files:
        shutil.copyfile(real_data("planetoid") / file, tmp_path / file)
    graph = tmp_path / "ind.cora.graph"
    graph.write_bytes(graph.read_bytes()[:-1] if damage is None else damage)
    monkeypatch.setattr("os.system", lambda command: pytest.fail("the file ran a command"))
    with pytest.raises(
        DataError, match=r"ind\.cora\.graph: differs from data/ind\.cora\.graph of .*kimiyoung"
    ) as caught:
        read_planetoid("cora", tmp_path)
    assert "\n" not in str(caught.value)
