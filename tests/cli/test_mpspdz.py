"""The commands around MP-SPDZ: with a stand-in for an installation, and without any."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from orchestrator import cli
from orchestrator.coordinator.run_folder import RunFolder
from tests.conftest import TINY
from tests.mpspdz_standin import MEAN, write_party

SETTINGS = [argument for setting in TINY for argument in ("--set", setting)]
MEANS = ["--set", "method.name=fedavg"]
KEYS = {
    "engine",
    "protocol",
    "program",
    "preprocessing",
    "cohort",
    "parameters",
    "repeats",
    "online_seconds",
    "online_bytes_per_server",
    "rounds",
    "preprocessing_seconds",
    "preprocessing_bytes_per_server",
    "upload_bytes_per_client",
    "download_bytes_per_client",
    "startup_seconds",
    "floor_seconds",
    "max_error",
    "memory_bytes_per_server",
}


@pytest.fixture
def safegnn(monkeypatch, tmp_path, capfd):
    """In an empty folder, with no installation anywhere."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MPSPDZ_HOME", raising=False)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["safegnn", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return int(caught.value.code or 0), *capfd.readouterr()

    return run


@pytest.fixture
def installed(standin, monkeypatch, safegnn):
    """Parties that compute means, found by the environment."""
    for protocol in ("semi2k", "dealer-ring"):
        write_party(standin.home, MEAN + "result()", protocol)
    monkeypatch.setenv("MPSPDZ_HOME", str(standin.home))
    return standin


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


def test_doctor_tells_what_to_do_and_fails(safegnn):
    status, out, _ = safegnn("doctor", "--json")
    document = json.loads(out)
    assert status == 1 and not document["ok"]
    assert document["findings"][0] == {
        "what": "installation",
        "state": "fault",
        "detail": "none found",
        "cure": document["findings"][0]["cure"],
    }
    status, out, _ = safegnn("doctor")
    assert status == 1 and "fault" in out and "unpack the binary release" in out


def test_doctor_is_content_with_a_sound_installation(safegnn, installed):
    (installed.home / "compile.py").write_text("")
    status, out, _ = safegnn("doctor", "--json")
    faults = [row for row in json.loads(out)["findings"] if row["state"] == "fault"]
    assert status == bool(faults) and all(row["what"] == "processor" for row in faults)


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


def test_bench_of_a_preset_leaves_the_table_beside_the_papers(safegnn, installed):
    """The stand-in computes means without clipping only, so what this measures on MP-SPDZ is none of its results."""
    status, out, err = safegnn(
        "bench", "--preset", "demo", *MEANS, "--program", "assisted", "--repeats", "2", "--parameters", "50", "--json"
    )
    assert status == 0
    records = json.loads(out)
    assert [(record["engine"], record["protocol"], record["preprocessing"]) for record in records] == [
        ("embedded", None, "ot"),
        ("embedded", None, "dealer"),
        ("mpspdz", "semi2k", "ot"),
        ("mpspdz", "dealer-ring", "dealer"),
    ]
    assert all(record.keys() == KEYS and record["cohort"] == 3 and record["repeats"] == 2 for record in records)
    folder = Path(err.splitlines()[-1].removeprefix("table and chart: "))
    assert folder.parent == Path("runs") and (folder / "environment.json").exists()
    text = (folder / "bench.md").read_text()
    assert "| the paper's | - | - | - | 2.66 | 3.55 |" in text and "ratio" in text
    with open(folder / "bench.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["engine"] for row in rows] == ["embedded", "embedded", "mpspdz", "mpspdz", "the paper's"]
    assert float(rows[0]["online s"]) > 0 and float(rows[2]["120 rounds with all s"]) > 0
    assert (folder / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_bench_of_a_preset_leaves_out_what_cannot_run_here(safegnn):
    status, out, err = safegnn(
        "bench", "--preset", "pokec-n", "--program", "assisted", "--preprocessing", "dealer", "--repeats", "1"
    )
    assert status == 0 and err.count("left out: MP-SPDZ: no installation") == 1
    assert "22,000 parameters, because the data set is not there" in err
    assert "| embedded | own | assisted | dealer |" in out and "| the paper's |" in out


def test_bench_without_a_preset_prints_a_table_alone(safegnn):
    status, out, _ = safegnn("bench", "--repeats", "1", "--parameters", "50", "--cohort", "40")
    assert status == 0 and "online seconds" in out and "assisted, ot" in out
    assert not list(Path().iterdir())
