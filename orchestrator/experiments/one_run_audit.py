"""An audit in one run: every canary is in it or is not by a coin of its own, and an attack guesses some of the coins.

Clients take turns in one sequence of rounds through live servers, each as often as a client of the settings' run takes
part, with the settings' noise and its bands, that is with all that one round's noise has to do with another's. How many
guesses are right bounds epsilon of the whole sequence, whether or not noises are independent (`Guesses`). The attack
knows who takes part and takes bands back, so that it sees each canary as docs/privacy.md, (11) has it. Three numbers of
guesses follow from what is stated before anything is measured; for each the bound holds with a third of the doubt.

Columns on which nobody sends anything show the noise itself. Its size, and whether what the bands leave of it is fresh,
are compared with what is stated, which a privacy statement with too little correlation of noises would not show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import norm

from orchestrator.agreement.round_plan import RoundPlan
from orchestrator.config import EngineConfig
from orchestrator.coordinator.engine import Engine
from orchestrator.experiments.privacy_audit import (
    audited_plan,
    canaries_of,
    engine_of,
    middle,
    released,
    update,
)
from orchestrator.privacy.bands import BAND_BITS
from orchestrator.privacy.lower_bound import Guesses
from orchestrator.privacy.plan import View

__all__ = ["OBSERVERS", "Heard", "Sequence", "audit_one_run", "sequence_of"]

OBSERVERS: dict[str, tuple[View, int | None]] = {
    "outsider": ("outsider", None),
    "server 0": ("server", 0),
    "server 1": ("server", 1),
}
"""By name, the view that is stated for it, and whose noise it subtracts. All of them know who takes part."""

_BLANK = 128
"""Columns on which nobody sends anything."""

_LAGS = 8
"""Rounds, at least, whose noises are compared."""

_CHANCE = 1e-6
"""With which noise as stated is said to be other noise."""


@dataclass(frozen=True)
class Sequence:
    """The rounds that are played.

    Attributes:
        plan: of each.
        turns: of every client.
        groups: of clients, that take turns.
        canaries: in a group.
    """

    plan: RoundPlan
    turns: int
    groups: int
    canaries: int

    @property
    def rounds(self) -> int:
        return self.turns * self.groups

    @property
    def bands(self) -> np.ndarray:
        """1, c_1, ..., c_{b-1}."""
        return np.array([1.0, *(math.ldexp(c, -BAND_BITS) for c in self.plan.bands)])

    def columns(self, group: int) -> np.ndarray:
        """Of a group's canaries: no two groups share any whose rounds noise has to do with each other."""
        return group % len(self.bands) * self.canaries + np.arange(self.canaries)

    @property
    def length(self) -> int:
        return len(self.bands) * self.canaries + _BLANK


@dataclass(frozen=True)
class Heard:
    """What is found for an observer.

    Attributes:
        epsilon: that is stated of all rounds together, for whoever knows who takes part.
        found: that at least holds.
        guesses: from which it follows.
        stddev: of the fresh noise, over what is stated.
        correlation: of fresh noises that should have none, the one that is furthest from it.
        surprise: how many standard deviations stddev or a correlation is off at most; `expected` bounds it.
    """

    epsilon: float
    found: float
    guesses: Guesses
    stddev: float
    correlation: float
    surprise: float
    expected: float

    @property
    def refuted(self) -> bool:
        """Whether more was found than is stated, or other noise than is stated."""
        return self.found > self.epsilon or self.surprise > self.expected

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no number for infinity: null."""
        return {
            "epsilon": {"stated": None if self.epsilon == math.inf else self.epsilon, "at_least": self.found},
            "canaries": self.guesses.canaries,
            "guesses": [self.guesses.right, self.guesses.made],
            "noise": {
                "stddev": self.stddev,
                "correlation": self.correlation,
                "as_stated": self.surprise <= self.expected,
            },
            "refuted": self.refuted,
        }


def sequence_of(plan: RoundPlan, rounds: int, canaries: int) -> Sequence:
    """At least so many canaries, each as often as a client takes part in so many rounds of the plan.

    Raises:
        ConfigError: no epsilon is stated.
    """
    audited = replace(audited_plan(plan), bands=plan.bands)
    assert plan.privacy is not None
    run, each, bands = plan.privacy, canaries_of(audited), len(plan.bands) + 1
    groups = bands * -(-canaries // (each * bands))
    turns = run.turns(rounds) if run.sampler == "cyclic" else -(-rounds * run.cohort // run.clients)
    return Sequence(audited, turns, groups, each)


def play(engine: Engine, sequence: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """What is released, (rounds, length), and which canaries took part, bool, (groups, canaries). Closes the engine."""
    plan, each = sequence.plan, sequence.canaries
    cohort, poisson = plan.rule.cohort, plan.sampling == "poisson"
    present = np.random.default_rng().random((sequence.groups, each)) < 0.5
    seen = np.empty((sequence.rounds, sequence.length))
    with engine:
        engine.start(np.zeros(sequence.length))
        for number in range(1, sequence.rounds + 1):
            group = (number - 1) % sequence.groups
            bits, columns = present[group], sequence.columns(group)
            updates = [
                (group * cohort + k, update(plan, sequence.length, int(columns[k]), 1.0 if bits[k] else -1.0))
                for k in range(each)
                if bits[k] or not poisson
            ]
            others = [(group * cohort + k, update(plan, sequence.length, None, 0.0)) for k in range(each, cohort)]
            seen[number - 1] = released(engine, number, updates + others)
    return seen, present


def hear(
    sequence: Sequence,
    seen: np.ndarray,
    present: np.ndarray,
    view: View,
    epsilon: float,
    sigma: float,
    delta: float,
    confidence: float,
) -> Heard:
    """What an observer makes of a sequence.

    Args:
        epsilon, sigma: as stated of the sequence, and of a round's noise.
        delta: of epsilon.
    """
    bands, turns = sequence.bands, sequence.turns
    fresh = np.apply_along_axis(lambda column: np.convolve(column, bands)[: len(column)], 0, seen)
    scores = np.empty(present.shape)
    for group in range(sequence.groups):
        columns, score = sequence.columns(group), np.zeros(sequence.canaries)
        for first in range(group, sequence.rounds, sequence.groups):
            rows = fresh[first : first + len(bands), columns]
            kept = bands[: len(rows)]
            score += kept @ rows - middle(sequence.plan) * (kept @ kept)
        scores[group] = score
    surest = np.argsort(-np.abs(scores), axis=None)
    hits = np.cumsum(((scores > 0) == present).flat[surest])
    numbers = _numbers(present.size, math.sqrt(turns) / sigma, delta, confidence)
    each = 1.0 - (1.0 - confidence) / len(numbers)
    tried = [Guesses(present.size, made, int(hits[made - 1]), each) for made in numbers]
    guesses = max(tried, key=lambda one: one.epsilon(delta))
    both = math.sqrt(2.0) if view == "outsider" else 1.0
    stddev, correlation, surprise, expected = _freshness(
        fresh[:, -_BLANK:] / (both * sequence.plan.terms.noise_stddev), max(_LAGS, len(bands))
    )
    return Heard(epsilon, guesses.epsilon(delta), guesses, stddev, correlation, surprise, expected)


def audit_one_run(
    plan: RoundPlan,
    chosen: EngineConfig,
    rounds: int,
    canaries: int,
    confidence: float = 0.95,
    commands: Mapping[str, list[str]] | None = None,
) -> dict[str, Heard]:
    """What is found for each of `OBSERVERS`, in one run for each.

    Args:
        plan: of the settings' run, whose engine is the embedded one.
        chosen: how the engine is chosen.
        rounds: of the settings' run.
        canaries: at least.
        confidence: of each one's bound.
        commands: as in `privacy_audit.audit`.

    Raises:
        ConfigError: no epsilon is stated, or the servers cannot be started as is set.
        ProtocolError: a server failed.
    """
    sequence = sequence_of(plan, rounds, canaries)
    assert plan.privacy is not None
    known, found = replace(plan.privacy, amplified=False, bit_noise_multiplier=None, sums=()), {}
    for name, (view, subtracts) in OBSERVERS.items():
        seen, present = play(engine_of(sequence.plan, chosen, subtracts, commands), sequence)
        release = known.release(view)
        accountant = known.new_accountant().compose(release, sequence.turns)
        epsilon, sigma = known.stated(accountant, sequence.turns), release.noise_multiplier
        found[name] = hear(sequence, seen, present, view, epsilon, sigma, known.delta, confidence)
    return found


def _numbers(canaries: int, mu: float, delta: float, confidence: float) -> list[int]:
    """How many of the surest guesses to judge: what proves most if all is as stated, all, and between.

    Args:
        mu: standard deviations between a canary and its neighbour, as stated.
    """
    best, worth = canaries, -1.0
    for least in np.linspace(0.0, mu / 2 + 3.0, 13):
        sure, wrong = norm.sf(least - mu / 2), norm.sf(least + mu / 2)
        made = max(1, round(canaries * float(sure + wrong)))
        expected = Guesses(canaries, made, math.floor(made * sure / (sure + wrong)), confidence).epsilon(delta)
        if expected > worth:
            best, worth = made, expected
    return sorted({best, math.isqrt(best * canaries), canaries})


def _freshness(noise: np.ndarray, lags: int) -> tuple[float, float, float, float]:
    """Of what should be independent standard normals, shape (rounds, columns): see `Heard`'s last four attributes."""
    count, square = noise.size, float((noise**2).mean())
    off = [(square - 1.0) * math.sqrt(count / 2)]
    pairs = [(noise[lag:], noise[:-lag]) for lag in range(1, min(lags, len(noise) - 1) + 1)]
    pairs.append((noise[:, 1:], noise[:, :-1]))
    related = [float((one * other).mean()) / square if square else 0.0 for one, other in pairs]
    off += [value * math.sqrt(one.size) for value, (one, _) in zip(related, pairs, strict=True)]
    surprise = float(np.abs(off).max())
    return math.sqrt(square), max(related, key=abs), surprise, float(norm.isf(_CHANCE / (2 * len(off))))
