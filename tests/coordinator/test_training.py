"""The round loop: resumed runs, agreement of the engines, noise, cohorts, and what a failure leaves behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from orchestrator.client.host import _read_states
from orchestrator.config import FederationConfig
from orchestrator.coordinator.cohorts import sample_cohort
from orchestrator.coordinator.factory import create_engine
from orchestrator.coordinator.plaintext import PlaintextEngine
from orchestrator.coordinator.round_plan import RoundPlan
from orchestrator.coordinator.round_result import RoundResult
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import CohortError, ConfigError, PeerLostError, ProtocolError, RunError
from orchestrator.files import read_arrays
from orchestrator.graphs import load_graph
from orchestrator.models import load_model
from tests.faulty_clients import LyingEngine
from tests.training_runs import Crash, CrashingFolder, crash_after, run

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


def final(folder: RunFolder) -> np.ndarray:
    return read_arrays(folder.state_dir / "state.npz")["parameters"]


# Interrupted and resumed


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
    (first, ours), (second, theirs) = (load_model(run.path / "model.pt") for run in (folder, whole))
    assert type(first) is type(second) and first.config == second.config
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(ours, final(whole))


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
        (own,), (other,) = (_read_states(run.states[c], [c]).values() for run in (first, second))
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
        set(result.evaluations["val"].as_dict()) == {"accuracy", "macro_f1", "counts", "undefined"}
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


# The engines agree


@pytest.mark.parametrize(
    ("cohort", "method", "clip_norm"),
    [
        (1, "f2gnn", "null"),
        (1, "fedavg", "0.05"),
        (2, "f2gnn", "0.05"),
        (2, "fedavg", "null"),
        (3, "f2gnn", "null"),
        (5, "f2gnn", "0.05"),
        (5, "fedavg", "0.05"),
    ],
)
def test_every_round_keeps_its_bound(tiny, tmp_path, cohort, method, clip_norm):
    config = tiny(
        tmp_path,
        "engine.name=embedded",
        f"federation.cohort={cohort}",
        f"method.name={method}",
        f"privacy.clip_norm={clip_norm}",
    )
    folder, results = run(config, audit=True)
    assert len(results) == 2
    for result in results:
        assert result.difference <= result.bound < 1e-5
        assert len(set(result.cohort)) == cohort
    step = np.linalg.norm(results[1].parameters - results[0].parameters)
    assert step > 1e-3
    if clip_norm != "null":  # unclipped updates are several times longer
        assert step <= 0.05 * (1 + 1e-4)
    else:
        assert step > 0.06
    cost = results[1].cost
    assert min(cost.online_bytes) > 0 and cost.upload_bytes > len(final(folder)) * 8
    assert folder.records()[1]["model_difference"] == results[1].difference
    assert folder.costs()[1]["online_rounds"] == cost.rounds


def test_the_reference_preset_keeps_its_bound_with_a_client_drawn_twice(tiny, tmp_path):
    config = tiny(tmp_path, "engine.name=embedded", "clients.count=2", presets=("reference",))
    results = run(config, audit=True)[1]
    assert all(len(set(result.cohort)) < len(result.cohort) for result in results)
    assert all(result.difference <= result.bound < 1e-5 for result in results)


def test_the_plaintext_engine_is_its_own_audit(whole):
    assert {row["model_difference"] for row in whole[1].records()} == {0.0}
    assert all(0 < row["model_difference_bound"] < 1e-5 for row in whole[1].records())


# Cohorts


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("engine.name=embedded",), ["cohort of 3 without differential privacy: each member can learn much"]),
        (("engine.name=mpspdz", "federation.cohort=1"), ["cohort of 1 without differential privacy"]),
        (("engine.name=embedded", "federation.cohort=4"), []),
        (("engine.name=embedded", "privacy={clip_norm: 1, noise_multiplier: 1}"), []),
        (("engine.name=plaintext",), []),
    ],
)
def test_a_run_on_shares_whose_cohort_hides_nobody_says_so_once(tiny, tmp_path, overrides, said):
    config, lines = tiny(tmp_path, *overrides), []
    engine = PlaintextEngine(RoundPlan.of(config))  # for what is said: any
    train(config, RunFolder.create(config), announce=lines.append, engine=engine)
    assert len(lines) == len(said) and all(map(str.startswith, lines, said))


@given(st.integers(1, 40), st.data(), st.integers(0, 2**40), st.integers(1, 10**6))
def test_a_distinct_cohort_is_distinct_reproducible_and_in_range(clients, data, seed, round):
    federation = FederationConfig(cohort=data.draw(st.integers(1, clients)))
    cohort = sample_cohort(federation, clients, seed, round)
    assert len(cohort) == len(set(cohort)) == federation.cohort and set(cohort) <= set(range(clients))
    assert cohort == sample_cohort(federation, clients, seed, round)
    assert all(type(client) is int for client in cohort)


@pytest.mark.parametrize("sampling", ["distinct", "with_replacement"])
def test_cohorts_are_uniform_in_every_slot(sampling):
    federation = FederationConfig(cohort=3, sampling=sampling)
    cohorts = np.array([sample_cohort(federation, 10, 31, round) for round in range(1, 3001)])
    for slot in range(3):
        assert chisquare(np.bincount(cohorts[:, slot], minlength=10)).pvalue > 1e-4
    pairs = np.bincount(cohorts[:, 0] * 10 + cohorts[:, 1], minlength=100).reshape(10, 10)
    possible = ~np.eye(10, dtype=bool) if sampling == "distinct" else np.ones((10, 10), dtype=bool)
    assert chisquare(pairs[possible]).pvalue > 1e-4
    assert (pairs.diagonal().sum() == 0) == (sampling == "distinct")


def test_poisson_cohorts_hold_each_client_independently_with_the_sampling_rate():
    federation = FederationConfig(cohort=3, sampling="poisson")
    taken = np.zeros((4000, 12), dtype=bool)
    for round in range(len(taken)):
        cohort = sample_cohort(federation, 12, 31, round + 1)
        assert cohort == sorted(set(cohort)) == sample_cohort(federation, 12, 31, round + 1)
        taken[round, cohort] = True
    assert chisquare(taken.sum(axis=0)).pvalue > 1e-4
    sizes = np.bincount(taken.sum(axis=1), minlength=13)
    expected = len(taken) * binom.pmf(np.arange(13), 12, 0.25)
    assert chisquare([*sizes[:7], sizes[7:].sum()], [*expected[:7], expected[7:].sum()]).pvalue > 1e-4
    assert sizes[0] > 0  # empty rounds exist
    assert np.abs(np.corrcoef(taken.T) - np.eye(12)).max() < 5 / len(taken) ** 0.5


def test_engines_are_told_the_size_of_every_poisson_cohort_and_an_empty_one_is_a_round(tiny, tmp_path):
    events: list[tuple] = []

    class Spy(PlaintextEngine):
        def prepare(self, round, size, terms=None):
            events.append(("prepare", round, size))
            super().prepare(round, size, terms)

        def aggregate(self, round, cohort):
            events.append(("aggregate", round, len(cohort)))
            return super().aggregate(round, cohort)

    config = tiny(tmp_path, "federation={sampling: poisson, cohort: 1, rounds: 12}")
    folder, results = run(config, engine=Spy(RoundPlan.of(config)), graph=load_graph(config.data, config.seed))
    sizes = [len(sample_cohort(config.federation, 6, config.seed, round)) for round in range(1, 13)]
    assert 0 in sizes and len(set(sizes)) > 2
    assert [len(result.cohort) for result in results] == sizes
    assert events == [(kind, k + 1, size) for k, size in enumerate(sizes) for kind in ("prepare", "aggregate")]
    assert [row["round"] for row in folder.records()] == [*range(1, 13)]
    before = [None, *(result.parameters for result in results)]
    for k, size in enumerate(sizes):
        assert size or k == 0 or np.array_equal(results[k].parameters, before[k])


@pytest.mark.parametrize("rule", ["f2gnn", "fedavg"])
@pytest.mark.parametrize("sensitivity", ["worst_case", "bounded_weights"])
def test_poisson_cohorts_of_every_size_are_audited_on_shares(tiny, tmp_path, rule, sensitivity):
    federation = "federation={sampling: poisson, cohort: 1, rounds: 8}"
    privacy = f"privacy={{clip_norm: 0.05, sensitivity: {sensitivity}}}"
    config = tiny(tmp_path, federation, f"method.name={rule}", privacy, "engine.name=embedded")
    _, results = run(config, audit=True)
    sizes = [len(result.cohort) for result in results]
    assert {0, 1, 3} == set(sizes)
    for result, size in zip(results, sizes, strict=True):
        if size:
            assert result.difference <= result.bound < 1e-5 and result.cost.upload_bytes > 0
        else:
            assert (result.difference, result.cost.upload_bytes, result.cost.preprocessing_seconds) == (None, 0, 0.0)
            assert result.cost.rounds == 1  # the servers agree that there is nobody


def test_other_rounds_and_seeds_draw_other_cohorts():
    federation = FederationConfig(cohort=3)
    drawn = {tuple(sample_cohort(federation, 1000, seed, round)) for seed in (1, 2) for round in range(1, 50)}
    assert len(drawn) == 2 * 49


def test_the_cohort_is_known_before_anything_is_uploaded(tiny, tmp_path):
    events: list[tuple] = []

    class Spy(PlaintextEngine):
        def prepare(self, round, size, terms=None):
            events.append(("prepare", round, size))
            super().prepare(round, size, terms)

        def submit(self, round, slot, client, upload):
            events.append(("submit", round, slot, client))
            super().submit(round, slot, client, upload)

        def aggregate(self, round, cohort):
            events.append(("aggregate", round, tuple(cohort)))
            return super().aggregate(round, cohort)

        def close(self):
            events.append(("close",))

    config = tiny(tmp_path)
    graph = load_graph(config.data, config.seed)
    run(config, engine=Spy(RoundPlan.of(config)), graph=graph)
    cohorts = {round: sample_cohort(config.federation, 6, config.seed, round) for round in (1, 2)}
    for round, cohort in cohorts.items():
        submitted = {(event[2], event[3]) for event in events if event[:2] == ("submit", round)}
        assert submitted == set(enumerate(cohort))
        assert ("aggregate", round, tuple(cohort)) in events
    assert [event for event in events if event[0] != "submit"] == [
        ("prepare", 1, 3),
        ("aggregate", 1, tuple(cohorts[1])),
        ("prepare", 2, 3),
        ("aggregate", 2, tuple(cohorts[2])),
        ("close",),
    ]


# Records and failures


def test_a_record_is_complete_and_its_csv_agrees(whole):
    folder = whole[1]
    record = folder.records()[0]
    audit, clip = {"model_difference", "model_difference_bound"}, {"clip_norm", "updates_within_clip_norm"}
    assert record.keys() == {"round", "val", "test", *audit, *clip, "epsilon", "clients_left_out", "left_out"}
    assert (record["clients_left_out"], record["left_out"]) == (0, [])
    assert record["epsilon"] is None  # nothing is claimed without noise
    assert record["val"].keys() == {"accuracy", "auc", "delta_sp", "delta_eo", "counts", "undefined"}
    header, first, *_ = (folder.path / "metrics.csv").read_text().splitlines()
    row = dict(zip(header.split(","), first.split(","), strict=True))
    assert float(row["val_auc"]) == record["val"]["auc"]
    assert row["clients_left_out"] == "0" and "left_out" not in row
    json.loads((folder.path / "metrics.jsonl").read_text().splitlines()[0], parse_constant=pytest.fail)


def test_a_client_process_that_dies_between_rounds_ends_the_run_and_leaves_no_process(tiny, tmp_path):
    config = tiny(tmp_path, "federation={rounds: 50, cohort: 6}")
    folder = RunFolder.create(config)

    def kill_one(result: RoundResult) -> None:
        if result.round == 2:
            os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    with pytest.raises(PeerLostError) as caught:
        train(config, folder, observe=kill_one)
    assert caught.value.phase == "local training" and caught.value.round == 3
    assert multiprocessing.active_children() == []
    assert folder.load().round == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_disk_that_fills_up_ends_the_run_and_the_checkpoint_stands(tiny, tmp_path):
    config = tiny(tmp_path, "federation.rounds=4")
    folder = RunFolder.create(config)
    written = folder.path / "metrics.jsonl"

    def fill(result: RoundResult) -> None:
        if result.round == 2:
            written.rename(written.with_suffix(".kept"))
            written.symlink_to("/dev/full")

    with pytest.raises(RunError, match="No space left on device; the last checkpoint stands"):
        train(config, folder, observe=fill)
    written.with_suffix(".kept").rename(written)
    train(config, folder, resume=True)
    assert [row["round"] for row in folder.records()] == [1, 2, 3, 4]
    assert multiprocessing.active_children() == []


def test_an_audit_that_fails_ends_the_run_before_the_round_is_recorded(tiny, tmp_path):
    class Wrong(PlaintextEngine):
        def aggregate(self, round, cohort):
            right = super().aggregate(round, cohort)
            return replace(right, parameters=right.parameters + (1e-6 if round == 2 else 0.0))

    config = tiny(tmp_path, "federation.rounds=3")
    folder = RunFolder.create(config)
    with pytest.raises(ProtocolError, match=r"round 2, phase audit: .* more than the bound"):
        train(config, folder, audit=True, engine=Wrong(RoundPlan.of(config)))
    assert [row["round"] for row in folder.records()] == [1]
    assert folder.load().round == 1
    assert folder.state_dir.stat().st_mode & 0o077 == 0  # it holds the simulated clients' own models


@pytest.mark.parametrize(
    "others",
    [["privacy={clip_norm: 1, noise_multiplier: 0.5}"], ["federation.cohort=2"], ["sharing.update_bits=24"]],
)
def test_an_engine_of_another_plan_is_refused_before_anything_is_trained(tiny, tmp_path, others):
    """Else a run without noise would be told the epsilon of one with noise, and the other way round."""
    config, other = tiny(tmp_path), tiny(tmp_path, *others)
    for own, foreign in ((config, other), (other, config)):
        folder = RunFolder.create(own)
        with pytest.raises(ConfigError, match=r"^engine: it was made from another plan") as caught:
            train(own, folder, engine=PlaintextEngine(RoundPlan.of(foreign)))
        assert "\n" not in str(caught.value)
        assert folder.records() == [] and folder.load_privacy() is None


def test_a_preparation_is_reported_checkpointed_and_not_repeated_on_resume(tiny, tmp_path):
    generator = "{encoder_hidden: 4, latent: 3, widths: [4, 6], local_epochs: 1, exchanges: 2}"
    config = tiny(
        tmp_path,
        "method.name=fedsage+",
        "model.name=sage",
        "evaluation.where=clients",
        f"method.generator={generator}",
        "federation={rounds: 3, cohort: 2}",
    )
    said: list[str] = []
    whole, _ = run(config, announce=said.append)
    assert said == [f"clients prepare together: step {k} of 2" for k in (1, 2)]
    facts = whole.preparation()
    assert facts["steps"] == 2 and facts["bytes"] > 0 and facts["seconds"] > 0
    crashed = RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, crashed, observe=partial(crash_after, 1), announce=said.append)
    said.clear()
    train(config, crashed, resume=True, announce=said.append)
    assert not said
    assert crashed.records() == whole.records()


def test_a_crash_before_the_first_round_keeps_the_preparation(tiny, tmp_path):
    generator = "{encoder_hidden: 4, latent: 3, widths: [4, 6], local_epochs: 1, exchanges: 1}"
    config = tiny(
        tmp_path, "method.name=fedsage+", "model.name=sage", "evaluation.where=clients", f"method.generator={generator}"
    )

    class Crashing(RunFolder):
        def append(self, record, costs):
            raise Crash

    folder = Crashing.create(config)
    with pytest.raises(Crash):
        train(config, folder)
    said: list[str] = []
    resumed = RunFolder(folder.path)
    train(config, resumed, resume=True, announce=said.append)
    assert not said and resumed.records() == run(config)[0].records()


def test_personalised_runs_leave_no_common_model(tiny, tmp_path):
    for method, network, has in (("local", "sage", False), ("fedavg", "sage", True)):
        folder, _ = run(tiny(tmp_path, f"method.name={method}", f"model.name={network}", "evaluation.where=clients"))
        assert (folder.path / "model.pt").exists() == has


# Bad clients


def assert_left_out(folder, bad, rounds=10):
    """In every round the bad client is left out, alone and with a reason of that round's lie."""
    records = folder.records()
    assert [record["round"] for record in records] == [*range(1, rounds + 1)]
    for record, reason in zip(records, REASONS, strict=False):
        assert record["clients_left_out"] == 1
        assert record["left_out"][0]["client"] == bad
        assert re.search(reason, record["left_out"][0]["reason"]), record["left_out"]
    rows = (folder.path / "metrics.csv").read_text().splitlines()
    column = rows[0].split(",").index("clients_left_out")
    assert [row.split(",")[column] for row in rows[1:]] == ["1"] * rounds


REASONS = [
    "is not two envelopes of",
    "is not two envelopes of",
    "envelope is damaged",
    "halves for both servers are not of one upload",
    "meant for another client",
    "meant for another round",
    r"^local training: TypeError in faulty_clients\.py, line \d+$",
    "does not fit",
    "is not two envelopes of",
    "envelope is damaged",
]


@pytest.mark.parametrize("preprocessing", ["ot", "dealer"])
def test_one_client_that_sends_garbage_in_every_way_stops_no_round(tiny, tmp_path, preprocessing):
    """Audited: every round is float64's of those who remain. In the middle the run ends, and is resumed."""
    bad, options = 4, f"engine={{name: embedded, preprocessing: {preprocessing}}}"
    config = tiny(tmp_path, "clients.count=8", "federation={rounds: 10, cohort: 8, min_cohort: 7}", options)
    folder = RunFolder.create(config)
    with pytest.raises(Crash):
        train(
            config, folder, audit=True, observe=partial(crash_after, 4), engine=LyingEngine(create_engine(config), bad)
        )
    train(config, folder, resume=True, audit=True, engine=LyingEngine(create_engine(config), bad))
    assert_left_out(folder, bad)
    assert all(record["model_difference"] <= record["model_difference_bound"] for record in folder.records())
    assert multiprocessing.active_children() == []


def test_a_round_with_too_few_clients_ends_the_run_which_goes_on_when_they_come_back(tiny, tmp_path):
    """By default the whole of a small cohort is needed."""
    config = tiny(tmp_path, "federation={rounds: 3, cohort: 3}", "engine.name=embedded")
    folder, honest = RunFolder.create(config), []
    bad = sample_cohort(config.federation, 6, config.seed, 1)[1]
    with pytest.raises(CohortError) as caught:
        train(config, folder, engine=LyingEngine(create_engine(config), bad))
    assert str(caught.value).startswith(f"round 1, phase upload: client {bad}: its upload is not two envelopes of ")
    assert str(caught.value).endswith("; 2 of 3 clients remain, fewer than federation.min_cohort = 3")
    assert folder.records() == []
    train(config, folder, resume=True, observe=lambda result: honest.append(result.left_out))
    assert honest == [{}, {}, {}]


def test_a_client_that_fails_itself_counts_as_one_that_is_missing(tiny, tmp_path):
    """The pool says so before anything is aggregated."""
    config = tiny(tmp_path, "federation={rounds: 8, cohort: 6, min_cohort: 5}", "engine.name=embedded")
    strict = config.changed(federation={"min_cohort": 6})
    folder = RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, folder, engine=LyingEngine(create_engine(config), 2), observe=partial(crash_after, 6))
    text = r"round 7, phase upload: client 2: local training: TypeError in faulty_clients\.py, .* 5 of 6 clients remain"
    with pytest.raises(CohortError, match=text):
        train(strict, folder, resume=True, engine=LyingEngine(create_engine(strict), 2))
    assert len(folder.records()) == 6


def test_a_poisson_sample_below_min_cohort_ends_the_run_by_name(tiny, tmp_path):
    config = tiny(tmp_path, "federation={rounds: 50, cohort: 3, sampling: poisson, min_cohort: 3}")
    with pytest.raises(CohortError, match=r"cohort: \d were asked; (\d) of \1 clients remain, fewer than .* = 3"):
        train(config, RunFolder.create(config))
