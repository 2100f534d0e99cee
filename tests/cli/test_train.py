"""`safegnn train`: what is printed, what goes wrong, and what Ctrl-C leaves behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.coordinator.run_folder import RunFolder
from tests.cli.commands import SETTINGS, assert_picture, assert_refused

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


def test_train_prints_one_json_document(safegnn):
    status, out, err = safegnn("train", *SETTINGS, "--engine", "embedded", "--audit", "--json")
    assert status == 0
    document = json.loads(out, parse_constant=pytest.fail)
    metrics = ["accuracy", "auc", "balanced_accuracy", "delta_sp", "delta_eo"]
    assert document.keys() == {
        "run",
        "rounds",
        "validation",
        "validation_ma20",
        "test",
        "gaps",
        "counts",
        "undefined",
        "costs",
        "preparation",
        "data",
        "privacy",
        "no_epsilon",
    }
    assert document["privacy"] is None and document["preparation"] is None
    assert document["rounds"] == 2
    for group in (document["validation"], document["validation_ma20"], document["test"]):
        assert list(group) == metrics and all(0 <= value <= 1 for value in group.values())
    assert document["costs"]["online_bytes_server0"] > 0 and document["costs"]["online_rounds"] > 0
    folder, config = RunFolder.open(Path(document["run"]))
    assert config.engine.name == "embedded"
    for key, mask in (("validation", "val"), ("test", "test")):
        assert document[key]["auc"] == folder.records()[-1][mask]["auc"]
    assert folder.records()[-1]["model_difference"] < 1e-5
    assert_picture(folder.path / "curves.png")
    assert_picture(folder.path / "costs.png")
    said = [line for line in err.splitlines() if line not in document["data"]["notes"]]
    assert [line.split()[:2] for line in said] == [["cohort", "of"], ["round", "1/2"], ["round", "2/2"]]


def test_train_prints_a_table_and_the_folder(safegnn):
    status, out, _ = safegnn("train", *SETTINGS, "--set", "run.dir='runs/[bold] :smile:'")
    assert status == 0
    assert all(
        word in out
        for word in ("accuracy", "auc", "balanced_accuracy", "delta_sp", "delta_eo", "mean of 2 rounds", "test")
    )
    folder = next(Path("runs/[bold] :smile:").iterdir())
    assert out.splitlines()[-2:] == [f"run folder: {folder}", f"report: {folder / 'report.html'}"]
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")
    record = RunFolder(folder).records()[-1]
    assert f"{record['val']['auc']:.4f}" in out and f"{record['test']['auc']:.4f}" in out


def test_train_says_how_sure_each_gap_is_and_that_clipping_alone_protects_nothing(safegnn):
    clipped = ("--set", "privacy.clip_norm=0.5", "--engine", "plaintext")
    status, out, _ = safegnn("train", *SETTINGS, *clipped)
    assert status == 0
    record = RunFolder(next(Path("runs").iterdir())).records()[-1]
    for mask, name in (("validation", "val"), ("test", "test")):
        for gap in ("delta_sp", "delta_eo"):
            facts = record[name]["gaps"][gap]
            line = f"{mask} {gap} {record[name][gap]:.4f}, 95 % interval {facts['low']:.4f} to {facts['high']:.4f}; "
            assert line + f"n = {facts['n_s0']} (s = 0), {facts['n_s1']} (s = 1)" in out.splitlines()
    assert "clipping alone protects nothing" in out.splitlines()[-3] and "median of 2" in out
    assert "clipping alone" not in safegnn("train", *SETTINGS, "--engine", "plaintext")[1]


def test_a_local_model_has_gaps_and_one_round_no_means(safegnn):
    """Of clients that lack a group it says how many they are."""
    alone = ("--set", "method.name=local", "--set", "evaluation.where=clients", "--set", "federation.rounds=1")
    status, out, _ = safegnn("train", *SETTINGS, *alone)
    assert status == 0 and "mean of" not in out and "the only one" in out
    test = RunFolder(next(Path("runs").iterdir())).records()[-1]["test"]
    facts, counts = test["gaps"]["delta_sp"], test["counts"]
    [line] = [line for line in out.splitlines() if line.startswith("test delta_sp ")]
    assert f"over {facts['clients']} clients that have both groups" in line
    assert line.endswith(f"; {facts['clients_lacking']} lack one")
    assert f"as wide as for {counts['nodes_effective']} nodes, not {counts['nodes']}" in out
    assert counts["nodes_effective"] < counts["nodes"]


def test_train_states_epsilon_with_all_that_belongs_to_it(safegnn):
    noise = ["--set", "privacy={clip_norm: 0.5, noise_multiplier: 2, delta: 1e-3, epsilon_budget: 1.2}"]
    rounds = ["--set", "federation.rounds=9", "--set", "method.stateful=false"]
    status, out, err = safegnn("train", *SETTINGS, *noise, *rounds)
    assert status == 0
    said = [line for line in out.splitlines() if "epsilon" in line]
    assert len(said) == 4
    for part in (
        "privacy of a client's whole data: epsilon ",
        "at delta 0.001",
        "replace-one",
        "accountant tightest",
        "server",
    ):
        assert part in said[0]
    assert said[1] == "a person in several clients: no epsilon stated; up to 6 memberships (clients.max_memberships)"
    assert said[2] == (
        "the metrics: exact, and covered by no epsilon; in a simulation only (evaluation.exact_beside_noise)"
    )
    assert said[3].startswith("stopped early: round ") and "privacy.epsilon_budget = 1.2" in said[3]
    assert "Traceback" not in err
    status, out, _ = safegnn("train", *SETTINGS, *noise, *rounds, "--json")
    document = json.loads(out, parse_constant=pytest.fail)
    assert status == 0 and 0 < document["privacy"]["epsilon"] <= 1.2
    assert 1 <= document["rounds"] < 9 and document["privacy"]["stopped"]


def test_train_says_that_epsilon_covers_metrics_with_noise(safegnn):
    tables = ["--set", "evaluation={where: clients, tables: summed, bound: 40, exact_beside_noise: false}"]
    noise = ["--set", "privacy={clip_norm: 0.5, noise_multiplier: 2}", "--set", "method.stateful=false"]
    status, out, _ = safegnn("train", *SETTINGS, *tables, *noise)
    said = out.splitlines()
    assert status == 0 and "to whoever sees the released models and metrics; " in out
    assert "it counts the sum 'evaluation' over all clients, released 1 time with noise multiplier 2" in said
    assert "the metrics: noise is in them, and this epsilon covers them" in said
    assert "validation accuracy is undefined: drowned by noise of 226.3 on every count" in said


def test_train_says_whose_noise_it_counts_on_where_that_is_clients(safegnn):
    noise = ["--set", "privacy={clip_norm: 0.5, noise_multiplier: 2, noise: clients}", "--set", "method.name=fedavg"]
    status, out, _ = safegnn("train", *SETTINGS, *noise)
    said = "the clients add the noise: this counts on 3 in every round who answer, add theirs and tell nobody"
    assert status == 0 and said in out.splitlines()


def test_clients_that_keep_a_ledger_end_a_run_in_one_line(safegnn):
    """With a run that measures nothing."""
    kept = "clip_norm: 0.5, noise_multiplier: 2, delta: 1e-3, accountant: rdp, ledger: spent.json, ledger_limit: 0.1"
    options = ["--set", f"privacy={{{kept}}}", "--set", "evaluation={where: nowhere, exact_beside_noise: false}"]
    status, out, err = safegnn("train", *SETTINGS, *options)
    assert (status, out) == (1, "") and "privacy.ledger_limit = 0.1; these clients take no part in it" in err
    assert err.splitlines()[-1].startswith("safegnn: ") and "round 1 would bring" in err.splitlines()[-1]
    status, out, err = safegnn("train", *SETTINGS, *options, "--set", "privacy.ledger_limit=50")
    assert status == 0 and "the metrics: none were released (evaluation.where = nowhere)" in out
    assert "round 2/2  online " in err
    assert "runs composed by one accountant" in safegnn("ledger", "spent.json")[1]


def test_train_says_why_no_epsilon_is_stated(safegnn):
    options = [*SETTINGS, "--set", "federation={rounds: 1, sampling: with_replacement}"]
    noise = ["--set", "privacy={clip_norm: 0.5, noise_multiplier: 2}"]
    status, out, err = safegnn("train", *options, *noise)
    said = "no epsilon is stated: no accountant is valid for federation.sampling = with_replacement"
    assert status == 0 and said in out.splitlines() and said in err


def test_a_port_in_use_is_one_line_that_names_it(safegnn):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = ["--engine", "embedded", "--set", f"engine.ports=[0, {port}, 0]"]
        assert_refused(safegnn("train", *SETTINGS, *ports), 2, "engine.ports", f"port {port} of server 1", "in use")


def test_a_run_folder_that_is_a_file_is_one_line(safegnn):
    Path("runs").write_text("")
    assert_refused(safegnn("train", *SETTINGS), 1, "runs", "cannot be created")


def test_a_damaged_checkpoint_is_one_line(safegnn):
    out = safegnn("train", *SETTINGS, "--json")[1]
    run = Path(json.loads(out)["run"])
    state = run / "checkpoint" / "state.npz"
    state.write_bytes(state.read_bytes()[:-7])
    assert_refused(safegnn("train", "--resume", str(run)), 1, "state.npz", "damaged")


# Ctrl-C


def processes_with(mark: str) -> list[int]:
    """Pids of the processes whose environment holds a mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue  # ended meanwhile, or another user's
    return found


def heed_interrupts():
    """A shell lets what it starts in the background, such as a test run, ignore Ctrl-C, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc on this system")
def test_ctrl_c_is_one_line_and_leaves_a_run_that_resumes(tmp_path, safegnn):
    """Started by a script without `__name__` guard, which no client process may run again."""
    script = tmp_path / "script.py"
    script.write_text('print("once", flush=True)\nfrom orchestrator.cli import main\nmain()\n')
    mark = f"SAFEGNN_TEST_MARK={os.getpid()}-{tmp_path}"
    name, _, value = mark.partition("=")
    rounds = ["--set", "federation.rounds=60", "--set", "method.local_epochs=5"]
    process = subprocess.Popen(
        [sys.executable, str(script), "train", *SETTINGS, "--engine", "embedded", *rounds],
        cwd=tmp_path,
        env={**os.environ, name: value},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )
    with process:
        assert process.stderr.readline().startswith("cohort of 3 without differential privacy")
        assert process.stderr.readline().startswith("round 1/60  val AUC ")
        assert len(processes_with(mark)) >= 6  # two servers, the dealer, two clients, this one
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
        out, err = process.communicate(timeout=60)  # ends when no process holds the pipes
    run = next((tmp_path / "runs").iterdir())
    assert (process.returncode, out) == (130, "once\n")
    said = [line for line in err.splitlines() if not line.startswith("round ")]
    assert len(said) == 1
    assert (
        said[0].startswith("safegnn: interrupted; ")
        and f"safegnn train --resume {run.relative_to(tmp_path)}" in said[0]
    )
    assert processes_with(mark) == []
    folder, _ = RunFolder.open(run)
    completed = folder.load().round
    assert 1 <= completed < 60
    status, out, err = safegnn("train", "--resume", str(run), "--json")
    assert status == 0
    assert json.loads(out)["rounds"] == 60
    assert [row["round"] for row in folder.records()] == [*range(1, 61)]
    assert err.splitlines()[-1].startswith("round 60/60 ")
