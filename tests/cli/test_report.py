"""`safegnn report`."""

from __future__ import annotations

from pathlib import Path

from tests.page.folders import make_run
from tests.page.pages import check


def test_report_writes_one_page_of_one_run_or_of_several(safegnn, tiny):
    for seed in (1, 2):
        make_run(Path(f"run-{seed}"), tiny(Path("."), f"seed={seed}"))
    status, out, err = safegnn("report", "run-1")
    assert (status, out, err) == (0, "report: run-1/report.html\n", "")
    assert "f2gnn on synthetic" in check(Path("run-1/report.html").read_text()).words
    status, out, _ = safegnn("report", "run-1", "run-2", "--output", "both.html")
    assert (status, out) == (0, "report: both.html\n")
    assert "2 seeds each" in check(Path("both.html").read_text()).words
    status, out, err = safegnn("report", "none")
    assert status == 1 and out == "" and err == "safegnn: none: no run folder; it holds no config.yaml\n"


def test_exact_metrics_beside_noise_are_asked_for_by_name(safegnn, tiny):
    noise = ("method={name: fedavg, stateful: false}", "privacy={clip_norm: 1, noise_multiplier: 1}")
    make_run(Path("run"), tiny(Path("."), *noise))
    safegnn("report", "run")
    assert "0.6180" not in Path("run/report.html").read_text()
    safegnn("report", "run", "--exact-metrics")
    assert "0.6180" in Path("run/report.html").read_text()
