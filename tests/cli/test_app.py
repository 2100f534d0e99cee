"""The commands together: help, and one line for whatever goes wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import assert_refused

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


@pytest.mark.parametrize("arguments", [(), ("data",)])
def test_a_bare_command_prints_its_help_alone(safegnn, arguments):
    status, out, err = safegnn(*arguments)
    assert status != 0 and "Usage" in out + err and "safegnn: " not in err


@pytest.mark.parametrize("arguments", [("--help",), ("train", "--help"), ("data", "info", "--help")])
def test_help_is_no_failure(safegnn, arguments):
    status, out, err = safegnn(*arguments)
    assert (status, err) == (0, "") and "Usage" in out


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("certs",), "Folder to make; it must not exist."),
        (("reproduce",), "table2 (and figures 4, 5), operating-point or fairness; none with --resume."),
        (("data", "fetch"), "nba, german, pokec-z, pokec-n, cora, citeseer or pubmed"),
        (("data", "info"), "a preset: demo"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_help_says_what_an_argument_is(safegnn, monkeypatch, command, text):
    monkeypatch.setenv("COLUMNS", "200")
    assert text in safegnn(*command, "--help")[1]


COMMANDS = (
    "train",
    "report",
    "predict",
    "compare",
    "runs",
    "presets",
    "settings",
    "account",
    "ledger",
    "audit",
    "reproduce",
    "certs",
    "bench",
    "mpc",
    "doctor",
    "aggregator",
    "site",
    "coordinate",
    "data",
    "identity",
    "consortium",
    "flower",
)


def test_help_names_every_command(safegnn):
    out = safegnn("--help")[1]
    rows = [line for line in out.partition("Commands")[2].splitlines() if line.startswith("│ ") and line[2] != " "]
    assert [row.split()[1] for row in rows] == list(COMMANDS)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("train", "--help"),
        ("train", "--set", "method.tua=1"),
        ("compare", "--methods", "local,nearby"),
        ("reproduce", "table3"),
        ("bench", "--program", "abacus"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_what_trains_nothing_does_not_wait_for_torch(tmp_path, arguments):
    command = [sys.executable, "-X", "importtime", "-m", "orchestrator.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "orchestrator.cli.app" in imported and not {"torch", "matplotlib"} & imported


@pytest.mark.parametrize(
    ("arguments", "status", "parts"),
    [
        (("train", "--preset", "nope"), 2, ("unknown preset 'nope'", "nba")),
        (("train", "--preset", "germn"), 2, ("unknown preset 'germn' (did you mean german?)",)),
        (("compare", "--preset", "pokec_z"), 2, ("(did you mean pokec-z",)),
        (("data", "info", "cora"), 2, ("cora is a data set: --set data.name=cora", "fedpub-cora-")),
        (("data", "info", "citeseer"), 2, ("citeseer is a data set", "fedpub-citeseer-")),
        (("data", "info", "pubmed"), 2, ("pubmed is a data set", "fedpub-pubmed-")),
        (("train", "--preset", "files"), 2, ("files is a data set: --set data.name=files",)),
        (("train", "--set", "model.hidden=200000"), 2, ("model.hidden = 200000", "GB", "is the most")),
        (("train", "--set", "model.hidden=1e6", "--set", "federation.cohort=1"), 2, ("model.hidden = 1000000",)),
        (("train", "--set", "data.synthetic={nodes: 100000000, features: 100000}"), 2, ("data.synthetic", "fewer")),
        (("train", "--set", "clients.count=10000000000"), 2, ("clients.count", "1000000")),
        (("train", "--set", "federation.rounds=1e18"), 2, ("federation.rounds", "1000000000")),
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
        (
            ("train", "--resume", "none", "--preset", "nba"),
            2,
            ("--resume", "leave other options than --set federation.rounds=N out"),
        ),
        (("train", "--resume", "none", "--engine", "plaintext"), 2, ("--resume",)),
        (("compare", "--preset", "nope"), 2, ("unknown preset 'nope'",)),
        (("compare", "--preset", "nba", "--data-dir", "none"), 1, ("none",)),
        (("compare", "--seeds", "2"), 2, ("--seeds", "--methods")),
        (("compare", "--methods", "fedavg", "--engines", "plaintext,embedded"), 2, ("--engines", "expected one")),
        (("compare", "--methods", "nearby"), 2, ("--methods nearby", "fedpub", "centralised")),
        (("compare", "--engines", "abacus"), 2, ("--engines abacus", "plaintext, embedded, mpspdz")),
        (("reproduce", "table3"), 2, ("no experiment 'table3'", "table2, operating-point")),
        (("reproduce", "table2", "--preset", "nope"), 2, ("unknown preset 'nope'",)),
        (("bench", "--engine", "abacus"), 2, ("--engine abacus", "embedded, mpspdz, masking, all")),
        (("mpc", "--protocol", "abacus"), 2, ("--protocol abacus", "semi2k, dealer-ring")),
        (("data", "info", "nope"), 2, ("unknown preset 'nope'",)),
        (("data", "info", "synthetic", "--set", "data.synthetic.nodes=1"), 2, ("data.synthetic.nodes",)),
        (("data", "fetch", "nope"), 1, ("nope",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) and value[0] in COMMANDS else "",
)
def test_bad_input_is_one_line_and_leaves_no_folder(safegnn, arguments, status, parts):
    assert_refused(safegnn(*arguments), status, *parts)
    assert not list(Path().iterdir())


def test_a_round_that_no_memory_holds_is_refused_after_what_is_measured_is_named(safegnn):
    status, out, err = safegnn("bench", "--parameters", "1000000000000", "--repeats", "1")
    assert (status, out) == (2, "")
    said = err.splitlines()
    assert said[0] == "embedded, assisted, ot: 1 rounds" and len(said) == 2
    assert said[1].startswith("safegnn: --cohort 10 --parameters 1000000000000: ") and "GB" in said[1]


@pytest.mark.parametrize(("typo", "meant"), [("trian", "'train'"), ("compaer", "'compare'"), ("acount", "'account'")])
def test_a_mistyped_command_is_told_once_what_was_meant(safegnn, typo, meant):
    status, out, err = safegnn(typo)
    assert (status, out) == (2, "")
    assert err.count("Did you mean") == err.count(meant) == 1
