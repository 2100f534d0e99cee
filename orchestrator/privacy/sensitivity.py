"""How far one client can move the aggregate sum_i s_i u_i: its L2 sensitivity, over all inputs in their public ranges.

Formal guarantee: for any two cohorts that differ in one client, and any update norms and scores that the clients'
encoders accept, the released vectors before noise differ by at most `l2_sensitivity` in Euclidean norm. It holds for
the integers that the servers compute, not only for real numbers: the error of every factor is added. The proofs, with
the numbers of the equations below, are in docs/privacy.md; tests/privacy/test_sensitivity.py searches for violations.

    mode              rule    sampler  neighbours   bound / C in exact arithmetic
    worst_case        any     any      either       2, for any weights that sum to at most one (SaFeGNN, lemma 3)
    bounded_weights   fedavg  fixed    replace-one  2/q
    bounded_weights   fedavg  poisson  add/remove   1/m
    bounded_weights   f2gnn   fixed    replace-one  `replacement_bound`
    bounded_weights   f2gnn   poisson  add/remove   `FixedDenominator.largest_weight`

q is the size of a cohort, m the expected one, C the clip norm. An ulp is 2^-32, the unit of every scalar on shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mpc_programs.rules import RoundParameters
from orchestrator.errors import ConfigError
from orchestrator.sharing.fixed_point import SCALAR_BITS, VectorFormat

__all__ = ["FixedDenominator", "l2_sensitivity", "largest_weight", "replacement_bound", "softmax_error"]

_ULP = 2.0**-SCALAR_BITS
_CLIP_ULPS = 25
"""Error of a clip factor, 24 ulp, and of the product with a weight of at most one."""
_EXP_MAX = 4.0
"""Largest exponent of `mpc_programs.arithmetic.exp`."""


def l2_sensitivity(
    parameters: RoundParameters,
    clip_norm: float,
    vectors: VectorFormat,
    mode: Literal["worst_case", "bounded_weights"],
    sampler: Literal["fixed", "poisson"],
    largest_cohort: int | None = None,
) -> float:
    """Absolute L2 sensitivity of one round's aggregate, errors of the arithmetic on shares included.

    Args:
        parameters: the round's public side; `cohort` is the expected size m where cohorts are Poisson samples.
        clip_norm: C.
        vectors: the format of the vectors; no update's norm reaches `vectors.limit`.
        mode: whether the weights' public ranges are used.
        sampler: "fixed" cohorts have replace-one neighbours, "poisson" ones add/remove.
        largest_cohort: the most clients that a cohort can have; None for `parameters.cohort`.

    Raises:
        ConfigError: the rule has no bound with these settings, naming the one at fault.
    """
    q, limit = parameters.cohort, vectors.limit
    cut = 2.0**-vectors.weight_bits if vectors.weight_bits < SCALAR_BITS else 0.0
    coupled = mode == "worst_case" or (parameters.rule == "f2gnn" and sampler == "fixed")
    if coupled:
        exact = 2.0 if mode == "worst_case" else replacement_bound(parameters)
        # Every weight depends on every client, so in both worlds all q factors have errors of their own.
        # docs/privacy.md, (8): in total `softmax_error` for the weights, which meet clipped updates, and for clip
        # factors and products 25 ulp of weights that sum to one, and a rounding for each client.
        most = largest_cohort or q
        weights, factors = softmax_error(parameters, most), _CLIP_ULPS * _ULP + most * (_ULP + cut)
        return clip_norm * (exact + 2 * weights) + limit * 2 * factors
    # Here a client's factor depends on that client alone, so the others' errors cancel (docs/privacy.md, (9)).
    if parameters.rule == "fedavg":
        largest, error = 1.0 / q, _ULP
    elif parameters.rule == "f2gnn":
        rule = FixedDenominator.of(parameters)
        largest, error = rule.largest_weight, rule.error
    else:
        raise ConfigError(f"privacy.sensitivity = bounded_weights: no bound is known for method.name {parameters.rule}")
    one = clip_norm * (largest + error) + limit * (_CLIP_ULPS * _ULP * largest + _ULP + cut)
    return one if sampler == "poisson" else 2 * one


def largest_weight(parameters: RoundParameters) -> float:
    """The largest gamma_i that scores in their ranges can give; attained (docs/privacy.md, (2)).

    One client has the highest scores, all others the lowest: by Jensen's inequality nothing is worse.
    """
    q, lam, tau, width = parameters.cohort, parameters.lam, parameters.tau, parameters.fairness_max
    balance, fairness = _inner(q, 1.0), _inner(q, width)
    gap = lam * (balance - _inner_rest(q, 1.0)) + math.exp(fairness) - math.exp(_inner_rest(q, width))
    return 1.0 / (1.0 + (q - 1) * math.exp(-gap / tau))


def replacement_bound(parameters: RoundParameters) -> float:
    """Bound on ||sum gamma_i u_i - sum gamma'_i u'_i|| / C, where one client's scores and update are replaced.

    F2GNN's weights, gamma = softmax((lam softmax(B) + exp(softmax(l))) / tau), all other clients alike. With g the
    `largest_weight` and p, p' the other clients' weights scaled to sum to one, docs/privacy.md, (1) to (7), shows

        2 g + (1 - g) D,    D >= ||p - p'||_1,

    where the first term is attained and D is of second order: it is the replaced client's pull on the other clients
    through the two inner softmaxes. Never above 2.
    """
    q, lam, tau, width = parameters.cohort, parameters.lam, parameters.tau, parameters.fairness_max
    if q == 1:
        return 2.0
    g = largest_weight(parameters)
    if q == 2:
        return 2.0 * g
    spread_balance = lam / tau * (_inner(q, 1.0) - _inner(q, 1.0) * math.exp(-1.0))
    spread_fairness = (math.exp(_inner(q, width)) - math.exp(_inner(q, width) * math.exp(-width))) / tau
    drift = _drift(q, 1.0, lambda c: lam / tau * c, spread_fairness)
    drift += _drift(q, width, lambda c: np.exp(c) / tau, spread_balance)
    return 2.0 * g + (1.0 - g) * min(2.0, drift)


def softmax_error(parameters: RoundParameters, cohort: int | None = None) -> float:
    """Bound on the sum of |error| of all weights on shares (docs/privacy.md, (8)): 64 ulp each, and common errors.

    The outer softmax's sum moves all weights by a common factor, q ulp in total; errors of the combined scores, below
    gain (64 + q) ulp, move the weights by no more than that in total.

    Args:
        cohort: q; None for `parameters.cohort`.
    """
    q = parameters.cohort if cohort is None else cohort
    if parameters.rule == "fedavg":
        return q * _ULP
    return (64 * q + q + parameters.gain * (64 + q)) * _ULP


@dataclass(frozen=True)
class FixedDenominator:
    """F2GNN's weights for cohorts of random size: each depends on its own client's scores and public constants alone.

    The sums in the denominators of the three softmaxes are replaced by m times a typical summand:

        a_i = e^B_i / (m e_B),   c_i = e^l_i / (m e_l),   w_i = exp((lam a_i + exp(c_i)) / tau - z) / m,

    with e_B and e_l the means of e^B and e^l over their ranges, but at least e/m and e^width/m, so that a_i and c_i
    are at most one as a softmax's weights are, and z = (lam/m + exp(1/m)) / tau, so that a client with average
    exponentials weighs exactly 1/m. Hence a client that is added or removed moves sum_i w_i u_i by at most
    C `largest_weight`, whoever else takes part.

    Attributes:
        expected: m.
        lam, tau: as in the rule.
        fairness_max: upper end of the range of l; at most 4, the largest exponent that `exp` on shares takes.
    """

    expected: int
    lam: float
    tau: float
    fairness_max: float

    @classmethod
    def of(cls, parameters: RoundParameters) -> FixedDenominator:
        """Raises ConfigError, naming the setting, where an exponent is out of the arithmetic's range."""
        rule = cls(parameters.cohort, parameters.lam, parameters.tau, parameters.fairness_max)
        if rule.fairness_max > _EXP_MAX:
            raise ConfigError(
                f"method.score_max = {rule.fairness_max:g}: expected at most {_EXP_MAX:g} with Poisson sampling and "
                "privacy.sensitivity = bounded_weights, whose weights have a fixed denominator"
            )
        if rule.exponents[1] > _EXP_MAX:
            raise ConfigError(
                f"method.tau = {rule.tau:g} is too small for a fixed denominator: the largest weight would be "
                f"e^{rule.exponents[1]:.3g} times the typical one; expected at most e^{_EXP_MAX:g}"
            )
        return rule

    @property
    def balance_mean(self) -> float:
        """e_B."""
        return max(math.e - 1.0, math.e / self.expected)

    @property
    def fairness_mean(self) -> float:
        """e_l."""
        return max(math.expm1(self.fairness_max) / self.fairness_max, math.exp(self.fairness_max) / self.expected)

    @property
    def typical(self) -> float:
        """z, the combined score of a client of weight 1/m."""
        return (self.lam / self.expected + math.exp(1.0 / self.expected)) / self.tau

    @property
    def exponents(self) -> tuple[float, float]:
        """Public range of (lam a_i + exp(c_i)) / tau - z."""
        ends = []
        for balance, fairness in ((0.0, 0.0), (1.0, self.fairness_max)):
            a = math.exp(balance) / (self.expected * self.balance_mean)
            c = math.exp(fairness) / (self.expected * self.fairness_mean)
            ends.append((self.lam * a + math.exp(c)) / self.tau - self.typical)
        return ends[0], ends[1]

    @property
    def largest_weight(self) -> float:
        return math.exp(self.exponents[1]) / self.expected

    @property
    def error(self) -> float:
        """Bound on the error of a weight on shares; generous, see docs/privacy.md, (10)."""
        gain = max(1.0, (self.lam + math.e) / self.tau)
        return (8192 * gain * (self.largest_weight + 1.0 / self.expected) + 4) * _ULP

    def weights(self, balance: np.ndarray, fairness: np.ndarray) -> np.ndarray:
        """w in float64, shape (k,), for the k clients that take part: what the rule on shares must agree with."""
        a = np.exp(balance) / (self.expected * self.balance_mean)
        c = np.exp(fairness) / (self.expected * self.fairness_mean)
        return np.exp((self.lam * a + np.exp(c)) / self.tau - self.typical) / self.expected


def _inner(q: int, width: float) -> float:
    """Largest weight of a softmax of q scores in [0, width]."""
    return 1.0 / (1.0 + (q - 1) * math.exp(-width))


def _inner_rest(q: int, width: float) -> float:
    """What remains for each of the others then."""
    return math.exp(-width) * _inner(q, width)


_Score = Callable[[np.ndarray], np.ndarray]
"""log psi: what an inner weight c adds to the combined score, lam c / tau or e^c / tau."""

_CELLS = 2048


def _drift(q: int, width: float, score: _Score, spread: float) -> float:
    """Bound on ||p - p'||_1 when one client's score changes within an inner softmax over [0, width], q >= 3.

    Two bounds, the smaller one counts: by the oscillation of the change of the scores, docs/privacy.md, (5), good
    where scores are much alike, and by the mass that can change, (6), good where few clients hold it. Each is the
    supremum of a function of one variable, bounded on cells between whose ends every part of it is monotone.

    Args:
        score: see `_Score`; psi = exp(score) must have non-negative derivatives of all orders.
        spread: largest difference of two clients in the part of the combined score that does not change.
    """
    n = q - 2
    with np.errstate(over="ignore", invalid="ignore"):  # where psi overflows, the first bound counts
        # x = e^s is the largest of the other clients' exponentials; all n remaining ones are 1, their least.
        s = _cells(0.0, width, (0.0, math.log(n), width))
        low, high = s[:-1], s[1:]

        def share(s: np.ndarray, replaced: float) -> np.ndarray:
            """x / (x + n + e^replaced)."""
            return 1.0 / (1.0 + n * np.exp(-s) + np.exp(replaced - s))

        def least(s: np.ndarray, replaced: float) -> np.ndarray:
            """1 / (x + n + e^replaced)."""
            return 1.0 / (np.exp(s) + n + math.exp(min(replaced, 700.0)))

        change = score(share(high, 0.0)) - score(least(high, 0.0)) - score(share(low, width)) + score(least(low, width))
        by_oscillation = 2.0 * math.tanh(float(change.max()) / 4.0)

        # S = x + n while x grows to its end, then x = e^width and S grows to (q - 1) e^width.
        t = _cells(float(np.logaddexp(width, math.log(n))), math.log(q - 1) + width, ())
        part = np.concatenate([1.0 / (1.0 + n * np.exp(-s)), np.exp(width - t)])  # x / S
        log_sum = np.concatenate([np.logaddexp(s, math.log(n)), t])
        after, before = part / (1.0 + np.exp(-log_sum)), part / (1.0 + np.exp(width - log_sum))
        mean = 1.0 / (1.0 + np.exp(width - log_sum)) / (q - 1)
        floor = score(mean[:-1])
        growth = np.exp(score(_ends(np.maximum, after)) - floor) - np.exp(score(_ends(np.minimum, before)) - floor)
        excess = float((growth * _ends(np.maximum, 1.0 / part)).max()) * math.exp(spread) / (q - 1)
    return min(by_oscillation, 2.0 * excess / (1.0 + excess)) if excess < math.inf else by_oscillation


def _cells(low: float, high: float, marks: tuple[float, ...]) -> np.ndarray:
    """Increasing points from low to high: even ones, and dense ones around the marks, where something happens."""
    near = [np.linspace(mark - 40.0, mark + 40.0, _CELLS) for mark in (low, high, *marks)]
    points = np.unique(np.concatenate([np.linspace(low, high, _CELLS), *near]))
    return np.concatenate([[low], points[(points > low) & (points < high)], [high]])


def _ends(choose: Callable[[np.ndarray, np.ndarray], np.ndarray], values: np.ndarray) -> np.ndarray:
    """The larger or smaller one of both ends of every cell."""
    return choose(values[:-1], values[1:])
