"""Runs that are interrupted: resumed, they are as if they never had been."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from orchestrator.client.states import read_states
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import RunError
from orchestrator.files import read_arrays
from orchestrator.models.trained import load_model
from tests.training_runs import Crash, CrashingFolder, crash_after, run

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


def final(folder: RunFolder) -> np.ndarray:
    return read_arrays(folder.state_dir / "state.npz")["parameters"]


@pytest.fixture(scope="module", params=["f2gnn", "fedavg"])
def whole(request, tiny, tmp_path_factory):
    """A configuration and its uninterrupted run of five rounds, audited."""
    config = tiny(tmp_path_factory.mktemp("whole"), f"method.name={request.param}", "federation.rounds=5")
    return config, run(config, audit=True)[0]


def assert_same_run(folder: RunFolder, whole: RunFolder) -> None:
    np.testing.assert_array_equal(final(folder), final(whole))
    for name in ("metrics.jsonl", "metrics.csv"):
        assert (folder.path / name).read_bytes() == (whole.path / name).read_bytes()
    assert [row["round"] for row in folder.costs()] == [1, 2, 3, 4, 5]
    files = sorted(path.name for path in whole.state_dir.iterdir())
    assert sorted(path.name for path in folder.state_dir.iterdir()) == files
    for name in files:
        first, second = (read_arrays(run.state_dir / name) for run in (folder, whole))
        assert first.keys() == second.keys()
        for key in first:
            np.testing.assert_array_equal(first[key], second[key])
    one, other = (load_model(run.path / "model.pt") for run in (folder, whole))
    assert type(one.network) is type(other.network) and one.network.config == other.network.config
    assert (one.scaling, one.meaning) == (other.scaling, other.meaning)
    np.testing.assert_array_equal(one.parameters, other.parameters)
    np.testing.assert_array_equal(one.parameters, final(whole))


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_resumed_run_equals_an_uninterrupted_one_exactly(whole, rounds):
    config, expected = whole
    folder = RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, folder, audit=True, observe=partial(crash_after, rounds))
    assert len(folder.records()) == rounds and not (folder.path / "model.pt").exists()
    reopened, settings = RunFolder.open(folder.path)
    resumed: list[int] = []
    train(settings, reopened, resume=True, audit=True, observe=lambda result: resumed.append(result.round))
    assert resumed == [*range(rounds + 1, 6)]
    assert_same_run(reopened, expected)


def test_a_crash_before_the_checkpoint_repeats_the_round(whole):
    config, expected = whole
    folder = RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, CrashingFolder(folder.path), audit=True)
    assert len(folder.records()) == 4
    with open(folder.path / "metrics.jsonl", "a") as file:
        file.write('{"round": 5, "val": {"accu')
    train(config, folder, resume=True, audit=True)
    assert_same_run(folder, expected)


def test_a_run_without_a_round_begins_anew_and_a_finished_one_is_left_alone(whole):
    config, expected = whole
    folder = RunFolder.create(config)
    train(config, folder, resume=True, audit=True)
    assert_same_run(folder, expected)
    parameters = train(config, folder, resume=True, audit=True)
    assert_same_run(folder, expected)
    np.testing.assert_array_equal(parameters, final(expected))


def test_an_audit_that_ends_midway_keeps_the_columns(whole, tmp_path):
    config, _ = whole
    folder = RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, folder, audit=True, observe=partial(crash_after, 2))
    train(config, folder, resume=True)
    header, *rows = [line.split(",") for line in (folder.path / "metrics.csv").read_text().splitlines()]
    assert {len(row) for row in rows} == {len(header)}
    column = header.index("model_difference")
    assert [row[column] for row in rows] == ["0.0", "0.0", "", "", ""]
    assert [row["model_difference"] for row in folder.records()] == [0.0, 0.0, None, None, None]


@pytest.fixture(scope="module")
def sparse(whole):
    """The same run with a checkpoint every other round."""
    config, expected = whole
    config = config.model_copy(update={"run": config.run.model_copy(update={"checkpoint_rounds": 2})})
    folder = SavesAreCounted(RunFolder.create(config).path)
    train(config, folder, audit=True)
    return config, folder, expected


class SavesAreCounted(RunFolder):
    """Remembers the rounds of its checkpoints."""

    def __init__(self, path):
        super().__init__(path)
        self.saved: list[int] = []

    def save(self, checkpoint):
        self.saved.append(checkpoint.round)
        super().save(checkpoint)


def assert_same_result(folder: RunFolder, whole: RunFolder) -> None:
    """As `assert_same_run`, but for the files in which the clients' states lie."""
    np.testing.assert_array_equal(final(folder), final(whole))
    for name in ("metrics.jsonl", "metrics.csv"):
        assert (folder.path / name).read_bytes() == (whole.path / name).read_bytes()
    assert [row["round"] for row in folder.costs()] == [1, 2, 3, 4, 5]
    first, second = (run.load() for run in (folder, whole))
    assert first.states.keys() == second.states.keys()
    for c in first.states:
        (own,), (other,) = (read_states(run.states[c], [c]).values() for run in (first, second))
        assert own.keys() == other.keys() and own
        for name in own:
            np.testing.assert_array_equal(own[name], other[name])


def test_fewer_checkpoints_change_nothing_and_the_last_round_has_one(sparse):
    _, folder, expected = sparse
    assert folder.saved == [2, 4, 5]
    assert_same_result(folder, expected)
    kept = {path.name for path in folder.load().states.values()} | {"state.npz"}
    assert {path.name for path in folder.state_dir.iterdir()} == kept


@pytest.mark.parametrize(("crash", "resumed"), [(1, [1, 2, 3, 4, 5]), (2, [3, 4, 5]), (3, [3, 4, 5]), (4, [5])])
def test_a_crash_between_checkpoints_goes_on_from_the_last_one(sparse, crash, resumed):
    """Clients that took part since then, also for the first time, are as they were at the checkpoint."""
    config, _, expected = sparse
    folder, rounds = RunFolder.create(config), []
    with pytest.raises(Crash):
        train(config, folder, audit=True, observe=partial(crash_after, crash))
    assert len(folder.records()) == crash
    train(config, folder, resume=True, audit=True, observe=lambda result: rounds.append(result.round))
    assert rounds == resumed
    assert_same_result(folder, expected)


def test_a_checkpoint_between_others_is_not_overtaken_by_the_states_of_later_rounds(sparse):
    """Round 4's states are written and its checkpoint is not: those of round 2 still count."""
    config, _, expected = sparse
    folder = RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, CrashingFolder(folder.path), audit=True)
    assert any(path.name.endswith("round-4.npz") for path in folder.state_dir.iterdir())
    assert folder.load().round == 2
    train(config, folder, resume=True, audit=True)
    assert_same_result(folder, expected)


@pytest.mark.parametrize("model", ["released", "trained"])
def test_a_run_that_clients_evaluate_resumes_exactly(tiny, tmp_path, model):
    """Two of six clients take part; what the others said of their models when they last trained still counts."""
    evaluation = f"evaluation={{where: clients, model: {model}}}"
    many = "data.synthetic={nodes: 900, edges: 2700, features: 6}"  # nodes, so that every round's figures differ
    config = tiny(
        tmp_path,
        many,
        "clients.hops=3",
        "federation={rounds: 5, cohort: 2}",
        evaluation,
        "method.name=fedavg",
        "method={learning_rate: 3e-2, local_epochs: 6}",
    )
    expected, results = run(config)
    assert all(
        {"accuracy", "macro_f1", "delta_sp", "gaps", "counts", "undefined"} <= set(result.evaluations["val"].as_dict())
        for result in results
    )
    drawn = set().union(*(result.cohort for result in results[:2]))
    assert drawn < set(range(6)) and not drawn.issuperset(results[2].cohort)
    folder = RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, folder, observe=partial(crash_after, 2))
    train(config, folder, resume=True)
    assert_same_run(folder, expected)
    said = [json.dumps([row["val"], row["test"]]) for row in folder.records()]
    assert len(set(said)) == 5


def test_a_lost_client_state_is_named(whole):
    config, _ = whole
    folder = RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, folder, observe=partial(crash_after, 1))
    lost = next(path for path in sorted(folder.state_dir.iterdir()) if path.name.startswith("client"))
    lost.unlink()
    with pytest.raises(RunError) as caught:
        train(config, folder, resume=True)
    assert str(caught.value).startswith(f"{lost}: ") and "\n" not in str(caught.value)


def test_an_embedded_run_resumes_within_the_fixed_point_bounds(tiny, tmp_path):
    """Masks are random, so that two runs agree in their bounds only."""
    config = tiny(tmp_path, "engine.name=embedded", "federation.rounds=3")
    folder, interrupted = run(config)[0], RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, interrupted, observe=partial(crash_after, 2))
    train(config, interrupted, resume=True)
    assert np.abs(final(interrupted) - final(folder)).max() < 1e-5
    assert [row["round"] for row in interrupted.records()] == [1, 2, 3]
