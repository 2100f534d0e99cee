"""`safegnn bench`: alone, and beside the paper's figures."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("wide")

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
    assert all(record.keys() == KEYS and record["cohort"] == 10 and record["repeats"] == 2 for record in records)
    folder = Path(err.splitlines()[-1].removeprefix("table and chart: "))
    assert folder.parent == Path("runs") and (folder / "environment.json").exists()
    text = (folder / "bench.md").read_text()
    assert "| the paper's | – | – | – | 2.66 | 3.55 |" in text and "ratio" in text
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


@pytest.mark.parametrize(
    "settings",
    [
        ("method.name=fedsage", "model.name=sage"),
        ("method.name=fedsage+", "model.name=sage"),
        ("method.name=fedpub", "model.name=gcn-classifier", "evaluation.where=clients"),
    ],
    ids=lambda settings: settings[0].partition("=")[2],
)
def test_bench_of_a_method_measures_its_rule(safegnn, settings):
    chosen = [argument for setting in settings for argument in ("--set", setting)]
    status, out, _ = safegnn("bench", *chosen, "--repeats", "1", "--parameters", "50", "--json")
    assert status == 0
    [record] = json.loads(out)
    assert record["parameters"] == 50 and 0 < record["max_error"] < 1e-6


def test_bench_of_a_method_without_rounds_is_one_line(safegnn):
    alone = ("--set", "method.name=local", "--set", "evaluation.where=clients")
    status, out, err = safegnn("bench", *alone, "--repeats", "1")
    assert (status, out) == (2, "")
    assert err.splitlines()[1:] == [
        "safegnn: method.name: this method aggregates nothing, so there is no round to compute"
    ]
