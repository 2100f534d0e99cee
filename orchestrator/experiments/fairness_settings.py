"""What `reproduce fairness` sets beside each other: FedAvg, F2GNN's levers, and FairDual's; imports nothing slow."""

from __future__ import annotations

from orchestrator.config import Config
from orchestrator.experiments.contenders import contender
from orchestrator.registry import CENTRALISED

__all__ = ["BASELINE", "fairness_settings"]

BASELINE = "fedavg"
"""What the others are compared with, seed by seed."""

_ALPHAS = (0.0, 0.3, 1.0, 3.0)
_CAPS = (0.25, 0.5)


def fairness_settings(config: Config) -> dict[str, Config]:
    """The arms by name, on the same data, clients, cohorts, rounds and seeds; written down here before any was run.

    F2GNN: as the configuration has it or, if that is of another method, at the paper's defaults; without its penalty
    (alpha = 0); with a penalty that weighs (the sweep of alpha); and with weights of a low temperature, which alone let
    the servers' softmaxes tell clients apart. FairDual: as it is, with multipliers that may hardly rise (the sweep of
    the cap), and measured on training nodes alone. One client that holds everything shows what the data allow, with
    and without FairDual. Local models are there where clients evaluate.
    """
    f2gnn = contender(config, "f2gnn")
    fair = contender(config, "fairdual")
    whole = {"clients": {"partition": "whole", "count": 1}, "federation": {"cohort": 1, "sampling": "distinct"}}
    fedavg = contender(config, "fedavg")
    arms = {BASELINE: fedavg, CENTRALISED: fedavg.changed(**whole), f"{CENTRALISED} fairdual": fair.changed(**whole)}
    if config.evaluation.where == "clients":
        arms["local"] = contender(config, "local")
    arms["f2gnn"] = f2gnn
    for alpha in _ALPHAS:
        arms[f"f2gnn alpha = {alpha:g}"] = f2gnn.changed(method={"alpha": alpha})
    arms["f2gnn tau = 0.1"] = f2gnn.changed(method={"tau": 0.1, "lam": 1.0})
    for cap in _CAPS:
        arms[f"fairdual cap = {cap:g}"] = fair.changed(method={"multiplier_max": cap, "proportional": 0.0})
    arms["fairdual on train"] = fair.changed(method={"measured": "train"})
    arms["fairdual"] = fair
    return arms
