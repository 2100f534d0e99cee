"""`safegnn predict`: a run's model on files, the run's own or others."""

from __future__ import annotations

import csv
import io
import os
import shutil

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

from orchestrator import Graph, Run, load_config, train
from orchestrator.config import Config
from orchestrator.evaluation.metrics import Evaluator
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.methods import method_class
from tests.cli.commands import assert_refused
from tests.conftest import FITS, TINY

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")

FEATURES = ["age", "income, yearly", "visits"]


def patients(seed: int = 1, nodes: int = 60) -> tuple[pd.DataFrame, str]:
    """A table and an edge list; ids begin with zeros and income is in the thousands."""
    rng = np.random.default_rng(seed)
    ids, label = [f"{k:03}" for k in range(nodes)], np.where(rng.random(nodes) < 0.5, "ill", "well")
    values = np.stack([rng.integers(18, 90, nodes), rng.normal(3e4, 9e3, nodes).round(), rng.integers(0, 9, nodes)], 1)
    table = pd.DataFrame({"id": ids, **dict(zip(FEATURES, values.T, strict=True)), "state": label})
    table["sex"] = np.where(rng.random(nodes) < 0.5, "f", "m")
    links = {tuple(sorted((k, int(other)))) for k in range(nodes) for other in rng.integers(0, nodes, 2) if other != k}
    chain = {(k, k + 1) for k in range(nodes - 1)}
    return table, "".join(f"{ids[u]} {ids[v]}\n" for u, v in sorted(links | chain))


def write(folder, table: pd.DataFrame, edges: str) -> list[str]:
    """Returns the arguments that name the files."""
    folder.mkdir(exist_ok=True)
    table.to_csv(folder / "nodes.csv", index=False)
    (folder / "edges.txt").write_text(edges)
    return ["--data", str(folder / "nodes.csv"), "--data", str(folder / "edges.txt")]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    write(folder / "data", *patients())
    return folder


def settings(home, *overrides: str) -> Config:
    columns = "nodes: nodes.csv, edges: edges.txt, id: id, label: state, sensitive: sex, positive: well, protected: m"
    read = (f"data={{name: files, dir: '{home}/data', files: {{{columns}}}}}", f"run.dir='{home}/runs'")
    return load_config(overrides=[*TINY[2:], *read, "clients.partition=disjoint", *overrides])


@pytest.fixture(scope="module")
def runs(home):
    """``runs(*overrides)``: a run with these settings, trained once."""
    trained: dict[tuple[str, ...], Run] = {}

    def run(*overrides: str) -> Run:
        if overrides not in trained:
            trained[overrides] = train(settings=settings(home, *overrides))
        return trained[overrides]

    return run


def table(out: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(out), dtype={"node": str})


@pytest.mark.parametrize("scaling", ["by_client", "pooled", "none"])
def test_the_files_of_the_run_get_the_evaluators_predictions(safegnn, runs, scaling):
    run = runs(f"data.scaling={scaling}")
    code, out, err = safegnn("predict", str(run.folder))
    assert (code, err) == (0, "")
    found, graph = table(out), load_graph(run.settings.data, run.settings.seed)
    parameters = run.trained().parameters
    logits = Evaluator(graph, run.settings.model).logits(parameters).astype(np.float64)
    assert list(found) == ["node", "probability_ill", "probability_well", "predicted"]
    assert found["node"].tolist() == patients()[0]["id"].tolist()
    np.testing.assert_allclose(found[["probability_ill", "probability_well"]], softmax(logits, axis=1), atol=1e-5)
    assert found["predicted"].tolist() == np.where(logits[:, 1] > logits[:, 0], "well", "ill").tolist()
    again = Run.load(run.folder).predict(graph)
    np.testing.assert_allclose(again["probability_well"], found["probability_well"], atol=1e-5)


@pytest.mark.parametrize("scaling", ["by_client", "pooled"])
def test_other_files_without_label_and_group_in_another_order(safegnn, runs, tmp_path, scaling):
    run, (whole, edges) = runs(f"data.scaling={scaling}"), patients(seed=2, nodes=25)
    expected = table(safegnn("predict", str(run.folder), *write(tmp_path / "whole", whole, edges))[1])
    assert len(expected) == 25
    turned = whole[["visits", "id", "age", "income, yearly"]]
    code, out, err = safegnn("predict", str(run.folder), *write(tmp_path / "turned", turned, edges))
    assert code == 0 and err == "nodes: features are in another order than in training; they are found by name\n"
    pd.testing.assert_frame_equal(table(out), expected)
    unseen = whole.assign(state="unknown to the model", sex="")
    code, out, err = safegnn("predict", str(run.folder), *write(tmp_path / "unseen", unseen, edges))
    assert (code, err) == (0, "")
    pd.testing.assert_frame_equal(table(out), expected)


def test_files_can_be_named_by_settings_and_predictions_written_to_one(safegnn, runs, tmp_path):
    run = runs("data.scaling=pooled")
    files = write(tmp_path / "new", *patients(seed=3))
    printed = safegnn("predict", str(run.folder), *files)[1]
    out = tmp_path / "predictions.csv"
    for named in (["--data-dir", str(tmp_path / "new")], ["--set", f"data.dir={tmp_path}/new"]):
        assert safegnn("predict", str(run.folder), *named, "--output", str(out)) == (0, "", "")
        assert out.read_text() == printed
        out.unlink()
    os.chdir(tmp_path / "new")  # relative to where the command is given, not to data.dir
    assert safegnn("predict", str(run.folder), "--data", "nodes.csv", "--data", "edges.txt")[1] == printed
    assert_refused(
        safegnn("predict", str(run.folder), "--output", f"{tmp_path}/none/p.csv"), 1, "none/p.csv: cannot be"
    )


@pytest.mark.parametrize("method", ["local", "fedpub"])
def test_every_client_predicts_with_a_model_of_its_own(safegnn, runs, method):
    run = runs(f"method.name={method}", *FITS[method], "data.scaling=by_client", "model.dropout=0")
    assert run.model is None and not (run.folder / "model.pt").exists()
    graph = load_graph(run.settings.data, run.settings.seed)
    parts = client_graphs(graph, run.settings.clients, run.settings.seed)
    tables = [run.predict(part.scaled_to_train(), client=k) for k, part in enumerate(parts)]
    for k, part in enumerate(parts):  # as the client says of its own nodes
        state = _state(run, k)
        if state is None:
            continue
        client = method_class(method)(part.scaled_to_train(), run.settings, k)
        client.load_state_dict(state)
        classes = client.predict(np.zeros(client.network.size), own=True)
        assert tables[k]["predicted"].tolist() == [("ill", "well")[c] for c in classes]
        raw = run.predict(part, client=k)  # with the client's own scale
        pd.testing.assert_frame_equal(raw, tables[k])
    found = table(safegnn("predict", str(run.folder), "--client", "2")[1])
    nodes = parts.nodes(2)
    assert len(found) == 60 and len(nodes) == len(tables[2])
    whole = run.predict(graph, client=2)
    np.testing.assert_allclose(found["probability_ill"], whole["probability_ill"], atol=1e-5)


def _state(run: Run, client: int):
    from orchestrator.client.states import read_states
    from orchestrator.coordinator.run_folder import RunFolder

    files = RunFolder(run.folder).load().states
    return read_states(files[client], [client])[client] if client in files else None


def test_which_client_is_asked_for_where_it_matters(safegnn, runs):
    own, common = runs("method.name=local", *FITS["local"]), runs("data.scaling=pooled")
    refused = safegnn("predict", str(own.folder))
    assert_refused(refused, 1, "every client has a model of its own; choose a client, 0 to 5")
    assert_refused(safegnn("predict", str(own.folder), "--client", "6"), 1, "there is no client 6; expected 0 to 5")
    assert_refused(
        safegnn("predict", str(common.folder), "--client", "1"), 1, "one model for all clients; leave client 1"
    )
    assert_refused(safegnn("predict", str(own.folder), "--client", "-1"), 2, "'--client': -1 is not in the range")


def _without(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
    return table.drop(columns=list(columns))


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda t: _without(t, "age"), ["nodes: features lack 'age'; expected those that the model was trained on"]),
        (lambda t: t.assign(bmi=20), ["nodes: features have 'bmi'; expected", "drop the others"]),
        (lambda t: t.rename(columns={"age": "Age"}), ["features lack 'age' and have 'Age'"]),
        (lambda t: _without(t, "id"), ["nodes.csv: no column 'id'"]),
        (lambda t: t.assign(age="old"), ["nodes.csv: column 'age': holds text of 1 value, such as 'old' in row 1"]),
        (lambda t: t.iloc[:0], ["nodes.csv: no rows below the header"]),
        (lambda t: t.iloc[:-1], ["edges.txt: line", "id 059 is not in column 'id' of", "nodes.csv; 4 of 172 edges"]),
    ],
)
def test_tables_that_do_not_fit_are_refused_in_one_line(safegnn, runs, tmp_path, change, parts):
    nodes, edges = patients()
    files = write(tmp_path / "other", change(nodes), edges)
    assert_refused(safegnn("predict", str(runs("data.scaling=pooled").folder), *files), 1, *parts)


def test_columns_that_are_dropped_on_request(safegnn, runs, tmp_path):
    nodes, edges = patients()
    files, run = write(tmp_path / "more", nodes.assign(note="x"), edges), str(runs("data.scaling=pooled").folder)
    assert safegnn("predict", run, *files, "--set", "data.files.drop=[note]")[1] == safegnn("predict", run)[1]


@pytest.mark.parametrize(
    ("arguments", "status", "parts"),
    [
        (["--data", "nodes.csv"], 2, ["--data: got 1 files; expected data.files.nodes, data.files.edges"]),
        (["--set", "federation.rounds=3"], 2, ["--set federation.rounds=3: a prediction reads only data"]),
        (["--set", "data.files.nodez=3"], 2, ["data.files.nodez"]),
        (["--data", "no.csv", "--data", "no.txt"], 1, ["no.csv: no such file"]),
    ],
)
def test_arguments_that_do_not_fit(safegnn, runs, arguments, status, parts):
    assert_refused(safegnn("predict", str(runs("data.scaling=pooled").folder), *arguments), status, *parts)


def test_folders_that_hold_no_model(safegnn, runs, tmp_path):
    run = runs("data.scaling=pooled")
    assert_refused(safegnn("predict", str(tmp_path)), 1, "no run folder; it holds no config.yaml")
    copy = tmp_path / "run"
    shutil.copytree(run.folder, copy)
    (copy / "model.pt").write_bytes((run.folder / "model.pt").read_bytes()[:900])
    assert_refused(safegnn("predict", str(copy)), 1, "model.pt: not a model of this program")
    (copy / "model.pt").unlink()
    assert_refused(safegnn("predict", str(copy)), 1, "model.pt: no such file; training has not ended")


def test_a_graph_that_was_given_in_python(safegnn, home, runs):
    graph = load_graph(settings(home).data, 31)
    run = train(graph, settings=settings(home), federation={"rounds": 1})
    assert_refused(
        safegnn("predict", str(run.folder)), 2, "its graph was given in Python; predict there, Run.load(...)"
    )
    assert run.trained().meaning.features == tuple(FEATURES)
    columns = "nodes: nodes.csv, edges: edges.txt, id: id, label: state, sensitive: sex, positive: well, protected: m"
    files = f"data={{name: files, dir: '{home}/data', files: {{{columns}}}}}"
    code, out, _ = safegnn("predict", str(run.folder), "--set", files)
    assert code == 0 and len(table(out)) == 60


@pytest.mark.parametrize("scaling", ["by_client", "pooled"])
def test_clients_that_brought_their_own_graphs(home, scaling):
    config = settings(home, f"data.scaling={scaling}", "evaluation.where=clients", "federation.rounds=1")
    whole = load_graph(config.data, 31)
    run = train(settings=config, clients=list(client_graphs(whole, config.clients, 31)))
    table, files = patients()
    nodes = table.drop(columns=["state", "sex"])
    edges = pd.DataFrame([line.split() for line in files.splitlines()])
    new = Graph.from_pandas(nodes, edges, id="id", label=None)
    pd.testing.assert_frame_equal(run.predict(new), run.predict(whole))


def test_names_with_commas_and_quotes_stay_one_cell(safegnn, home, runs, tmp_path):
    nodes, edges = patients()
    nodes["state"] = nodes["state"].replace({"ill": 'ill, "very"', "well": "=well"})
    write(tmp_path / "named", nodes, edges)
    where = (f"data.dir='{tmp_path}/named'", "data.files.positive=['ill, \"very\"']")
    run = train(settings=settings(home, *where), federation={"rounds": 1})
    rows = list(csv.reader(io.StringIO(safegnn("predict", str(run.folder))[1])))
    assert rows[0] == ["node", "probability_=well", 'probability_ill, "very"', "predicted"]
    assert {len(row) for row in rows} == {4}
