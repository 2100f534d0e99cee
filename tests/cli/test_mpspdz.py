"""The commands around MP-SPDZ: with a stand-in for an installation, and without any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.coordinator.run_folder import RunFolder
from tests.cli.commands import SETTINGS, assert_refused

pytestmark = pytest.mark.usefixtures("wide")

MEANS = ["--set", "method.name=fedavg"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("mpc", "--preset", "demo"),
        ("train", "--engine", "mpspdz", *SETTINGS),
        ("compare", "--engines", "plaintext,mpspdz", *SETTINGS),
        ("bench", "--engine", "mpspdz"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_without_an_installation_one_line_says_which_release_to_unpack_where(safegnn, arguments):
    status, out, err = safegnn(*arguments)
    assert status == 2 and out == ""
    said = [line for line in err.splitlines() if line.startswith("safegnn: ")]
    assert len(said) == 1
    assert "unpack the binary release 0.4.2" in said[0] and "no installation at third_party/MP-SPDZ" in said[0]
    assert not list(Path().iterdir())


def test_doctor_warns_where_the_option_is_missing(safegnn):
    status, out, _ = safegnn("doctor", "--json")
    document = json.loads(out)
    assert status == 0 and document["ok"]
    [installation] = [row for row in document["findings"] if row["what"] == "installation"]
    assert installation["state"] == "warning" and "unpack the binary release" in installation["cure"]
    status, out, _ = safegnn("doctor")
    assert status == 0 and "warning" in out and "fault" not in out


@pytest.mark.parametrize(
    "asked", ["engine.name=mpspdz", "engine.mpspdz_home=nowhere", "MPSPDZ_HOME"], ids=lambda asked: asked.split("=")[0]
)
def test_doctor_fails_where_what_is_asked_for_is_missing(safegnn, monkeypatch, asked):
    if asked == "MPSPDZ_HOME":
        monkeypatch.setenv(asked, "nowhere")
    status, out, _ = safegnn("doctor", "--json", *(["--set", asked] if "=" in asked else []))
    document = json.loads(out)
    assert status == 1 and not document["ok"]
    assert document["findings"][0] == {
        "what": "installation",
        "state": "fault",
        "detail": "none found",
        "cure": document["findings"][0]["cure"],
    }


def test_doctor_fails_with_a_damaged_installation(safegnn, installed):
    (installed.home / "semi2k-party.x").unlink()
    status, out, _ = safegnn("doctor")
    assert status == 1 and "fault" in out


def test_doctor_is_content_with_a_sound_installation(safegnn, installed):
    (installed.home / "compile.py").write_text("")
    status, out, _ = safegnn("doctor", "--json")
    faults = [row for row in json.loads(out)["findings"] if row["state"] == "fault"]
    assert status == bool(faults) and all(row["what"] == "processor" for row in faults)


def test_mpc_prints_nothing_of_an_installation_that_is_not_fit(safegnn, installed):
    (installed.home / "dealer-ring-party.x").unlink()
    assert_refused(safegnn("mpc", "--preset", "demo"), 2, "dealer-ring-party.x is missing")


def test_mpc_of_a_method_without_rounds_is_one_line(safegnn, installed):
    alone = ("--set", "method.name=local", "--set", "evaluation.where=clients")
    assert_refused(safegnn("mpc", *alone), 2, "method.name", "no round to compute")


def test_mpc_compiles_every_program_of_the_preset_and_says_where(safegnn, installed, tmp_path):
    status, out, err = safegnn("mpc", "--preset", "demo")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"MP-SPDZ 0.4.2 in {installed.home}"
    assert len(lines) == 7
    for line in lines[1:]:
        assert line.split(": ")[0].split(", ")[1] in ("semi2k", "dealer-ring")
        assert (Path(line.split(": ")[1]) / "Schedules").is_dir() and str(tmp_path / "cache") in line
    status, out, err = safegnn("mpc", "--preset", "demo", *MEANS, "--protocol", "semi2k", "--parameters", "100")
    assert status == 0 and len(out.splitlines()) == 3
    assert err.count("left out") == 1 and "faithful" in err


def test_a_whole_training_and_its_audit(safegnn, installed):
    status, out, _ = safegnn(
        "train", *SETTINGS, *MEANS, "--engine", "mpspdz", "--protocol", "dealer-ring", "--audit", "--json"
    )
    assert status == 0
    document = json.loads(out)
    folder, config = RunFolder.open(Path(document["run"]))
    assert (config.engine.name, config.engine.protocol, config.engine.program) == ("mpspdz", "dealer-ring", "assisted")
    assert 0 < folder.records()[-1]["model_difference"] <= folder.records()[-1]["model_difference_bound"] < 1e-6
    assert document["costs"]["startup_seconds"] > 0


def test_compare_takes_all_three_engines(safegnn, installed):
    status, out, _ = safegnn("compare", *SETTINGS, *MEANS, "--engines", "plaintext, embedded,mpspdz", "--json")
    assert status == 0
    document = json.loads(out)
    assert list(document["engines"]) == ["plaintext", "embedded", "mpspdz"]
    assert document["worst_share_of_bound"] <= 1


def test_compare_refuses_engines_that_do_not_exist(safegnn):
    status, out, err = safegnn("compare", *SETTINGS, "--engines", "plaintext,abacus")
    assert (status, out) == (2, "") and "--engines abacus: expected one of plaintext, embedded, mpspdz" in err
