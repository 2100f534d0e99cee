"""What `reproduce fairness` compares: FedAvg, baselines, F2GNN's parts, FairDual. Imports nothing slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.config import Config
from orchestrator.errors import ConfigError
from orchestrator.experiments.contenders import contender
from orchestrator.registry import CENTRALISED

__all__ = ["BASELINE", "chosen_arms", "fairness_settings", "family"]

BASELINE = "fedavg"
"""What the others are compared with, seed by seed."""

_FLAT = 100.0
"""A temperature at which the servers' final softmax gives weights within 2 % of 1 / q."""

_SILENT = 1e-6
"""A cap of the fairness score at which all clients' are alike."""

_ARMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    BASELINE: ("fedavg", {}),
    "fedprox": ("fedprox", {}),
    "f2gnn": ("f2gnn", {}),
    "f2gnn penalty alone": ("f2gnn", {"alpha": 1.0, "tau": _FLAT, "stateful": False}),
    "f2gnn balance weights alone": (
        "f2gnn",
        {"alpha": 0.0, "tau": 0.1, "lam": 1.0, "score_max": _SILENT, "stateful": False},
    ),
    "f2gnn fairness weights alone": ("f2gnn", {"alpha": 0.0, "tau": 0.1, "lam": 0.0, "stateful": False}),
    "f2gnn interpolation alone": ("f2gnn", {"alpha": 0.0, "tau": _FLAT}),
    **{f"f2gnn alpha = {alpha:g}": ("f2gnn", {"alpha": alpha}) for alpha in (0.3, 1.0, 3.0)},
    **{f"fairfed beta = {beta:g}": ("fairfed", {"beta": beta}) for beta in (1.0, 4.0)},
    "glocalfair": ("glocalfair", {}),
    "privfairfl": ("privfairfl", {}),
    "afed": ("afed", {}),
    "f2pgnn": ("f2pgnn", {}),
    **{f"fedfairgnn lambda = {parity:g}": ("fedfairgnn", {"parity": parity}) for parity in (0.5, 2.0)},
    **{f"fairdual cap = {cap:g}": ("fairdual", {"multiplier_max": cap, "proportional": 0.0}) for cap in (0.25, 0.5)},
    "fairdual on train and val": ("fairdual", {"measured": "train_val"}),
    "fairdual": ("fairdual", {}),
    f"{CENTRALISED} fairgnn": ("fairgnn", {}),
}
"""By arm, the method and the settings in which it differs from that method's own."""


def fairness_settings(config: Config) -> dict[str, Config]:
    """The arms by name, on the same data, clients, cohorts, rounds and seeds; written down here before any was run.

    F2GNN's parts stand alone: the penalty, each of the two kinds of weights at a temperature that lets them tell
    clients apart, and the interpolation with the client's last model. Sweeps are of what buys fairness with utility:
    F2GNN's alpha, FairFed's beta, FedFairGNN's lambda, and the cap of FairDual's multipliers. One client that holds
    everything shows what the data allow, with FairDual and with centralised methods. Local models, and EDITS, which
    predicts on a graph of its own, are there where clients evaluate. `f2gnn` is as the configuration has it or, if
    that is of another method, at the paper's defaults.
    """
    arms = {name: _arm(config, *chosen) for name, chosen in _ARMS.items()}
    whole = {"clients": {"partition": "whole", "count": 1}, "federation": {"cohort": 1, "sampling": "distinct"}}
    arms |= {CENTRALISED: arms[BASELINE].changed(**whole), f"{CENTRALISED} fairdual": arms["fairdual"].changed(**whole)}
    if config.evaluation.where == "clients":
        arms |= {"local": contender(config, "local"), f"{CENTRALISED} edits": contender(config, "edits")}
    return arms


def chosen_arms(arms: Mapping[str, Config], names: Sequence[str]) -> dict[str, Config]:
    """The baseline and the named arms, in the order of all; ``method*`` stands for all arms of a method.

    Raises:
        ConfigError: there is no such arm.
    """
    known = {*arms, *(f"{family(arm)}*" for arm in arms)}
    for name in names:
        if name not in known:
            raise ConfigError(f"--arms {name}: expected some of {', '.join(arms)}; METHOD* for all arms of a method")
    return {arm: own for arm, own in arms.items() if {arm, f"{family(arm)}*"} & {BASELINE, *names}}


def family(arm: str) -> str:
    """The method that an arm is of; of one that holds the whole graph `CENTRALISED`."""
    return arm.split()[0]


def _arm(config: Config, method: str, settings: Mapping[str, Any]) -> Config:
    own = contender(config, method)
    return own.changed(method=settings) if settings else own
