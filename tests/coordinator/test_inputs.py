"""What a run began with: it goes on with that only, for as many rounds as are wanted."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from orchestrator import api
from orchestrator.config import Config, load_config
from orchestrator.coordinator import run_folder
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import ConfigError, DataError, RunError
from orchestrator.files import read_arrays
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.privacy.plan import PrivacyPlan
from orchestrator.reports.run import privacy_report
from tests.training_runs import Crash, crash_after, run

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


@pytest.fixture(scope="module")
def interrupted(tiny, tmp_path_factory):
    """A configuration, its graph, and its run of three rounds that ended after the first."""
    config = tiny(tmp_path_factory.mktemp("interrupted"), "federation.rounds=3", "engine.client_processes=1")
    folder = RunFolder.create(config, "run")
    with pytest.raises(Crash):
        train(config, folder, observe=partial(crash_after, 1))
    return config, load_graph(config.data, config.seed), folder.path


@pytest.fixture
def copy(interrupted, tmp_path):
    """The run's folder, to be changed."""
    return RunFolder(shutil.copytree(interrupted[2], tmp_path / "run"))


def refused(error, call, *arguments, **options) -> str:
    with pytest.raises(error) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def one_changed(values: np.ndarray) -> np.ndarray:
    changed = values.copy()
    changed.flat[0] = 1 - changed.flat[0]
    return changed


CHANGES = {
    "features": lambda graph: {"features": one_changed(graph.features)},
    "edges": lambda graph: {"edges": graph.edges[:, 1:]},
    "labels": lambda graph: {"labels": one_changed(graph.labels)},
    "sensitive": lambda graph: {"sensitive": one_changed(graph.sensitive)},
    "train": lambda graph: {"train": graph.train & (np.arange(graph.num_nodes) > graph.train.argmax())},
}


@pytest.mark.parametrize("what", CHANGES)
def test_another_graph_is_refused_and_what_differs_named(interrupted, copy, what):
    config, graph, _ = interrupted
    other = replace(graph, **CHANGES[what](graph))
    said = refused(RunError, train, config, copy, resume=True, graph=other)
    assert said == f"{copy.path}: the graph is another one than the run began with: {what} differ"
    assert len(copy.records()) == 1


def test_the_same_graph_from_elsewhere_goes_on(interrupted, copy):
    """Where it is read from and what it is called make no run another one."""
    config, graph, _ = interrupted
    moved = config.changed(data={"dir": "elsewhere"})
    told = []
    train(moved, copy, resume=True, graph=replace(graph, name="other"), announce=told.append)
    assert f"data.dir = {Path.cwd() / 'elsewhere'}, was None" in told[0] and len(copy.records()) == 3


def test_a_run_of_an_own_graph_does_not_go_on_with_the_one_that_config_yaml_names(tiny, tmp_path):
    config = tiny(tmp_path, "federation.rounds=2")
    own = load_graph(config.changed(data={"synthetic": {"nodes": 150}}).data, 5)
    folder = RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, folder, graph=own, observe=partial(crash_after, 1))
    assert "the graph is another one" in refused(RunError, api.train, resume=folder.path)
    train(config, folder, resume=True, graph=own)
    assert [row["round"] for row in folder.records()] == [1, 2]


@pytest.mark.parametrize(
    ("sections", "named"),
    [
        ({"federation": {"cohort": 4}}, "federation.cohort = 4, was 3"),
        ({"seed": 5}, "seed = 5, was 31"),
        ({"method": {"learning_rate": 0.5}}, "method.learning_rate = 0.5, was 0.01"),
        ({"engine": {"name": "embedded"}}, "engine.name = embedded, was plaintext"),
        ({"privacy": {"clip_norm": 1.0}}, "privacy.clip_norm = 1.0, was None"),
        ({"clients": {"count": 5}}, "clients.count = 5, was 6"),
        ({"method": {"name": "fedavg"}}, "method.name = fedavg, was f2gnn"),
    ],
)
def test_changed_settings_are_refused_and_named(interrupted, copy, sections, named):
    config = interrupted[0].changed(**sections)
    copy.save_settings(config)
    said = refused(RunError, api.train, resume=copy.path)
    assert said.startswith(f"{copy.path}: settings are not those that it began with: ") and named in said
    assert said == refused(RunError, train, config, copy, resume=True)


@pytest.mark.parametrize("text", ["", "seed: 31\n", "{}\n"])
def test_an_emptied_configuration_is_refused(copy, text):
    (copy.path / "config.yaml").write_text(text)
    said = refused(RunError, api.train, resume=copy.path)
    assert "settings are not those that it began with" in said and said.endswith(
        "more; restore config.yaml, or begin a new run"
    )


def test_settings_that_mean_nothing_to_the_result_may_change_and_are_told(interrupted, copy):
    told = []
    config = interrupted[0].changed(run={"checkpoint_rounds": 2}, engine={"timeout_sec": 31.0, "client_processes": 2})
    train(config, copy, resume=True, announce=told.append)
    assert told == [
        "not as when the run began: engine.timeout_sec = 31.0, was 30.0; engine.client_processes = 2, was 1; "
        "run.checkpoint_rounds = 2, was 1"
    ]
    assert len(copy.records()) == 3 and load_config(file=copy.path / "config.yaml") == config


def test_a_setting_that_an_older_version_did_not_know_has_its_default(interrupted, copy):
    inputs = json.loads((copy.path / "inputs.json").read_text())
    del inputs["settings"]["federation"]["min_cohort"], inputs["settings"]["run"]
    (copy.path / "inputs.json").write_text(json.dumps(inputs))
    train(interrupted[0], copy, resume=True)
    assert len(copy.records()) == 3


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"settings": {"seed": "x"}}', '{"settings": 5}'])
def test_a_run_that_does_not_say_what_it_is_of_is_refused(interrupted, copy, text):
    path = copy.path / "inputs.json"
    path.unlink() if text is None else path.write_text(text)
    said = refused(RunError, train, interrupted[0], copy, resume=True)
    assert said.startswith(str(copy.path))
    assert len(copy.records()) == 1


def test_other_versions_are_told_and_kept(interrupted, copy, monkeypatch):
    now = run_folder.environment()
    other = {**now, "python": "3.99", "libraries": {**now["libraries"], "numpy": "9.9"}, "source": "0" * 64}
    monkeypatch.setattr(run_folder, "environment", lambda: other)
    with open(copy.path / "metrics.jsonl", "a") as file:
        file.write('{"round": 2, "val": {"accu')  # as a crash leaves it
    told = []
    train(interrupted[0], copy, resume=True, announce=told.append)
    assert told == [
        f"not as when the run began: python 3.99, was {now['python']}; numpy 9.9, was {np.__version__}; "
        "the program's source"
    ]
    kept = json.loads((copy.path / "environment.json").read_text())
    assert kept["python"] == now["python"] and kept["resumed"] == [{**other, "after_round": 1}]
    train(interrupted[0], copy, resume=True, announce=told.append)
    assert len(told) == 1  # it is the version of the last rounds now


def test_the_checkpoint_of_another_run_is_refused(tiny, interrupted, copy, tmp_path):
    other, _ = run(tiny(tmp_path, "model.hidden=9", "federation.rounds=1"))
    shutil.copy(other.state_dir / "state.npz", copy.state_dir / "state.npz")
    assert "parameters; these settings have" in refused(RunError, train, interrupted[0], copy, resume=True)


# Extending


@pytest.mark.parametrize("moment", ["interrupted", "finished"])
def test_an_extended_run_equals_a_long_one_also_in_epsilon(tiny, tmp_path, moment):
    noisy = "privacy={clip_norm: 0.5, noise_multiplier: 2, delta: 1e-3}"
    config = tiny(tmp_path, "federation.rounds=2", "engine.client_processes=1", noisy)
    folder, plan = RunFolder.create(config), PrivacyPlan("fixed", 6, 3, 2.0, 1e-3, amplified=False)
    if moment == "finished":
        train(config, folder)
    else:
        with pytest.raises(Crash):
            train(config, folder, observe=partial(crash_after, 1))
    extended = api.train(resume=folder.path, federation={"rounds": 4})
    assert [row["epsilon"] for row in folder.records()] == [plan.epsilon(rounds) for rounds in (1, 2, 3, 4)]
    assert folder.load_privacy()["attempts"] == [1, 1, 1, 1]
    assert extended.privacy["epsilon"] == plan.epsilon(4) == privacy_report(folder, extended.settings)["epsilon"]
    assert extended.settings.federation.rounds == 4 == RunFolder.open(folder.path)[1].federation.rounds


def test_an_extended_run_trains_as_a_long_one(tiny, tmp_path):
    config = tiny(tmp_path, "federation.rounds=1", "engine.client_processes=1")
    long, short = run(config.changed(federation={"rounds": 3}))[0], run(config)[0]
    (short.path / "curves.png").write_bytes(b"of one round")
    extended = api.train(resume=short.path, federation={"rounds": 3})
    assert short.records() == long.records()
    first, second = (read_arrays(one.state_dir / "state.npz")["parameters"] for one in (short, long))
    np.testing.assert_array_equal(first, second)
    assert extended.figures()["curves"].read_bytes().startswith(b"\x89PNG")
    assert refused(ConfigError, api.train, resume=short.path, federation={"rounds": 4, "cohort": 2}).startswith(
        "resume: the run continues with its own settings"
    )
    assert "checkpoint is of round 3" in refused(RunError, api.train, resume=short.path, federation={"rounds": 2})
    assert RunFolder.open(short.path)[1].federation.rounds == 3


def test_an_extension_that_is_interrupted_leaves_no_model_of_fewer_rounds(tiny, tmp_path):
    folder, _ = run(tiny(tmp_path, "federation.rounds=1"))
    assert (folder.path / "model.pt").exists()
    with pytest.raises(Crash):
        api.train(resume=folder.path, federation={"rounds": 3}, observe=partial(crash_after, 2))
    assert api.Run.load(folder.path).model is None and len(folder.records()) == 2


def test_beyond_its_budget_a_run_is_not_extended(tiny, tmp_path):
    plan = PrivacyPlan("fixed", 6, 3, 2.0, 1e-3, amplified=False)
    limit = (plan.epsilon(2) + plan.epsilon(3)) / 2
    config = tiny(tmp_path, f"privacy={{clip_norm: 0.5, noise_multiplier: 2, delta: 1e-3, epsilon_budget: {limit}}}")
    folder, _ = run(config)
    extended = api.train(resume=folder.path, federation={"rounds": 9})
    assert len(folder.records()) == 2 and extended.privacy["epsilon"] == plan.epsilon(2)
    assert extended.privacy["stopped"].startswith("round 3 would bring epsilon")


# What was brought in Python


class Net(nn.Module):
    """A module whose activation can be another one."""

    def __init__(self, features: int, classes: int, activation: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(features, 4), activation(), nn.Linear(4, classes))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def test_other_clients_or_another_module_than_were_brought_are_refused(tiny, tmp_path):
    config = tiny(tmp_path, "federation.rounds=2", "evaluation.where=clients")
    parts = list(client_graphs(load_graph(config.data, config.seed), config.clients, config.seed))
    started: list = []
    with pytest.raises(Crash):
        api.train(clients=parts, model=Net, settings=config, observe=partial(crash_after, 1), started=started.append)
    resume = partial(api.train, resume=started[0])
    swapped = [parts[1], parts[0], *parts[2:]]
    for brought in (swapped, [replace(parts[0], val=parts[0].val & False), *parts[1:]]):
        assert "the graph is another one" in refused(RunError, resume, clients=brought, model=Net)
    said = refused(RunError, resume, clients=parts, model=partial(Net, activation=nn.Tanh))
    assert said.endswith("the network is another one than the run began with; give the same module again")
    assert refused(ConfigError, resume) == "resume: the run had clients given in Python; give it again"
    assert len(api.Run.load(resume(clients=parts, model=Net).folder, Net).dataframe()) == 2


def test_settings_of_a_graph_given_in_python_load_none(tiny, tmp_path):
    config: Config = tiny(tmp_path, "data.name=own")
    folder = RunFolder.create(config)
    with pytest.raises(DataError, match="the graph is given in Python"):
        train(config, folder, resume=True)
