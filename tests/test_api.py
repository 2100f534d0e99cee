"""The Python API: one function that trains, whatever is brought, and what it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import orchestrator
from orchestrator import ConfigError, DataError, Run, RunError, client_graphs, load_graph, train
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train as run_rounds
from orchestrator.files import read_arrays
from tests.class_graphs import class_graph, edge_index
from tests.examples.modules import GCN, Broken
from tests.training_runs import Crash, crash_after

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


@pytest.fixture
def drawn() -> None:
    """Figures are drawn in this test."""


@pytest.fixture(autouse=True)
def undrawn(request, monkeypatch) -> None:
    """Elsewhere they are not: they take ten times as long as a training of this size."""
    if not {"drawn", "finished"} & set(request.fixturenames):
        monkeypatch.setattr("orchestrator.reports.run.draw_run", lambda folder, title: None)
        monkeypatch.setattr("orchestrator.page.build.write_report", lambda paths, output, exact_metrics: None)


def records(run: Run) -> list[dict]:
    return RunFolder(run.folder).records()


def metrics(run: Run) -> list[float | None]:
    """Those of all rounds and both masks; None where clients are too small for one."""
    found = [record[mask][name] for record in records(run) for mask in ("val", "test") for name in names(record)]
    assert any(value is not None for value in found)
    return found


def names(record) -> list[str]:
    return [name for name in record["val"] if name not in ("gaps", "counts", "undefined")]


def parameters(run: Run) -> np.ndarray:
    return read_arrays(run.folder / "checkpoint" / "state.npz")["parameters"]


# The names


def test_names_are_few_and_all_there():
    assert len(orchestrator.__all__) <= 15 and set(orchestrator.__all__) <= set(dir(orchestrator))
    for name in orchestrator.__all__:
        assert getattr(orchestrator, name).__name__ == name
    with pytest.raises(AttributeError, match="module 'orchestrator' has no attribute 'trian'"):
        _ = orchestrator.trian


def test_importing_the_package_imports_nothing_of_the_learning_side():
    code = "import sys, orchestrator; print(sorted({m.split('.')[0] for m in sys.modules} & set(sys.argv[1:])))"
    heavy = ["torch", "torch_geometric", "pandas", "numpy", "pydantic", "sklearn", "matplotlib"]
    found = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# What is brought


def test_a_graph_trains_as_the_one_that_the_settings_name(tiny, tmp_path):
    named, graph = tiny(tmp_path), load_graph(tiny(tmp_path).data, 31)
    first, second = train(settings=named), train(graph, settings=named)
    assert metrics(first) == metrics(second)
    np.testing.assert_array_equal(parameters(first), parameters(second))
    assert second.settings.data.name == "own" and RunFolder.open(second.folder)[1] == second.settings


def test_it_is_the_round_loop_that_the_command_line_runs(tiny, tmp_path):
    config = tiny(tmp_path)
    folder = RunFolder.create(config)
    np.testing.assert_array_equal(run_rounds(config, folder), parameters(train(settings=config)))


def test_clients_train_as_if_they_had_been_cut_out(tiny, tmp_path):
    config = tiny(tmp_path, "evaluation.where=clients")
    graph = load_graph(config.data, config.seed)
    cut = train(graph, settings=config)
    brought = train(settings=config, clients=list(client_graphs(graph, config.clients, config.seed)))
    assert metrics(cut) == metrics(brought)
    np.testing.assert_array_equal(parameters(cut), parameters(brought))
    assert (brought.settings.clients.partition, brought.settings.clients.count) == ("own", 6)


@pytest.mark.parametrize("where", ["whole_graph", "clients"])
def test_clients_are_evaluated_together_or_each(tiny, tmp_path, where):
    config = tiny(tmp_path, "clients.partition=disjoint")
    parts = list(client_graphs(load_graph(config.data, 31), config.clients, 31))
    run = train(settings=config, clients=parts, evaluation={"where": where}, federation={"rounds": 1})
    nodes = sum(int(part.val.sum()) for part in parts)
    assert run.metrics["val"]["counts"]["nodes"] == nodes


@pytest.mark.usefixtures("drawn")
def test_personalised_clients_of_ones_own_are_compared(tiny, tmp_path):
    parts = [class_graph(40, edges=80, seed=k) for k in range(3)]
    run = train(
        settings=tiny(tmp_path),
        clients=parts,
        model={"name": "gcn-classifier"},
        method={"name": "fedpub"},
        evaluation={"where": "clients"},
    )
    assert set(run.figures()) == {"costs", "curves", "similarity"} and run.model is None


# An own module


@pytest.mark.parametrize("method", ["f2gnn", "fedavg", "local"])
def test_the_layers_of_the_built_in_network_give_its_metrics(tiny, tmp_path, method):
    where = {"where": "clients" if method == "local" else "whole_graph"}
    settings = {"method": {"name": method}, "evaluation": where, "federation": {"rounds": 3}}
    theirs = train(settings=tiny(tmp_path), model={"dropout": 0.0}, **settings)
    ours = train(settings=tiny(tmp_path), model=GCN, **settings)
    assert metrics(ours) == pytest.approx(metrics(theirs), abs=1e-3)
    assert ours.settings.model.name == "own"
    if method != "local":
        np.testing.assert_allclose(np.sort(parameters(ours)), np.sort(parameters(theirs)), atol=1e-4)
        assert np.abs(np.sort(parameters(ours)) - np.sort(initial(tiny, tmp_path))).max() > 1e-3


def initial(tiny, tmp_path) -> np.ndarray:
    from orchestrator.models import create_network

    return create_network(6, 2, tiny(tmp_path).model).initial_parameters(31)


@pytest.mark.parametrize("method", ["f2gnn", "fedavg"])
def test_an_own_module_on_shares_keeps_the_error_bound(tiny, tmp_path, method):
    config = tiny(tmp_path, "engine.name=embedded", f"method.name={method}")
    seen = []
    run = train(settings=config, model=GCN, audit=True, observe=seen.append)
    assert [result.round for result in seen] == [1, 2]
    assert all(0 < result.difference <= result.bound for result in seen)
    plain = train(settings=config, model=GCN, engine={"name": "plaintext"})
    assert metrics(run) == pytest.approx(metrics(plain), abs=1e-3)


def test_a_class_of_a_script_trains_in_the_processes_of_clients(tiny, tmp_path):
    """Nobody can import it from there: a notebook's cell has no file."""
    cell = """
import torch
WIDTH = 5
class Net(torch.nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.first, self.last = torch.nn.Linear(in_features, WIDTH), torch.nn.Linear(WIDTH, out_features)
    def forward(self, x, edge_index):
        return self.last(self.first(x).relu())
"""
    notebook = {"__name__": "__main__"}
    exec(cell, notebook)
    run = train(settings=tiny(tmp_path), model=notebook["Net"])
    assert run.metrics["round"] == 2 and type(run.model).__name__ == "Net"


def test_the_final_model_is_the_released_one(tiny, tmp_path):
    config, graph = tiny(tmp_path), load_graph(tiny(tmp_path).data, 31)
    for model in (GCN, {"dropout": 0.0}):
        run = train(graph, settings=config, model=model)
        logits = run.model(torch.from_numpy(graph.features), edge_index(graph)).detach().numpy()
        accuracy = ((logits > 0) == graph.labels)[graph.test].mean()
        assert accuracy == pytest.approx(run.metrics["test"]["accuracy"])
        flat = np.concatenate([value.detach().numpy().ravel() for value in run.model.parameters()])
        np.testing.assert_allclose(flat, parameters(run), rtol=1e-6)


def test_a_resumed_run_of_everything_brought_is_the_same_run(tiny, tmp_path):
    """Also with dropout, whose randomness is torch's."""
    config, module = tiny(tmp_path, "federation.rounds=4"), partial(GCN, dropout=0.5)
    graph = load_graph(config.data, config.seed)
    whole, folders = train(graph, settings=config, model=module), []
    with pytest.raises(Crash):
        train(graph, settings=config, model=module, observe=partial(crash_after, 2), started=folders.append)
    resumed = train(graph, model=module, resume=folders[0])
    assert resumed.folder == folders[0] and records(resumed) == records(whole)
    np.testing.assert_array_equal(parameters(resumed), parameters(whole))
    for brought, message in (
        ({"model": module}, "resume: the run had graph given in Python; give it again"),
        ({"graph": graph}, "resume: the run had model given in Python; give it again"),
        ({"clients": [graph], "model": module}, "resume: the run had graph given in Python; give it again"),
        (
            {"graph": graph, "model": module, "seed": 1},
            "resume: the run continues with its own settings",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            train(resume=folders[0], **brought)


# The result


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory) -> Run:
    privacy = {"clip_norm": 0.5, "noise_multiplier": 2, "delta": 1e-3}
    return train(settings=tiny(tmp_path_factory.mktemp("api")), privacy=privacy, seed=7)


def test_a_run_says_what_it_came_to(finished):
    assert finished.settings.seed == 7 and finished.metrics == records(finished)[-1]
    frame = finished.dataframe()
    assert isinstance(frame, pd.DataFrame) and frame["round"].tolist() == [1, 2]
    assert frame["val_accuracy"].tolist() == [record["val"]["accuracy"] for record in records(finished)]
    assert finished.costs["upload_bytes_per_client"] > 0
    assert finished.privacy["epsilon"] == finished.metrics["epsilon"] and finished.privacy["delta"] == 1e-3
    assert finished.summary()["privacy"] == finished.privacy and finished.summary()["costs"] == finished.costs


def test_figures_are_files_in_the_folder(finished):
    figures = finished.figures()
    assert set(figures) == {"costs", "curves"}
    for name, path in figures.items():
        assert path == finished.folder / f"{name}.png" and path.read_bytes().startswith(b"\x89PNG")


def test_figures_are_drawn_anew_only_where_rounds_were_added(finished):
    curves = finished.folder / "curves.png"
    curves.write_bytes(b"old")
    assert finished.figures()["curves"].read_bytes() == b"old"
    os.utime(curves, (0, 0))
    assert finished.figures()["curves"].read_bytes() != b"old"
    curves.unlink()
    assert finished.figures()["curves"].exists()


def test_a_run_is_loaded_from_its_folder(finished):
    loaded = Run.load(str(finished.folder))
    assert (loaded.metrics, loaded.settings) == (finished.metrics, finished.settings)
    assert repr(loaded) == f"Run(folder={finished.folder!r})"
    with pytest.raises(RunError, match="no run folder"):
        Run.load(finished.folder / "checkpoint")


def test_without_noise_no_privacy_is_claimed(tiny, tmp_path):
    assert train(settings=tiny(tmp_path), federation={"rounds": 1}).privacy is None


def test_an_own_module_is_no_part_of_the_folder(tiny, tmp_path):
    run = train(settings=tiny(tmp_path), model=GCN, federation={"rounds": 1})
    with pytest.raises(RunError, match=r"its network is an own one; give it, Run\.load\(folder, model=\.\.\.\)"):
        _ = Run.load(run.folder).model
    assert type(Run.load(run.folder, GCN).model) is GCN


def test_a_run_that_ended_before_its_first_round(tiny, tmp_path):
    run = Run(RunFolder.create(tiny(tmp_path)).path, tiny(tmp_path))
    for ask in (lambda: run.metrics, run.dataframe, run.figures, run.summary, lambda: run.costs):
        with pytest.raises(RunError, match="no round was completed"):
            ask()
    assert run.model is None and run.privacy is None


def test_the_callers_threads_are_its_own_again(tiny, tmp_path):
    torch.set_num_threads(2)
    try:
        train(settings=tiny(tmp_path), federation={"rounds": 1})
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


# Settings, and what is refused


def test_settings_are_layers(tmp_path):
    run = {"dir": tmp_path}
    with pytest.raises(ConfigError, match="unknown preset 'nbaa'"):
        train(presets="nbaa", run=run)
    small = {"data": {"synthetic": {"nodes": 120, "edges": 300, "features": 6}}, "engine": {"name": "plaintext"}}
    first = train(presets=["demo"], **small, run=run, clients={"count": 4}, federation={"rounds": 1, "cohort": 2})
    assert (first.settings.clients.count, first.settings.federation.rounds) == (4, 1)
    assert first.settings.clients.hops == orchestrator.load_config(["demo"]).clients.hops


GRAPH = class_graph(40, edges=80)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"federatoin": {"rounds": 1}}, ConfigError, "federatoin: unknown setting"),
        ({"federation": {"round": 1}}, ConfigError, "federation.round: unknown setting"),
        ({"presets": "demo"}, ConfigError, "presets: they are layers below settings, .*; give one of the two"),
        ({"graph": GRAPH, "data": {"name": "nba"}}, ConfigError, "data: these settings are for graphs that are read"),
        ({"graph": GRAPH, "clients": [GRAPH]}, ConfigError, "graph: it is cut into clients; leave it out"),
        ({"clients": [GRAPH] * 2}, ConfigError, "federation.cohort = 3 is larger than clients.count = 2"),
        ({"clients": []}, DataError, "clients: there are none; expected a Graph each"),
        ({"clients": [GRAPH] * 3}, ConfigError, "model.name = gcn has one logit, but the data have 3 classes"),
        ({"data": {"name": "own"}}, DataError, r"data\.name = own: the graph is given in Python, train\(graph\)"),
        ({"clients": {"partition": "own"}}, DataError, r"clients\.partition = own: .* given in Python"),
        (
            {"clients": {"partition": "own", "features": "truncated"}},
            ConfigError,
            "clients.features = truncated: with clients.partition = own features are as they are given",
        ),
        ({"model": {"name": "own"}}, ConfigError, r"model\.name = own: the module is given in Python"),
        ({"model": GCN(6, 2)}, ConfigError, "model: expected a class, or a function"),
        ({"model": Broken}, ConfigError, "model: Broken keeps norm.num_batches_tracked, .* would not be averaged"),
        (
            {"model": GCN, "method": {"name": "fedsage"}},
            ConfigError,
            "model.name = own: method.name = fedsage trains sage only",
        ),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_no_folder(tiny, tmp_path, arguments, error, message):
    with pytest.raises(error, match=message):
        train(**{"settings": tiny(tmp_path)} | arguments)
    assert not any(tmp_path.iterdir())


def test_f2gnn_is_for_two_classes_whatever_the_module(tiny, tmp_path):
    class Three(nn.Module):
        def __init__(self, in_features, out_features):
            super().__init__()
            self.layer = nn.Linear(in_features, out_features)

        def forward(self, x, edge_index):
            return self.layer(x)

    graph, where = class_graph(120, edges=300), {"where": "clients"}
    with pytest.raises(ConfigError, match=r"method\.name = f2gnn is for two classes, but the data have 3"):
        train(graph, settings=tiny(tmp_path), model=Three, evaluation=where)
    run = train(graph, settings=tiny(tmp_path), model=Three, evaluation=where, method={"name": "fedavg"})
    assert run.metrics["round"] == 2
