"""Pictures: drawn from any records there can be, and what is undefined is left out."""

from __future__ import annotations

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.image import imread

import orchestrator.reports.plots
from orchestrator.errors import RunError
from orchestrator.evaluation.metrics import METRICS
from orchestrator.reports.plots import plot_comparison, plot_costs, plot_curves, plot_settings

COSTS = (
    "training_seconds",
    "online_seconds",
    "preprocessing_seconds",
    "upload_bytes_per_client",
    "download_bytes_per_client",
    "online_bytes_server0",
    "preprocessing_bytes_server1",
)


@pytest.fixture
def figure(monkeypatch):
    """The figure of the last plot, kept open for a look at its axes; warnings are errors."""
    kept = []
    monkeypatch.setattr(orchestrator.reports.plots.plt, "close", kept.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield lambda: kept[-1]
    monkeypatch.undo()
    plt.close("all")


def records(values: dict[str, list]) -> list[dict]:
    rounds = len(next(iter(values.values())))
    table = {metric: values.get(metric, [0.5] * rounds) for metric in METRICS}
    return [{"round": k + 1, "val": {metric: table[metric][k] for metric in METRICS}} for k in range(rounds)]


def assert_drawn(path) -> None:
    """A PNG in which not every pixel is alike."""
    assert path.read_bytes().startswith(b"\x89PNG")
    assert np.ptp(imread(path)[..., :3]) > 0.5
    assert not path.with_name(path.name + ".new").exists()


def curves(figure) -> dict[str, list]:
    return {axis.get_ylabel(): [line.get_ydata() for line in axis.lines] for axis in figure.axes}


def test_curves_show_the_values_and_their_mean(tmp_path, figure):
    accuracy = [k / 40 for k in range(40)]
    plot_curves(records({"accuracy": accuracy}), tmp_path / "curves.png", "title")
    assert_drawn(tmp_path / "curves.png")
    raw, smooth = curves(figure())["validation accuracy"]
    np.testing.assert_allclose(raw, accuracy)
    np.testing.assert_allclose(smooth[-1], np.mean(accuracy[-20:]))
    assert figure().get_suptitle() == "title"


def test_undefined_values_leave_gaps(tmp_path, figure):
    plot_curves(records({"auc": [None, 0.6, None, 0.8]}), tmp_path / "curves.png", "")
    raw, smooth = curves(figure())["validation AUC"]
    np.testing.assert_array_equal(raw, [np.nan, 0.6, np.nan, 0.8])
    np.testing.assert_allclose(smooth, [np.nan, np.nan, np.nan, 0.7])  # one value is no mean
    assert figure().axes[1].lines[0].get_marker() == "."  # or a value between two gaps would be invisible


@pytest.mark.parametrize("metric", METRICS)
def test_a_metric_that_is_never_defined_is_an_empty_panel(tmp_path, figure, metric):
    plot_curves(records({metric: [None] * 3}), tmp_path / "curves.png", "")
    assert_drawn(tmp_path / "curves.png")
    empty = [all(np.isnan(line).all() for line in lines) for lines in curves(figure()).values()]
    assert empty == [name == metric for name in METRICS]


def test_a_single_round_is_visible(tmp_path, figure):
    plot_curves(records({"auc": [0.6]}), tmp_path / "curves.png", "")
    assert_drawn(tmp_path / "curves.png")
    assert all(line.get_marker() not in ("", "None") for axis in figure().axes for line in axis.lines)


def test_a_gap_that_clients_measured_is_drawn_with_its_interval(tmp_path, figure):
    """Three panels: what clients measure has no AUC where they lack a class, and gaps over clients are no panels."""
    rows = [
        {
            "round": k,
            "val": {
                "accuracy": 0.5,
                "macro_f1": 0.5,
                "delta_sp": 0.1,
                "delta_sp_mean": 0.2,
                "delta_sp_worst": None,
                "gaps": {"delta_sp": {"low": 0.0, "high": None if k == 2 else 0.3}},
                "counts": {"nodes": 9},
                "undefined": {},
            },
        }
        for k in (1, 2, 3)
    ]
    plot_curves(rows, tmp_path / "curves.png", "")
    assert_drawn(tmp_path / "curves.png")
    assert list(curves(figure())) == ["validation accuracy", "validation macro-F1", "ΔSP (lower is fairer)"]
    shaded = [len(axis.collections) for axis in figure().axes]
    assert shaded == [0, 0, 1]


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_seed_has_no_spread_to_shade(tmp_path, figure, seeds):
    runs = [records({"auc": [0.5, 0.6 + k / 10, 0.7]}) for k in range(seeds)]
    plot_settings({"a": runs}, tmp_path / "curves.png", "")
    assert [len(axis.collections) for axis in figure().axes] == [int(seeds > 1)] * 4


def test_a_comparison_overlays_its_engines_and_names_them(tmp_path, figure):
    runs = {"plaintext": records({"auc": [0.5, 0.6]}), "embedded": records({"auc": [0.5, 0.7]})}
    plot_comparison(runs, tmp_path / "comparison.png", "")
    assert_drawn(tmp_path / "comparison.png")
    assert [list(line) for line in curves(figure())["validation AUC"]][::2] == [[0.5, 0.6], [0.5, 0.7]]
    assert [text.get_text() for text in figure().axes[0].get_legend().get_texts()] == ["plaintext", "embedded"]
    styles = {(line.get_color(), line.get_linestyle()) for line in figure().axes[0].lines[1::2]}
    assert len(styles) == 2


@pytest.mark.parametrize("rounds", [1, 5])
@pytest.mark.parametrize("zero", [(), ("preprocessing_seconds", "online_bytes_server0"), COSTS])
def test_costs_are_drawn_whatever_is_zero(tmp_path, figure, rounds, zero):
    rows = [{"round": k, **{key: 0 if key in zero else 10.0 * k for key in COSTS}} for k in range(1, rounds + 1)]
    plot_costs(rows, tmp_path / "costs.png", "")
    assert_drawn(tmp_path / "costs.png")
    seconds, sizes = figure().axes
    assert len(seconds.lines) == sum(key.endswith("seconds") and key not in zero for key in COSTS)
    heights = {"server to\nserver": "online_bytes_server0", "upload\nper client": "upload_bytes_per_client"}
    bars = dict(zip([label.get_text() for label in sizes.get_xticklabels()], sizes.patches, strict=True))
    for label, key in heights.items():
        assert bars[label].get_height() == np.median([row[key] for row in rows]) / 1000


def test_figures_are_closed_and_a_failure_is_one_line(tmp_path):
    before = plt.get_fignums()
    with pytest.raises(RunError) as caught:
        plot_curves(records({"auc": [0.6]}), tmp_path / "none" / "curves.png", "")
    assert "curves.png: cannot be written" in str(caught.value) and "\n" not in str(caught.value)
    assert plt.get_fignums() == before
