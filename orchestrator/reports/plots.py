"""Every picture: training curves, engine comparison, costs. Needs no display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orchestrator.evaluation.figures import metric_names
from orchestrator.evaluation.group_table import GAPS
from orchestrator.evaluation.metrics import METRICS, moving_average
from orchestrator.files import write_atomically

__all__ = [
    "plot_comparison",
    "plot_costs",
    "plot_costs_of_engines",
    "plot_curves",
    "plot_plane",
    "plot_settings",
    "plot_similarity",
]

_LABELS = {
    "accuracy": "validation accuracy",
    "auc": "validation AUC",
    "delta_sp": "ΔSP (lower is fairer)",
    "delta_eo": "ΔEO (lower is fairer)",
    "macro_f1": "validation macro-F1",
}
_COLOURS = {"plaintext": "#1f4e8c", "embedded": "#d1495b", "mpspdz": "#2a9d5c"}
_STYLES = {"plaintext": "-", "embedded": "--", "mpspdz": ":"}
_WINDOW = 20
_MARKERS = "os^Dv<>PX*hd"


def plot_curves(records: Sequence[Mapping[str, Any]], path: Path, title: str) -> None:
    """Every validation metric over the rounds, raw and 20-round moving average, as one PNG.

    The gaps' 95 % intervals are shaded.
    """
    plot_comparison({"": records}, path, title)


def plot_comparison(runs: Mapping[str, Sequence[Mapping[str, Any]]], path: Path, title: str) -> None:
    """The same for several engines on top of each other (SaFeGNN, figures 2 and 3).

    Args:
        runs: records of `metrics.jsonl` by engine name.
    """
    figure, axes = _axes(next(iter(runs.values())))
    for metric, axis in axes.items():
        for name, records in runs.items():
            colour, style = _COLOURS.get(name, _COLOURS["plaintext"]), _STYLES.get(name, "-")
            rounds = [record["round"] for record in records]
            values = [record["val"][metric] for record in records]
            if len(runs) == 1 and (gaps := [record["val"].get("gaps", {}).get(metric) for record in records])[0]:
                low, high = (_gaps([gap[end] for gap in gaps]) for end in ("low", "high"))
                axis.fill_between(rounds, low, high, color=colour, alpha=0.08, linewidth=0)
            # Markers, because a value without neighbours is no line.
            axis.plot(rounds, _gaps(values), color=colour, alpha=0.25, linewidth=0.9, marker=".", markersize=3)
            smooth = _gaps(moving_average(values, _WINDOW))
            label = name or f"mean of {_WINDOW} rounds"
            marker = "o" if len(rounds) == 1 else ""
            axis.plot(rounds, smooth, style, color=colour, linewidth=1.8, marker=marker, markersize=4, label=label)
        _finish(axis, _LABELS[metric])
    first = next(iter(axes.values()))
    first.legend(frameon=False, title=f"mean of {_WINDOW} rounds; raw faint" if len(runs) > 1 else None)
    _save(figure, path, title)


def plot_settings(settings: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], path: Path, title: str) -> None:
    """Mean over seeds of the 20-round moving averages, one standard deviation shaded (SaFeGNN, figures 4 and 5).

    Args:
        settings: by name, one list of records of `metrics.jsonl` for each seed.
    """
    figure, axes = _axes(next(iter(settings.values()))[0])
    for metric, axis in axes.items():
        for name, runs in settings.items():
            smooth = [_gaps(moving_average([record["val"][metric] for record in run], _WINDOW)) for run in runs]
            curves = np.stack([curve[: min(map(len, smooth))] for curve in smooth])
            rounds = [record["round"] for record in runs[0]][: curves.shape[1]]
            middle = curves.mean(axis=0)
            [line] = axis.plot(rounds, middle, linewidth=1.8, label=name)
            if len(curves) > 1:
                low, high = middle + np.outer((-1, 1), curves.std(axis=0, ddof=1))
                axis.fill_between(rounds, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        _finish(axis, _LABELS[metric])
    next(iter(axes.values())).legend(frameon=False, title=f"mean of {_WINDOW} rounds")
    _save(figure, path, title)


def plot_plane(
    arms: Mapping[str, Mapping[str, Sequence[float | None]]], path: Path, title: str, gaps: Sequence[str] = GAPS
) -> None:
    """Utility against each gap, a point an arm, one standard deviation over the seeds; up and left is better.

    Args:
        arms: by name, the values of each metric, one a seed.
    """
    utility = "auc" if all("auc" in values for values in arms.values()) else "accuracy"
    figure, panels = plt.subplots(1, len(gaps), figsize=(5 * len(gaps) + 2, 4.6), sharey=True, layout="constrained")
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(arms)))
    for panel, gap in zip(np.atleast_1d(panels), gaps, strict=True):
        for k, (name, values) in enumerate(arms.items()):
            x, y = _gaps(values[gap]), _gaps(values[utility])
            spread = {f"{axis}err": v.std(ddof=1) if len(v) > 1 else None for axis, v in (("x", x), ("y", y))}
            point = {"fmt": _MARKERS[k % len(_MARKERS)], "color": colours[k], "markersize": 7, "label": name}
            panel.errorbar(x.mean(), y.mean(), ecolor=(*colours[k][:3], 0.25), elinewidth=0.8, **point, **spread)
        _finish(panel, _LABELS[utility].replace("validation", "test"))
        panel.set_xlabel(_LABELS[gap])
    figure.legend(
        *np.atleast_1d(panels)[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside right upper"
    )
    _save(figure, path, title)


def plot_similarity(
    weights: np.ndarray, truth: np.ndarray, truth_label: str, clients: Sequence[int], path: Path, title: str
) -> None:
    """How much each client took from each other one, beside what they have in common, as one PNG (FED-PUB, figure 5).

    Args:
        weights, truth: shape (q, q), rows and columns in the order of `clients`.
        truth_label: what `truth` is.
    """
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    others = weights.copy()
    np.fill_diagonal(others, np.nan)  # a client takes most from itself, which would hide the rest
    for panel, values, label in zip(panels, (others, truth), ("weight in the last round", truth_label), strict=True):
        image = panel.imshow(values, cmap="viridis")
        figure.colorbar(image, ax=panel, shrink=0.8)
        panel.set_title(label, fontsize=10)
        panel.set_xlabel("client")
        if len(clients) <= 20:
            panel.set_xticks(range(len(clients)), clients)
            panel.set_yticks(range(len(clients)), clients)
    panels[0].set_ylabel("client that takes")
    _save(figure, path, title)


def plot_costs(costs: Sequence[Mapping[str, float]], path: Path, title: str) -> None:
    """Seconds and bytes of every round, as one PNG."""
    figure, (seconds, sizes) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    rounds = [row["round"] for row in costs]
    for key, label in (
        ("training_seconds", "local training"),
        ("online_seconds", "aggregation, online"),
        ("preprocessing_seconds", "preprocessing"),
    ):
        if any(row[key] for row in costs):
            seconds.plot(rounds, [row[key] for row in costs], label=label, linewidth=1.2, marker=".", markersize=3)
    seconds.set_yscale("log")
    _finish(seconds, "seconds per round")
    bars = {
        "upload\nper client": "upload_bytes_per_client",
        "download\nper client": "download_bytes_per_client",
        "server to\nserver": "online_bytes_server0",
        "pre-\nprocessing": "preprocessing_bytes_server1",
    }
    heights = [float(np.median([row[key] for row in costs])) / 1000 for key in bars.values()]
    drawn = sizes.bar(list(bars), heights, color="#1f4e8c", width=0.6)
    sizes.bar_label(drawn, [f"{height:.3g}" for height in heights])
    sizes.set_yscale("symlog", linthresh=1)
    _finish(sizes, "kB per round (median)")
    seconds.set_xlabel("round")
    if seconds.lines:
        seconds.legend(frameon=False)
    _save(figure, path, title)


def plot_costs_of_engines(
    bars: Mapping[str, tuple[float, float, float]], paper: tuple[float | None, ...], path: Path, title: str
) -> None:
    """Costs of one round by engine, program and protocol, as one PNG with logarithmic bars.

    Args:
        bars: by name, whose first word is the engine: online seconds, MB that each server sends online, and seconds in
            all; none of them 0.
        paper: the paper's figures for the same, where it has them.
    """
    figure, axes = plt.subplots(1, 3, figsize=(11, 1.4 + 0.32 * len(bars)), sharey=True, layout="constrained")
    names = list(bars)[::-1]
    colours = [_COLOURS.get(name.split(",")[0], _COLOURS["plaintext"]) for name in names]
    labels = ("online, s", "sent online by each server, MB", "with preprocessing and start-up, s")
    for k, (axis, label) in enumerate(zip(axes, labels, strict=True)):
        drawn = axis.barh(names, [bars[name][k] for name in names], color=colours, height=0.6)
        axis.bar_label(drawn, [f"{bars[name][k]:.2g}" for name in names], padding=3, fontsize=8)
        axis.set_xscale("log")
        axis.margins(x=0.15)
        if paper[k] is not None:
            axis.axvline(paper[k], color="#555555", linestyle="--", linewidth=1)
            axis.text(paper[k], 1.0, " the paper", transform=axis.get_xaxis_transform(), fontsize=8, va="bottom")
        _finish(axis, "")
        axis.set_xlabel(label)
    _save(figure, path, f"{title}, per round")


def _axes(records: Sequence[Mapping[str, Any]]) -> tuple[Figure, dict[str, Axes]]:
    """One pair of axes for each labelled metric that the records hold, two in a row, rounds below."""
    names = [name for name in metric_names(records[0]["val"]) if name in _LABELS] if records else list(METRICS)
    rows = -(-len(names) // 2)
    figure, grid = plt.subplots(rows, 2, figsize=(10, 3.25 * rows), sharex=True, squeeze=False, layout="constrained")
    for axis in grid.flat[len(names) :]:
        figure.delaxes(axis)  # an odd number of metrics leaves one
    axes = dict(zip(names, grid.flat, strict=False))
    for axis in list(axes.values())[-2:]:
        axis.set_xlabel("round")
        axis.tick_params(labelbottom=True)
    return figure, axes


def _gaps(values: Sequence[float | None]) -> np.ndarray:
    """Undefined values leave a gap in the curve."""
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def _finish(axis: Axes, label: str) -> None:
    axis.set_ylabel(label)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25)


def _save(figure: Figure, path: Path, title: str) -> None:
    figure.suptitle(title, fontsize=11)
    try:
        write_atomically(path, lambda file: figure.savefig(file, format="png", dpi=120))
    finally:
        plt.close(figure)
