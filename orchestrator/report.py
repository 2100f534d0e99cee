"""What a finished run says: its pictures and one summary."""

from __future__ import annotations

from statistics import median
from typing import Any

from orchestrator.errors import RunError
from orchestrator.metrics import METRICS, moving_average
from orchestrator.plots import plot_costs, plot_curves
from orchestrator.runs import RunFolder

__all__ = ["report"]


def report(folder: RunFolder, title: str) -> dict[str, Any]:
    """Draw `curves.png` and `costs.png`; return the JSON document of `safegnn train`.

    The top-level metrics are those of the last round on the validation nodes; `ma20` is their mean over the last 20
    rounds; `test` belongs to the same model. `costs` are medians over the rounds.

    Raises:
        RunError: the run has no completed round.
    """
    records, costs = folder.records(), folder.costs()
    if not records or not costs:
        raise RunError(f"{folder.path}: no round was completed")
    plot_curves(records, folder.path / "curves.png", title)
    plot_costs(costs, folder.path / "costs.png", title)
    last = records[-1]
    return {
        "run": str(folder.path),
        "rounds": last["round"],
        **{metric: last["val"][metric] for metric in METRICS},
        "ma20": {metric: moving_average([row["val"][metric] for row in records])[-1] for metric in METRICS},
        "test": {metric: last["test"][metric] for metric in METRICS},
        "undefined": {mask: last[mask]["undefined"] for mask in ("val", "test") if last[mask]["undefined"]},
        "costs": {key: median(row[key] for row in costs) for key in costs[0] if key != "round"},
    }
