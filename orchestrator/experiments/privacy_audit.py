"""An audit of what is stated: canaries go through live servers, and whoever sees the releases must not find them.

A round of the plan's own sigma, rule and formats is played many times, each from the same model. A canary is a client
whose update is the worst that docs/privacy.md's sensitivity section has: beyond the clip bound, along a coordinate of
its own, with the highest scores; its neighbour sends the opposite (replace-one) or is absent (add/remove). The attack
looks at that coordinate alone, with a threshold that is fixed before anything is measured. It is carried out for
whoever knows neither server's noise, and for each server, which subtracts its own.

Where no client's weight depends on another's, all of a round's clients are canaries, each a trial at the full
sensitivity: what one moves is on its own coordinate only, and every coordinate has noise of its own. That elements'
and rounds' noises are independent is part of what the accountant is told; the shape of the noise is not used.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpc_programs.rules import RULES
from orchestrator.agreement.round_plan import RoundPlan
from orchestrator.config import EngineConfig
from orchestrator.coordinator.engine import Engine
from orchestrator.coordinator.factory import create_sum_engine
from orchestrator.errors import ConfigError, RunError
from orchestrator.methods.base import LocalUpdate
from orchestrator.privacy.lower_bound import Rates, composed_epsilon
from orchestrator.privacy.plan import PrivacyPlan, View
from orchestrator.privacy.sensitivity import bounds_of
from orchestrator.wire.message import Place

__all__ = [
    "OBSERVERS",
    "Finding",
    "audit",
    "audited_plan",
    "canaries_of",
    "engine_of",
    "middle",
    "play",
    "released",
    "update",
]

OBSERVERS: dict[str, tuple[View, int | None]] = {
    "outsider": ("outsider", None),
    "another client": ("client", None),
    "server 0": ("server", 0),
    "server 1": ("server", 1),
}
"""By name, the view that is stated for it, and whose noise it subtracts."""

_MOST = 64
"""Clients of a round that are canaries at a time."""

_BEYOND = 8.0
"""A canary's norm, in clip bounds."""

_CURIOUS = [sys.executable, "-m", "orchestrator.experiments.curious_server"]


@dataclass(frozen=True)
class Finding:
    """What is stated to an observer, and what the attack proves; epsilons at the plan's delta.

    Attributes:
        rates: of the attack.
        multiplier: of the noise that the observer cannot subtract, as stated.
        round: epsilon that is stated of a round in which the canary takes part; round_found: and at least is.
        run: epsilon that is stated of the run, for the server if the client is in every round; run_found: at least is.
    """

    rates: Rates
    multiplier: float
    round: float
    round_found: float
    run: float
    run_found: float

    @property
    def refuted(self) -> bool:
        """Whether more was found than is stated."""
        return self.rates.mu * self.multiplier > 1.0 or self.round_found > self.round or self.run_found > self.run

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no number for infinity: null."""
        stated = [None if value == math.inf else value for value in (self.round, self.run)]
        rates = self.rates
        return {
            "hits": [rates.hits, rates.with_canary],
            "alarms": [rates.alarms, rates.without],
            "noise_multiplier": {"stated": self.multiplier, "at_most": 1.0 / rates.mu if rates.mu else None},
            "epsilon_of_a_round": {"stated": stated[0], "at_least": self.round_found},
            "epsilon": {"stated": stated[1], "at_least": self.run_found},
            "refuted": self.refuted,
        }


def audited_plan(plan: RoundPlan) -> RoundPlan:
    """The plan's round in a cohort that is small, which the sensitivity and so the noise follow.

    Sigma is relative to the sensitivity, so that epsilon of a round is the same. At these sizes one client can move the
    sum by all that the sensitivity allows: alone where weights are taken to be anything, one of two where a weight
    depends on others, and else by its own weight in any cohort. The clip bound is lowered to where the noise fits, as
    all is in proportion to it. Neither the count of norms nor other sums are released: this is what somebody sees who
    does not look at them.

    Raises:
        ConfigError: no epsilon is stated.
    """
    if plan.parameters is None or plan.privacy is None or plan.clip_norm is None:
        if plan.parameters is None:
            reason: str | None = "the method aggregates nothing (method.name)"
        else:
            reason = plan.unproven if plan.noise.multiplier > 0 else "privacy.noise_multiplier is 0"
        raise ConfigError(f"there is no epsilon to audit: {reason}")
    poisson = plan.sampling == "poisson"
    usual = 1 if plan.noise.sensitivity == "worst_case" else 2 if _coupled(plan) else _MOST
    cohort = min(usual, plan.rule.cohort)
    honest = None if plan.noise.honest is None else min(plan.noise.honest, cohort)
    clip_norm = min(plan.clip_norm, plan.vectors.limit / (_MOST * max(1.0, plan.noise.multiplier)))
    return replace(
        plan,
        parameters=replace(
            plan.rule,
            cohort=cohort,
            expected=None if plan.rule.expected is None else cohort,
            ratio_max=None if plan.rule.bound else plan.vectors.limit / clip_norm,
            bound=clip_norm if plan.rule.bound else None,
        ),
        # The same canaries in every round are no clients that take turns: what is attacked is a round's fresh noise.
        sampling="distinct" if plan.sampling == "cyclic" else plan.sampling,
        bands=(),
        clip_norm=clip_norm,
        noise=replace(plan.noise, count_multiplier=None, budget=None, honest=honest),
        min_cohort=0 if poisson else cohort,
        adaptive=False,
        accumulates=False,
        sums=(),
    )


def play(engine: Engine, trials: int, confidence: float = 0.95) -> Rates:
    """Rounds with canaries, at least so many of them, and what the attack makes of what is released.

    Args:
        engine: of `audited_plan`'s plan; not started. It is closed.

    Raises:
        RunError: an upload was left out.
    """
    plan = engine.plan
    cohort, poisson = plan.rule.cohort, plan.sampling == "poisson"
    canaries = canaries_of(plan)
    rounds = -(-trials // canaries)
    present = np.arange(rounds * canaries) % 2 == 0
    np.random.default_rng().shuffle(present)
    present = present.reshape(rounds, canaries)
    seen = np.empty(present.shape)
    with engine:
        engine.start(np.zeros(canaries))
        for number, bits in enumerate(present, start=1):
            # Others than canaries take part in any case.
            clients = [k for k in range(cohort) if k >= canaries or bits[k] or not poisson]
            signs = {k: (1.0 if bits[k] else -1.0) for k in clients if k < canaries}
            updates = [(k, update(plan, canaries, k if k in signs else None, signs.get(k, 0.0))) for k in clients]
            seen[number - 1] = released(engine, number, updates)
    said = seen > middle(plan)
    return Rates(
        int(said[present].sum()), int(present.sum()), int(said[~present].sum()), int((~present).sum()), confidence
    )


def update(plan: RoundPlan, length: int, column: int | None, sign: float) -> LocalUpdate:
    """A canary's on its column, or nothing, of somebody who weighs least."""
    assert plan.clip_norm is not None  # there is one wherever there is noise
    delta, ranges = np.zeros(length), RULES[plan.rule.rule].ranges(plan.rule)
    if column is None:
        return LocalUpdate(delta, 0.0, {name: limits.low for name, limits in ranges.items()})
    norm = min(_BEYOND * plan.clip_norm, (plan.clip_norm + plan.vectors.limit) / 2)
    delta[column] = sign * norm
    return LocalUpdate(delta, norm, {name: limits.high for name, limits in ranges.items()})


def middle(plan: RoundPlan) -> float:
    """Half way between what a round has on a canary's column with it and without."""
    assert plan.clip_norm is not None
    weight = 1.0 if plan.rule.expected is None else bounds_of(plan.rule).own(plan.rule)[0]
    return plan.clip_norm * weight / 2 if plan.sampling == "poisson" else 0.0


def released(engine: Engine, number: int, updates: Sequence[tuple[int, LocalUpdate]]) -> np.ndarray:
    """The sum of a round as it is released. Args: updates: by client. Raises RunError where one is left out."""
    clients = [client for client, _ in updates]
    engine.prepare(number, len(clients))
    for slot, (client, own) in enumerate(updates):
        engine.submit(number, slot, client, engine.encoder(own, Place(number, slot, client)))
    result = engine.aggregate(number, clients)
    if result.left_out or result.parameters is None:
        reason = next(iter(result.left_out.values()), "nothing was released")
        raise RunError(f"audit, round {number}: a canary was left out: {reason}")
    return -result.parameters  # updates are taken from the model


def audit(
    plan: RoundPlan,
    chosen: EngineConfig,
    rounds: int,
    trials: int,
    confidence: float = 0.95,
    commands: Mapping[str, list[str]] | None = None,
) -> dict[str, Finding]:
    """What is found for each of `OBSERVERS`.

    Args:
        plan: of the run, whose engine is the embedded one.
        chosen: how the engine is chosen.
        rounds: of the run.
        trials: of each attack.
        confidence: of each one's rates.
        commands: how to start a role's process, for tests that need one to be at fault.

    Raises:
        ConfigError: no epsilon is stated, or the servers cannot be started as is set.
        ProtocolError: a server failed.
    """
    audited = audited_plan(plan)
    rates: dict[int | None, Rates] = {}
    for _, subtracts in OBSERVERS.values():
        if subtracts not in rates:
            rates[subtracts] = play(engine_of(audited, chosen, subtracts, commands), trials, confidence)
    assert plan.privacy is not None and audited.privacy is not None
    one = replace(audited.privacy, amplified=False)  # a round in which the canary is known to take part
    return {
        name: _finding(plan.privacy, one, rates[subtracts], rounds, view)
        for name, (view, subtracts) in OBSERVERS.items()
    }


def engine_of(
    audited: RoundPlan, chosen: EngineConfig, subtracts: int | None, commands: Mapping[str, list[str]] | None
) -> Engine:
    """Two live servers, whose releases lack the noise of that which the observer is."""
    curious = {} if subtracts is None else {f"server {subtracts}": _CURIOUS}
    return create_sum_engine(audited, chosen, {**(commands or {}), **curious})


def _finding(run: PrivacyPlan, one: PrivacyPlan, rates: Rates, rounds: int, view: View) -> Finding:
    """Args: run: of the run; one: of a round as it was audited, in which the canary takes part."""
    stated = [one.epsilon(1, view), run.epsilon(rounds, view)]
    assert stated[0] is not None and stated[1] is not None  # the paper's accountant is of no run
    chance = 1.0 if view == "server" or run.sampler == "cyclic" else run.cohort / run.clients
    return Finding(
        rates,
        one.release(view).noise_multiplier,
        stated[0],
        composed_epsilon(rates, 1, 1.0, run.delta),
        stated[1],
        composed_epsilon(rates, run.turns(rounds), chance, run.delta),
    )


def canaries_of(plan: RoundPlan) -> int:
    """Canaries of a round: one, where others' weights depend on it, which is then the worst, else all clients."""
    return 1 if _coupled(plan) else plan.rule.cohort


def _coupled(plan: RoundPlan) -> bool:
    """Whether a client's weight depends on others, so that one canary a round is the worst."""
    return plan.rule.expected is None and (bounds_of(plan.rule).coupled or plan.sampling == "poisson")
