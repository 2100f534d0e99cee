"""The command line: one JSON document on standard output, one line for whatever goes wrong, nothing left running."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import cli
from orchestrator.coordinator.run_folder import RunFolder
from tests.conftest import TINY

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")

SETTINGS = [argument for setting in TINY for argument in ("--set", setting)]


@pytest.fixture
def safegnn(monkeypatch, tmp_path, capfd):
    """``safegnn("train", ...)``: exit status, standard output and standard error, in an empty folder.

    The output is caught below Python, so that it includes what other processes print.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["safegnn", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capfd.readouterr()
        assert multiprocessing.active_children() == []
        return int(caught.value.code or 0), out, err

    return run


def assert_refused(result, status: int, *parts: str) -> None:
    code, out, err = result
    assert out == ""
    assert err.startswith("safegnn: ") and err.endswith("\n") and err.count("\n") == 1
    assert all(part in err for part in parts), err
    assert code == status


def assert_picture(path: Path) -> None:
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000


# What is printed


def test_train_prints_one_json_document(safegnn):
    status, out, err = safegnn("train", *SETTINGS, "--engine", "embedded", "--audit", "--json")
    assert status == 0
    document = json.loads(out, parse_constant=pytest.fail)
    metrics = ["accuracy", "auc", "delta_sp", "delta_eo"]
    assert document.keys() == {
        "run",
        "rounds",
        *metrics,
        "ma20",
        "test",
        "undefined",
        "costs",
        "preparation",
        "privacy",
    }
    assert document["privacy"] is None and document["preparation"] is None
    assert document["rounds"] == 2
    for group in (document, document["ma20"], document["test"]):
        assert all(0 <= group[metric] <= 1 for metric in metrics)
    assert document["costs"]["online_bytes_server0"] > 0 and document["costs"]["online_rounds"] > 0
    folder, config = RunFolder.open(Path(document["run"]))
    assert config.engine.name == "embedded"
    assert document["auc"] == folder.records()[-1]["val"]["auc"]
    assert folder.records()[-1]["model_difference"] < 1e-5
    assert_picture(folder.path / "curves.png")
    assert_picture(folder.path / "costs.png")
    assert [line.split()[:2] for line in err.splitlines()] == [["round", "1/2"], ["round", "2/2"]]


def test_compare_of_methods_prints_its_table_or_one_json_document(safegnn):
    methods = ("compare", *SETTINGS, "--methods", "local,fedavg", "--set", "evaluation.where=clients")
    status, out, err = safegnn(*methods, "--seeds", "2", "--json")
    assert status == 0 and "round 1/8  local  val accuracy" in err
    document = json.loads(out, parse_constant=pytest.fail)
    assert document["seeds"] == 2 and len(document["scores"]) == 4
    assert {score["method"] for score in document["scores"]} == {"local", "fedavg"}
    status, out, _ = safegnn(*methods)
    assert status == 0 and "| local | " in out and "over 1 seeds" in out


def test_train_prints_a_table_and_the_folder(safegnn):
    status, out, _ = safegnn("train", *SETTINGS, "--set", "run.dir='runs/[bold] :smile:'")
    assert status == 0
    assert all(word in out for word in ("accuracy", "auc", "delta_sp", "delta_eo", "mean of 20 rounds", "test"))
    folder = next(Path("runs/[bold] :smile:").iterdir())
    assert out.splitlines()[-1] == f"run folder: {folder}"
    record = RunFolder(folder).records()[-1]
    assert f"{record['val']['auc']:.4f}" in out and f"{record['test']['auc']:.4f}" in out


def test_compare_prints_one_json_document(safegnn):
    status, out, err = safegnn("compare", *SETTINGS, "--json")
    assert status == 0
    document = json.loads(out, parse_constant=pytest.fail)
    assert document["rounds"] == 2 and 0 < document["max_model_difference"] < 1e-5
    assert document["engines"].keys() == {"plaintext", "embedded"}
    for metrics in document["engines"].values():
        assert metrics.keys() == {"accuracy", "auc", "delta_sp", "delta_eo"}
        assert all(0 <= value <= 1 for value in metrics.values())
    assert_picture(Path(document["folder"]) / "comparison.png")
    assert [line.split()[:3] for line in err.splitlines()] == [
        ["round", "1/4", "plaintext"],
        ["round", "2/4", "plaintext"],
        ["round", "3/4", "embedded"],
        ["round", "4/4", "embedded"],
    ]


def test_train_states_epsilon_with_all_that_belongs_to_it(safegnn):
    noise = ["--set", "privacy={clip_norm: 0.5, noise_multiplier: 2, delta: 1e-3, epsilon_budget: 4.5}"]
    rounds = ["--set", "federation.rounds=9"]
    status, out, err = safegnn("train", *SETTINGS, *noise, *rounds)
    assert status == 0
    said = [line for line in out.splitlines() if "epsilon" in line]
    assert len(said) == 2
    for part in (
        "privacy of a client's whole data: epsilon ",
        "at delta 0.001",
        "replace-one",
        "accountant rdp",
        "server",
    ):
        assert part in said[0]
    assert said[1].startswith("stopped early: round ") and "privacy.epsilon_budget = 4.5" in said[1]
    assert "Traceback" not in err
    status, out, _ = safegnn("train", *SETTINGS, *noise, *rounds, "--json")
    document = json.loads(out, parse_constant=pytest.fail)
    assert status == 0 and 0 < document["privacy"]["epsilon"] <= 4.5
    assert 1 <= document["rounds"] < 9 and document["privacy"]["stopped"]


ACCOUNT = ["account", "--clients", "30", "--cohort", "3", "--rounds", "500", "--delta", "1e-3"]


@pytest.mark.parametrize(
    ("options", "per_round", "epsilon", "adjacency"),
    [
        (("--sampler", "fixed"), 0.730, 20.18, "replace-one"),
        (("--sampler", "poisson", "--accountant", "rdp"), 0.614, 8.35, "add/remove"),
        (("--sampler", "poisson", "--accountant", "pld"), 0.321, 7.34, "add/remove"),
        (("--sampler", "fixed", "--accountant", "paper"), 1.013, 9.43, "add/remove"),
    ],
)
def test_account_prints_one_json_document(safegnn, options, per_round, epsilon, adjacency):
    status, out, err = safegnn(*ACCOUNT, "--noise-multiplier", "1.341", *options, "--json")
    assert (status, err) == (0, "")
    document = json.loads(out, parse_constant=pytest.fail)
    assert document["epsilon"] == pytest.approx(epsilon, abs=0.005)
    assert document["epsilon_per_round"] == pytest.approx(per_round, abs=0.0005)
    assert document["delta"] == 1e-3 and document["adjacency"] == adjacency
    assert document["accountant"] == (options[3] if len(options) > 2 else "rdp")
    assert document["views"].keys() == {"outsider", "client", "server"}


def test_account_prints_a_table_over_rounds(safegnn):
    status, out, err = safegnn(*ACCOUNT, "--sampler", "fixed", "--noise-multiplier", "1.341")
    assert (status, err) == (0, "")
    assert all(part in out for part in ("epsilon, outsider", "20.18", "198.7", "replace-one", "delta 0.001", "rdp"))
    out = safegnn(*ACCOUNT, "--sampler", "fixed", "--noise-multiplier", "1.341", "--accountant", "paper")[1]
    assert "9.429" in out and "warning: comparison only" in out


def test_account_finds_the_noise_for_a_target(safegnn):
    status, out, _ = safegnn(*ACCOUNT, "--sampler", "poisson", "--target-epsilon", "4", "--json")
    document = json.loads(out, parse_constant=pytest.fail)
    assert status == 0 and 3.99 < document["epsilon"] <= 4
    assert document["noise_multiplier"] == pytest.approx(2.1797, abs=1e-3)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--sampler", "fixed"), ("give one of --noise-multiplier and --target-epsilon",)),
        (("--sampler", "fixed", "--noise-multiplier", "1", "--target-epsilon", "1"), ("give one of",)),
        (("--sampler", "with_replacement", "--noise-multiplier", "1"), ("sampler with_replacement", "fixed, poisson")),
        (("--sampler", "fixed", "--noise-multiplier", "1", "--accountant", "pld"), ("accountant pld", "fixed size")),
        (("--sampler", "fixed", "--noise-multiplier", "1", "--accountant", "x"), ("accountant x", "rdp, pld, paper")),
        (("--sampler", "fixed", "--noise-multiplier", "-1"), ("noise multiplier -1",)),
        (("--sampler", "fixed", "--noise-multiplier", "nan"), ("noise multiplier nan",)),
        (("--sampler", "fixed", "--noise-multiplier", "1", "--cohort", "31"), ("cohort 31", "1 to 30")),
        (("--sampler", "fixed", "--noise-multiplier", "1", "--delta", "1"), ("delta 1", "between 0 and 1")),
        (("--sampler", "fixed", "--noise-multiplier", "1", "--rounds", "0"), ("--rounds",)),
        (("--sampler", "fixed", "--noise-multiplier", "1", "--noise", "loud"), ("noise loud", "each_full")),
        (("--sampler", "fixed", "--target-epsilon", "0"), ("target epsilon 0",)),
    ],
)
def test_account_refuses_in_one_line(safegnn, options, parts):
    assert_refused(safegnn(*ACCOUNT, *options), 2, *parts)


@pytest.mark.parametrize("noise", [[], ["--set", "privacy={clip_norm: 1, noise_multiplier: 0.1}"]])
def test_compare_prints_a_table(safegnn, noise):
    status, out, _ = safegnn("compare", *SETTINGS, "--set", "federation.rounds=1", *noise)
    assert status == 0
    assert all(word in out for word in ("final, plaintext", "final, embedded", "largest difference", "delta_eo"))
    assert ("not computed" in out) == bool(noise)
    assert Path(out.splitlines()[-1].removeprefix("curves: ")).exists()


def test_data_info_describes_a_graph(safegnn):
    status, out, err = safegnn("data", "info", "synthetic", *SETTINGS, "--json")
    facts = json.loads(out, parse_constant=pytest.fail)
    assert (status, err) == (0, "")
    assert facts["clients"]["count"] == 6 and 0 < facts["nodes"] <= 120
    assert safegnn("data", "info", *SETTINGS, "--json") == (0, out, "")  # settings alone are enough
    status, out, _ = safegnn("data", "info", "synthetic", *SETTINGS)
    assert status == 0 and f"{facts['edges']}" in out and "clients balance median" in out


def test_data_info_of_many_classes_without_groups(safegnn, real_data):
    cora = ("--set", "data.name=cora", "--set", "clients={partition: disjoint, count: 5}", "--data-dir")
    status, out, err = safegnn("data", "info", *cora, str(real_data("planetoid")), "--json")
    facts = json.loads(out, parse_constant=pytest.fail)
    assert (status, err) == (0, "")
    assert facts["nodes"] == 2_485 and len(facts["labels"]) == 8 and facts["groups"] is None
    assert facts["clients"]["count"] == 5 and facts["clients"]["train_classes"]["max"] <= 7
    status, out, _ = safegnn("data", "info", *cora, str(real_data("planetoid")))
    assert status == 0 and "clients train_classes median" in out


@pytest.mark.parametrize("arguments", [(), ("data",)])
def test_a_bare_command_prints_its_help_alone(safegnn, arguments):
    status, out, err = safegnn(*arguments)
    assert status != 0 and "Usage" in out + err and "safegnn: " not in err


@pytest.mark.parametrize("arguments", [("--help",), ("train", "--help"), ("data", "info", "--help")])
def test_help_is_no_failure(safegnn, arguments):
    status, out, err = safegnn(*arguments)
    assert (status, err) == (0, "") and "Usage" in out


# What goes wrong


@pytest.mark.parametrize(
    ("arguments", "status", "parts"),
    [
        (("train", "--preset", "nope"), 2, ("unknown preset 'nope'", "nba")),
        (("train", "--set", "federation.cohort=31"), 2, ("federation.cohort = 31", "clients.count = 30")),
        (("train", "--set", "federation.rounds=0"), 2, ("federation.rounds",)),
        (("train", "--set", "method.tua=1"), 2, ("method.tua: unknown setting",)),
        (("train", "--engine", "abacus"), 2, ("engine.name", "'abacus'")),
        (("train", "--engine", "{a: b"), 2, ("engine.name",)),
        (("train", "--config", "none.yaml"), 2, ("none.yaml", "No such file")),
        (("train", "--nope"), 2, ("--nope",)),
        (("train", "surplus"), 2, ("surplus",)),
        (("train", "--preset"), 2, ("--preset",)),
        (("juggle",), 2, ("juggle",)),
        (("train", "--preset", "nba", "--data-dir", "none"), 1, ("none",)),
        (("train", "--preset", "nba", "--data-dir", "2024"), 1, ("2024",)),
        (("train", "--preset", "german", "--data-dir", "ü [b] 😀"), 1, ("ü [b] 😀",)),
        (("train", "--set", "sharing.update_bits=40"), 2, ("sharing.",)),
        (("train", "--resume", "none"), 1, ("none: no run folder",)),
        (("train", "--resume", "none", "--preset", "nba"), 2, ("--resume", "leave the other options out")),
        (("train", "--resume", "none", "--engine", "plaintext"), 2, ("--resume",)),
        (("compare", "--preset", "nope"), 2, ("unknown preset 'nope'",)),
        (("compare", "--preset", "nba", "--data-dir", "none"), 1, ("none",)),
        (("compare", "--seeds", "2"), 2, ("--seeds", "--methods")),
        (("compare", "--methods", "fedavg", "--engines", "plaintext,embedded"), 2, ("--engines", "expected one")),
        (("compare", "--methods", "fedprox"), 2, ("--methods fedprox", "fedpub", "centralised")),
        (("data", "info", "nope"), 2, ("unknown preset 'nope'",)),
        (("data", "info", "synthetic", "--set", "data.synthetic.nodes=1"), 2, ("data.synthetic.nodes",)),
        (("data", "fetch", "nope"), 1, ("nope",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) and value[0] in ("train", "compare", "data") else "",
)
def test_bad_input_is_one_line_and_leaves_no_folder(safegnn, tmp_path, arguments, status, parts):
    assert_refused(safegnn(*arguments), status, *parts)
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_one_line_that_names_it(safegnn):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = ["--engine", "embedded", "--set", f"engine.ports=[0, {port}, 0]"]
        assert_refused(safegnn("train", *SETTINGS, *ports), 2, "engine.ports", f"port {port} of server 1", "in use")


def test_a_run_folder_that_is_a_file_is_one_line(safegnn, tmp_path):
    (tmp_path / "runs").write_text("")
    assert_refused(safegnn("train", *SETTINGS), 1, "runs", "cannot be created")


def test_a_damaged_checkpoint_is_one_line(safegnn):
    out = safegnn("train", *SETTINGS, "--json")[1]
    run = Path(json.loads(out)["run"])
    state = run / "checkpoint" / "state.npz"
    state.write_bytes(state.read_bytes()[:-7])
    assert_refused(safegnn("train", "--resume", str(run)), 1, "state.npz", "damaged")


def test_an_unforeseen_error_shows_no_local_variables(monkeypatch, capsys):
    """The variables of a round hold shares and updates."""

    def fault(*arguments):
        share = int("1234567") * 1000
        return share / 0

    monkeypatch.setattr(cli, "_settings", fault)
    monkeypatch.setattr(sys, "argv", ["safegnn", "train"])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # the command line sets its own
    with pytest.raises(ZeroDivisionError) as caught:
        cli.main()
    sys.excepthook(caught.type, caught.value, caught.tb)
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert "1234567000" not in err


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
