"""What is said about a plan: the document of `safegnn account`, its table over rounds, the noise for a target epsilon.

Nothing here is ever said without delta, adjacency and accountant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from scipy.optimize import brentq

from orchestrator.errors import ConfigError
from orchestrator.privacy.accountant import ACCOUNTANTS
from orchestrator.privacy.plan import LARGEST_MULTIPLIER, LEAST_MULTIPLIER, VIEWS, PrivacyPlan, View

__all__ = ["account", "calibrate", "in_words", "persons", "persons_line", "table"]

_LARGEST_TARGET = 1e9
_PRECISION = 1e-5
"""Relative precision of a calibrated noise multiplier; it errs towards more noise."""


def account(plan: PrivacyPlan, rounds: int) -> dict[str, Any]:
    """The JSON document of `safegnn account`. Infinite values are the text "inf", which JSON has no number for.

    `epsilon` and `epsilon_per_round` are an outsider's; `views` has all three after the last round, null where the
    accountant says nothing about one. For a server it is the worst case of a client that takes part in every round.
    Both count `sums`, what is released besides.
    """
    kind = ACCOUNTANTS[plan.accountant]
    document = {
        "sampler": plan.sampler,
        "clients": plan.clients,
        "cohort": plan.cohort,
        "noise_multiplier": plan.noise_multiplier,
        "noise": plan.noise,
        "honest_clients": plan.honest,
        "rounds": rounds,
        "delta": plan.delta,
        "adjacency": plan.adjacency,
        "accountant": plan.accountant,
        "conversion": kind.conversion,
        "epsilon_per_round": _number(plan.epsilon(1)),
        "epsilon": _number(plan.epsilon(rounds)),
        "views": {view: _number(plan.epsilon(rounds, view)) for view in VIEWS},
        "sums": [
            {
                "name": noisy.name,
                "noise_multiplier": noisy.noise_multiplier,
                "released": "with every round" if noisy.of_cohort else f"{noisy.releases(rounds):,} times",
            }
            for noisy in plan.sums
        ],
    }
    fault = getattr(kind, "fault", None)
    return document if fault is None else {**document, "warning": fault}


def persons(plan: PrivacyPlan, memberships: int | None, epsilon: Callable[[PrivacyPlan, View], float | None]) -> Any:
    """What is stated of a person beside a client; None where every person is in one client, and no more than that.

    Under add/remove it is more: a client whose data are others is one that goes and one that comes.

    Args:
        plan: for a client.
        memberships: clients that a person is in at most; None: nobody says less than all.
        epsilon: of a plan, to a view.

    Returns:
        `memberships`, and `epsilon` by view, all None where none is proven. It is no client's epsilon times k: what the
        noise hides is k times as far.
    """
    if memberships == 1 and plan.sampler != "poisson":
        return None
    views: dict[str, float | str | None] = dict.fromkeys(VIEWS)
    if memberships is not None and plan.accountant != "paper" and plan.honest is None:  # (13) is about one client
        try:
            views = {view: _number(epsilon(plan.of_persons(memberships), view)) for view in VIEWS}
        except ConfigError:  # beyond the accountant's reach
            views = dict.fromkeys(VIEWS)
    return {"memberships": plan.clients if memberships is None else memberships, "epsilon": views}


def persons_line(stated: Mapping[str, Any], delta: float) -> str:
    """The same in one line. Args: stated: what `persons` returned."""
    epsilon, most = stated["epsilon"], stated["memberships"]
    if epsilon["outsider"] is None:
        return f"a person in several clients: no epsilon stated; up to {most:,} memberships (clients.max_memberships)"
    outsider, client, server = (f"{float(epsilon[view]):.4g}" for view in VIEWS)
    clients = f"{most:,} client{'s' if most > 1 else ''}"
    return (
        f"a person in up to {clients}, all of whose data there may be others: epsilon {outsider} at delta {delta:g}; "
        f"to another client {client}; to a server at most {server}"
    )


def table(plan: PrivacyPlan, rounds: int) -> list[tuple[int, dict[str, float | None]]]:
    """Epsilon by view after 1, 2, 5, 10, ... rounds up to the last."""
    steps = [c * 10**k for k in range(len(str(rounds))) for c in (1, 2, 5)]
    return [
        (done, {view: plan.epsilon(done, view) for view in VIEWS})
        for done in [*(step for step in steps if step < rounds), rounds]
    ]


_RELEASED = {
    "covered": "the released models and metrics",
    "exact": "the released models",
    "none": "the released models",
}
_METRICS = {
    "covered": "noise is in them, and this epsilon covers them",
    "exact": "exact, and covered by no epsilon; in a simulation only (evaluation.exact_beside_noise)",
    "none": "none were released (evaluation.where = nowhere)",
}


def in_words(privacy: Mapping[str, Any]) -> list[str]:
    """What a run may claim, in sentences: the claim, what else it counts, its metrics, and why training ended early.

    Args:
        privacy: as `orchestrator.reports.run.privacy_report` gives it.
    """
    whose = "simulated, of a run on shares; privacy" if privacy["simulated"] else "privacy"
    said = [
        f"{whose} of a client's whole data: epsilon {privacy['epsilon']:.4g} at delta {privacy['delta']:g} "
        f"({privacy['adjacency']}, accountant {privacy['accountant']}) to whoever sees "
        f"{_RELEASED[privacy['metrics']]}; to "
        f"another client {privacy['views']['client']:.4g}; to a server, which knows the cohorts, at most "
        f"{privacy['views']['server']:.4g}"
    ]
    if (honest := privacy["honest_clients"]) is not None:
        said.append(
            f"the clients add the noise: this counts on {honest} in every round who answer, add theirs and tell nobody"
        )
    if privacy["person"] is not None:
        said.append(persons_line(privacy["person"], privacy["delta"]))
    for noisy in privacy["sums"]:
        said.append(
            f"it counts the sum '{noisy['name']}' over all clients, released {noisy['released']} "
            f"time{'s' if noisy['released'] != 1 else ''} with noise multiplier {noisy['noise_multiplier']:g}"
        )
    said.append(f"the metrics: {_METRICS[privacy['metrics']]}")
    if privacy["stopped"]:
        said.append(f"stopped early: {privacy['stopped']}")
    return said


def calibrate(plan: PrivacyPlan, rounds: int, target: float) -> PrivacyPlan:
    """The plan with the smallest noise multiplier, to five digits, that keeps an outsider's epsilon at the target.

    Raises:
        ConfigError: no noise is enough.
    """
    if not 0 < target <= _LARGEST_TARGET:
        raise ConfigError(f"target epsilon {target:g}: expected a number above 0 and up to {_LARGEST_TARGET:g}")

    def excess(log_multiplier: float) -> float:
        epsilon = replace(plan, noise_multiplier=math.exp(log_multiplier)).epsilon(rounds)
        assert epsilon is not None  # every accountant speaks about outsiders
        return math.log(max(epsilon, 1e-300) / target)

    low, high = -1.0, 0.0
    while excess(high) > 0.0:
        low, high = high, high + 1.0
        if high > math.log(LARGEST_MULTIPLIER):
            raise ConfigError(
                f"target epsilon {target:g}: not reached in {rounds} rounds at delta {plan.delta:g} by any noise "
                f"multiplier up to {LARGEST_MULTIPLIER:g}"
            )
    while excess(low) <= 0.0:
        low, high = low - 1.0, low
        if low < math.log(LEAST_MULTIPLIER):
            raise ConfigError(f"target epsilon {target:g}: any noise multiplier from {LEAST_MULTIPLIER:g} on keeps it")
    root = brentq(excess, low, high, xtol=_PRECISION)
    while excess(math.log(multiplier := _round_up(math.exp(root), 6))) > 0.0:
        root += _PRECISION
    return replace(plan, noise_multiplier=multiplier)


def _round_up(value: float, digits: int) -> float:
    """To so many significant digits, never down."""
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return math.ceil(value * scale) / scale


def _number(value: float | None) -> float | str | None:
    return "inf" if value == math.inf else value
