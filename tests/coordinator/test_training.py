"""The round loop: resumed runs, agreement of the engines, noise, cohorts, and what a failure leaves behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from orchestrator.agreement.from_settings import plan_of
from orchestrator.coordinator.plaintext import PlaintextEngine
from orchestrator.coordinator.round_result import RoundResult
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import ConfigError, PeerLostError, ProtocolError, RunError
from orchestrator.files import read_arrays
from tests.training_runs import Crash, crash_after, run

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


@pytest.fixture(scope="module", params=["f2gnn", "fedavg"])
def whole(request, tiny, tmp_path_factory):
    """A configuration and its uninterrupted run of five rounds, audited."""
    config = tiny(tmp_path_factory.mktemp("whole"), f"method.name={request.param}", "federation.rounds=5")
    return config, run(config, audit=True)[0]


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
    assert min(cost.online_bytes) > 0 and cost.upload_bytes > 8 * len(
        read_arrays(folder.state_dir / "state.npz")["parameters"]
    )
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


# Records and failures


def test_a_record_is_complete_and_its_csv_agrees(whole):
    folder = whole[1]
    record = folder.records()[0]
    audit, clip = {"model_difference", "model_difference_bound"}, {"clip_norm", "updates_within_clip_norm"}
    assert record.keys() == {"round", "val", "test", *audit, *clip, "epsilon", "clients_left_out", "left_out", "cohort"}
    assert (record["clients_left_out"], record["left_out"]) == (0, [])
    assert record["epsilon"] is None  # nothing is claimed without noise
    assert record["val"].keys() == {
        "accuracy",
        "auc",
        "balanced_accuracy",
        "delta_sp",
        "delta_eo",
        "gaps",
        "counts",
        "undefined",
    }
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
        train(config, folder, audit=True, engine=Wrong(plan_of(config)))
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
            train(own, folder, engine=PlaintextEngine(plan_of(foreign)))
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
