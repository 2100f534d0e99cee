"""What an attack that was carried out proves about a release: lower bounds on its epsilon, with confidence.

An attack says "canary" or not. How often it did in the world with the canary, and in the one without, bounds its two
rates (Clopper and Pearson, 1934), whatever the noise looks like, if trials are independent. From the rates follow

* mu: no Gaussian mechanism of a multiplier above 1/mu gives them (Dong, Roth and Su, 2022, arXiv:1905.02383, equation
  6), nor does anything that it dominates;
* epsilon of many releases, each answered by one such bit: the bits are post-processing, and their number that say
  "canary" is binomial (Kairouz, Oh and Viswanath, 2015, arXiv:1311.0776, theorem 2.1, for what rates say of epsilon).

Where many canaries are in one run, each or its neighbour by a coin of its own, and an attack guesses the coins of some,
how many guesses are right bounds epsilon of the run without a word about independence (`Guesses`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, binom, norm

__all__ = ["Guesses", "Rates", "composed_epsilon"]

_THRESHOLDS = 10**5
"""Of a number of bits, among which the best one is looked for."""

_STEP, _MOST_EPSILON = 0.05, 50.0


@dataclass(frozen=True)
class Rates:
    """How often an attack said "canary".

    Attributes:
        hits, with_canary: in so many of so many trials with it.
        alarms, without: and of those without it.
        confidence: with which both bounds hold together.
    """

    hits: int
    with_canary: int
    alarms: int
    without: int
    confidence: float = 0.95

    @property
    def power(self) -> float:
        """A lower bound on the probability of a hit."""
        if self.hits == 0:
            return 0.0
        return float(beta.ppf((1.0 - self.confidence) / 2, self.hits, self.with_canary - self.hits + 1))

    @property
    def alarm(self) -> float:
        """An upper bound on the probability of an alarm."""
        if self.alarms == self.without:
            return 1.0
        return float(beta.isf((1.0 - self.confidence) / 2, self.alarms + 1, self.without - self.alarms))

    @property
    def mu(self) -> float:
        """How far a Gaussian mechanism with these rates moves at least, in standard deviations of its noise."""
        return max(0.0, float(norm.ppf(self.power) - norm.ppf(self.alarm)))


def composed_epsilon(rates: Rates, rounds: int, rate: float, delta: float) -> float:
    """A lower bound on epsilon of so many independent rounds, in each of which the canary takes part with a chance.

    (alarm, power) can be had from the attack's true rates by answering at random at times (Blackwell), and so can what
    sampling makes of both: it is as if the rates were these.

    Args:
        rate: the probability of taking part; without it a round is as in the world without the canary.
    """
    one, other = rate * rates.power + (1.0 - rate) * rates.alarm, rates.alarm
    if one <= other:
        return 0.0
    counts, found = np.unique(np.linspace(0, rounds, min(rounds, _THRESHOLDS) + 1, dtype=np.int64)), 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        # "at least so many say canary", and with the worlds exchanged "fewer than that"
        for likely, unlikely in (
            (binom.sf(counts - 1, rounds, one), binom.logsf(counts - 1, rounds, other)),
            (binom.cdf(counts, rounds, other), binom.logcdf(counts, rounds, one)),
        ):
            bounds = np.log(likely - delta) - unlikely
            found = max(found, float(bounds[np.isfinite(bounds)].max(initial=0.0)))
    return found


@dataclass(frozen=True)
class Guesses:
    """What an attack on one run got right.

    Attributes:
        canaries: m, each of them in the run or replaced by its neighbour with probability 1/2, independently.
        made: r, of how many it guessed; fixed beforehand.
        right: v, of these.
        confidence: of the bound.
    """

    canaries: int
    made: int
    right: int
    confidence: float = 0.95

    def chance(self, epsilon: float, delta: float) -> float:
        """Bound on the probability of so many right guesses or more, of any run that is (epsilon, delta)-private.

        With W binomial, r trials at e^epsilon / (1 + e^epsilon), P(W >= v) + 2 m delta max_i P(v > W >= v - i) / i
        (Steinke, Nasr and Jagielski, NeurIPS 2023, arXiv:2305.08846, appendix D).
        """
        likely = 1.0 / (1.0 + np.exp(-epsilon))
        below = np.cumsum(binom.pmf(np.arange(self.right - 1, -1, -1), self.made, likely))
        worst = float((below / np.arange(1, self.right + 1)).max(initial=0.0))
        return min(1.0, float(binom.sf(self.right - 1, self.made, likely)) + 2 * self.canaries * delta * worst)

    def epsilon(self, delta: float) -> float:
        """The lower bound: below it no epsilon explains the guesses, but with the remaining probability."""

        def explains(epsilon: float) -> bool:
            return self.chance(epsilon, delta) > 1.0 - self.confidence

        # upwards from nothing, as the second term need not grow
        low = 0.0
        while low < _MOST_EPSILON and not explains(low + _STEP):
            low += _STEP
        high = low + _STEP
        while not explains(low) and high - low > _STEP / 64:
            low, high = (low, (low + high) / 2) if explains((low + high) / 2) else ((low + high) / 2, high)
        return 0.0 if explains(low) else low
