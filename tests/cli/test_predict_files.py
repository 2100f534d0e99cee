"""`safegnn predict` on the kinds of files that a run can be of, without what only training needs of them."""

from __future__ import annotations

import io

import networkx
import numpy as np
import pandas as pd
import pytest

from orchestrator import Run, load_config, train
from orchestrator.graphs import load_graph
from tests.cli.commands import assert_refused
from tests.conftest import TINY

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")

NODES = 60
MEANT = "label: state, positive: ill, sensitive: sex, protected: f"


def table() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    columns = {"id": [f"p{k}" for k in range(NODES)], "age": rng.integers(18, 90, NODES).astype(float)}
    columns |= {"ward": np.array(["bone", "heart", "lung"])[np.arange(NODES) % 3], "visits": rng.integers(0, 9, NODES)}
    columns |= {"state": rng.choice(["ill", "well"], NODES), "sex": rng.choice(["f", "m"], NODES)}
    columns |= {"site": np.array(["A", "B"])[np.arange(NODES) // 30], "part": ["train", "train", "val", "test"] * 15}
    return pd.DataFrame(columns)


def links() -> list[tuple[int, int]]:
    rng = np.random.default_rng(5)
    return [(k, k + 1) for k in range(NODES - 1)] + [(u, v) for u, v in rng.integers(0, NODES, (60, 2)) if u != v]


def write(folder, nodes: pd.DataFrame, edges=None) -> list[str]:
    """Returns the arguments that name the files."""
    folder.mkdir(exist_ok=True)
    nodes.to_csv(folder / "nodes.csv", index=False)
    pairs = links() if edges is None else edges
    (folder / "edges.txt").write_text("".join(f"p{u} p{v}\n" for u, v in pairs))
    return ["--data", str(folder / "nodes.csv"), "--data", str(folder / "edges.txt")]


def trained(home, files: str, *overrides: str) -> Run:
    data = f"data={{name: files, dir: '{home}/data', files: {{{files}, {MEANT}}}}}"
    settings = load_config(overrides=[*TINY[2:], data, f"run.dir='{home}/runs'", "federation.rounds=1", *overrides])
    return train(settings=settings)


def predicted(safegnn, run: Run, *arguments: str) -> pd.DataFrame:
    code, out, err = safegnn("predict", str(run.folder), *arguments)
    assert (code, err) == (0, "")
    return pd.read_csv(io.StringIO(out), dtype={"node": str})


def assert_evaluators(found: pd.DataFrame, run: Run) -> None:
    """As of the graph that training was on."""
    expected = run.predict(load_graph(run.settings.data, run.settings.seed))
    np.testing.assert_allclose(found["probability_ill"], expected["probability_ill"], atol=1e-5)


COLUMNS = "nodes: nodes.csv, edges: edges.txt, id: id, client: site, split: part, one_hot: [ward], impute: mean"
GIVEN = ("clients={partition: given, count: 2}", "federation.cohort=2")


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Clients that a column gives, with gaps, a split and text among the columns."""
    home = tmp_path_factory.mktemp("given")
    write(home / "data", table().assign(age=lambda t: t.age.mask(t.index % 7 == 0)))
    return trained(home, COLUMNS, *GIVEN)


def test_columns_that_only_training_needs(safegnn, given, tmp_path):
    whole = predicted(safegnn, given)
    assert whole["node"].tolist() == table()["id"].tolist()
    assert_evaluators(whole, given)  # without edges between clients, gaps filled in by client
    same = table().assign(age=lambda t: t.age.mask(t.index % 7 == 0))
    unknown = same.assign(state="who knows", sex=np.nan, part="later")
    pd.testing.assert_frame_equal(predicted(safegnn, given, *write(tmp_path / "b", unknown)), whole)
    bare = same.drop(columns=["state", "sex", "part", "site"])
    found = predicted(safegnn, given, *write(tmp_path / "c", bare))
    assert found["node"].tolist() == whole["node"].tolist()
    assert not found.equals(whole)  # nobody says which edges are between clients
    pd.testing.assert_frame_equal(predicted(safegnn, given, *write(tmp_path / "d", same.assign(site=""))), found)


def test_a_value_of_text_that_new_files_lack_and_one_that_training_lacked(safegnn, given, tmp_path):
    few = table()[lambda t: t.index < 12].drop(columns=["state", "sex", "part", "site"])
    edges = [(u, v) for u, v in links() if u < 12 and v < 12]
    whole = predicted(safegnn, given, *write(tmp_path / "few", few, edges)).set_index("node")
    assert len(whole) == 12
    inside = few[few.ward != "lung"]
    known = set(inside.index)
    pairs = [(u, v) for u, v in edges if u in known and v in known]
    assert len(predicted(safegnn, given, *write(tmp_path / "two", inside, pairs))) == 8
    files = write(tmp_path / "new", few.assign(ward="eye"), edges)
    assert_refused(safegnn("predict", str(given.folder), *files), 1, "features have 'ward=eye'; expected those that")


def test_a_table_that_counts_its_rows_in_a_feature(safegnn, given, tmp_path):
    """By chance: of new nodes `visits` is 1, 2, 3."""
    three = table()[:3].assign(visits=[1, 2, 3])
    assert len(predicted(safegnn, given, *write(tmp_path / "three", three, [(0, 1), (1, 2)]))) == 3


def test_folders_of_clients_and_files_of_one(safegnn, tmp_path):
    whole = table().drop(columns=["part", "ward"])
    (tmp_path / "data").mkdir()
    files = {}
    for site, nodes in whole.groupby("site"):
        ours = [(u, v) for u, v in links() if u in nodes.index and v in nodes.index]
        files[site] = write(tmp_path / "data" / str(site), nodes.drop(columns="site"), ours)
    columns = "nodes: nodes.csv, edges: edges.txt, id: id, client_folders: true"
    run = trained(tmp_path, columns, *GIVEN, "data.scaling=pooled")
    found = predicted(safegnn, run)
    assert found["node"].tolist() == [f"{'AB'[k // 30]}/p{k}" for k in range(NODES)]
    assert_evaluators(found, run)
    one = predicted(safegnn, run, *files["B"])
    assert one["node"].tolist() == [f"p{k}" for k in range(30, NODES)]
    np.testing.assert_allclose(one["probability_ill"], found["probability_ill"][30:], atol=1e-5)


def test_graphml(safegnn, tmp_path):
    (tmp_path / "data").mkdir()
    nodes = table().drop(columns=["part", "ward", "site"]).set_index("id")
    graph = networkx.Graph()
    graph.add_nodes_from((name, dict(row)) for name, row in nodes.iterrows())
    graph.add_edges_from((f"p{u}", f"p{v}") for u, v in links())
    networkx.write_graphml(graph, tmp_path / "data" / "graph.graphml")
    run = trained(tmp_path, "nodes: graph.graphml")
    found = predicted(safegnn, run)
    assert found["node"].tolist() == list(nodes.index)
    assert_evaluators(found, run)
    for _, values in graph.nodes(data=True):
        del values["state"], values["sex"]
    networkx.write_graphml(graph, tmp_path / "bare.graphml")
    pd.testing.assert_frame_equal(predicted(safegnn, run, "--data", str(tmp_path / "bare.graphml")), found)
    refused = safegnn("predict", str(run.folder), "--data", "a.csv", "--data", "b.csv")
    assert_refused(refused, 2, "--data: got 2 files; expected data.files.nodes")


def test_arrays_with_masks_and_without(safegnn, tmp_path):
    (tmp_path / "data").mkdir()
    nodes, edges = table(), np.array(links()).T
    arrays = {"x": nodes[["age", "visits"]].to_numpy(float), "edge_index": edges, "ids": nodes["id"].to_numpy(str)}
    known = {name: nodes[name].to_numpy(str) for name in ("state", "sex")}
    masks = {f"{part}_mask": (nodes["part"] == part).to_numpy() for part in ("train", "val", "test")}
    np.savez(tmp_path / "data" / "graph.npz", **arrays, **known, **masks)
    run = trained(tmp_path, "nodes: graph.npz")
    found = predicted(safegnn, run)
    assert found["node"].tolist() == nodes["id"].tolist()
    assert_evaluators(found, run)
    np.savez(tmp_path / "new.npz", **arrays)
    pd.testing.assert_frame_equal(predicted(safegnn, run, "--data", str(tmp_path / "new.npz")), found)
