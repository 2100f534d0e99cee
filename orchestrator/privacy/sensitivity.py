"""How far one client can move the aggregate sum_i s_i u_i: its L2 sensitivity, over all inputs in their public ranges.

Formal guarantee: for any two cohorts that differ in one client, and any update norms and scores that the clients'
encoders accept, the released vectors before noise differ by at most `l2_sensitivity` in Euclidean norm. It holds for
the integers that the servers compute, not only for real numbers: the error of every factor is added. The proofs, with
the numbers of the equations below, are in docs/privacy.md; tests/privacy/test_sensitivity.py searches for violations.

    mode              rule    sampler  neighbours   bound / C in exact arithmetic
    worst_case        any     any      either       2 `total`, 2 for weights that sum to one (SaFeGNN, lemma 3)
    bounded_weights   fedavg  fixed    replace-one  2/q
    bounded_weights   fedavg  poisson  add/remove   1/m
    bounded_weights   f2gnn   fixed    replace-one  `replacement_bound`
    bounded_weights   f2gnn   poisson  add/remove   `FixedDenominator.largest_weight` (mpc_programs)
    bounded_weights   softmax fixed    replace-one  `softmax_bound`
    bounded_weights   softmax poisson  add/remove   e^(W/2) / m

A rule declares its bounds in `BOUNDS`; tests/privacy/test_declared_bounds.py attacks the declarations of all rules. One
without any has noise for weights that sum to one, and no guarantee. q is the size of a cohort, m the expected one, C
the clip norm. An ulp is 2^-32, the unit of every scalar on shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NoReturn

import numpy as np

from mpc_programs.arithmetic import EXP_MAX
from mpc_programs.rules import RULES, RoundParameters, own_exponential_error_ulp
from mpc_programs.verification import KAPPA
from orchestrator.errors import ConfigError
from orchestrator.mpc.fixed_point import SCALAR_BITS, VectorFormat, clip_error

__all__ = [
    "BOUNDS",
    "WeightBounds",
    "bounds_of",
    "dropout_bound",
    "fixed_weight",
    "l2_sensitivity",
    "largest_weight",
    "replacement_bound",
    "softmax_bound",
    "weights_error",
]

_ULP = 2.0**-SCALAR_BITS


def l2_sensitivity(
    parameters: RoundParameters,
    clip_norm: float,
    vectors: VectorFormat,
    mode: Literal["worst_case", "bounded_weights"],
    sampler: Literal["fixed", "poisson"],
    largest_cohort: int | None = None,
    least_cohort: int | None = None,
) -> float:
    """Absolute L2 sensitivity of one round's aggregate, errors of the arithmetic on shares included.

    Args:
        parameters: the round's public side; those of a Poisson cohort with bounded weights say what size is expected.
        clip_norm: C.
        vectors: the format of the vectors; no update's norm reaches `vectors.limit`.
        mode: whether the weights' public ranges are used.
        sampler: "fixed" cohorts have replace-one neighbours, "poisson" ones add/remove.
        largest_cohort: the most clients that a cohort can have; None for `parameters.cohort`.
        least_cohort: the fewest that can be left of a fixed cohort when clients drop out, of which the replaced client
            may be one; None for `parameters.cohort`, of which nobody may.

    Raises:
        ConfigError: the rule has no bound with these settings, naming the one at fault.
    """
    q, limit, others = parameters.cohort, vectors.limit, 1.0
    if parameters.bound is not None:  # of others some may lie: theirs are up to so much longer (docs/privacy.md, (12))
        limit, others = max(limit, KAPPA * clip_norm), KAPPA
    cut = 2.0**-vectors.weight_bits if vectors.weight_bits < SCALAR_BITS else 0.0
    if mode == "bounded_weights" and (sampler == "poisson") != (parameters.expected is not None):
        raise ValueError("Expected fixed denominators exactly for Poisson cohorts with bounded weights.")
    least = q if least_cohort is None or sampler == "poisson" else max(1, least_cohort)
    if mode == "worst_case" or (sampler == "fixed" and (bounds_of(parameters).coupled or least < q)):
        # A rule that declares nothing has the noise of weights that sum to one, and nothing is claimed for it.
        total = BOUNDS[parameters.rule].total if parameters.rule in BOUNDS else 1.0
        exact = 2.0 * total if mode == "worst_case" else bounds_of(parameters).replaced(parameters, least)
        if parameters.rule not in BOUNDS or BOUNDS[parameters.rule].coupled or least < q:
            exact *= others
        # Every weight depends on every client, so in both worlds all q factors have errors of their own.
        # docs/privacy.md, (8): the weights' errors meet clipped updates, those of clip factors and products any.
        most = largest_cohort or q
        errors = others * clip_norm * 2 * weights_error(parameters, most)
        return clip_norm * exact + errors + limit * 2 * (clip_error(most, total) + most * cut)
    # Here a client's factor depends on that client alone, so the others' errors cancel (docs/privacy.md, (9)).
    largest, error = bounds_of(parameters).own(parameters)
    one = clip_norm * (largest + error) + limit * (clip_error(1, largest) + cut)
    return one if sampler == "poisson" else 2 * one


def _unknown(parameters: RoundParameters, *_: int) -> NoReturn:
    raise ConfigError(f"privacy.sensitivity = bounded_weights: no bound is known for method.name {parameters.rule}")


@dataclass(frozen=True)
class WeightBounds:
    """What is proven of a rule's weights; `BOUNDS` has those of each rule that has any.

    `worst_case` needs `total` alone; what is left out of the rest makes `bounded_weights` a ConfigError.

    Attributes:
        total: the most that the sizes of a round's weights sum to, whoever takes part; without
            `RoundParameters.expected`.
        coupled: whether a client's weight depends on what others of a cohort of fixed size say.
        replaced: bound on ||sum gamma_i u_i - sum gamma'_i u'_i|| / C, where one client is replaced in a cohort of
            which at least so many clients are left; given the round's public side and that number.
        own: the largest weight, and its error on shares, where weights each depend on their own client alone: with
            `RoundParameters.expected`, and of rules that are not coupled. Raises ConfigError, naming the setting at
            fault.
    """

    total: float
    coupled: bool = True
    replaced: Callable[[RoundParameters, int], float] = _unknown
    own: Callable[[RoundParameters], tuple[float, float]] = _unknown


def bounds_of(parameters: RoundParameters) -> WeightBounds:
    """Those of the round's rule. Raises ConfigError where nothing is proven of it."""
    return BOUNDS[parameters.rule] if parameters.rule in BOUNDS else _unknown(parameters)


@lru_cache(maxsize=64)
def dropout_bound(parameters: RoundParameters, least: int) -> float:
    """`replacement_bound` over all sizes from `least` to q that a cohort may be left with, divided by C.

    The replaced client may be among those that drop out before or after it is replaced; then one of the aggregates is
    that of one client fewer (docs/privacy.md, (7a)). Both worlds lack the same other clients.
    """
    sizes = [replace(parameters, cohort=size) for size in range(least, parameters.cohort + 1)]
    removed = [replacement_bound(size, removed=True) for size in sizes[1:]]
    return max([replacement_bound(sizes[0]), *removed])


def fixed_weight(parameters: RoundParameters) -> tuple[float, float]:
    """F2GNN's largest weight, and its error on shares, where its denominators are fixed.

    Raises:
        ConfigError: naming the setting, where an exponent is out of the arithmetic's range.
    """
    if parameters.fairness_max > EXP_MAX:
        raise ConfigError(
            f"method.score_max = {parameters.fairness_max:g}: expected at most {EXP_MAX:g} with Poisson sampling and "
            "privacy.sensitivity = bounded_weights, whose weights have a fixed denominator"
        )
    largest = parameters.fixed_denominator.exponents[1]
    if largest > EXP_MAX:
        raise ConfigError(
            f"method.tau = {parameters.tau:g} is too small for a fixed denominator: the largest weight would be "
            f"e^{largest:.3g} times the typical one; expected at most e^{EXP_MAX:g}"
        )
    return parameters.fixed_denominator.largest_weight, parameters.fixed_denominator.error_ulp * _ULP


def largest_weight(parameters: RoundParameters) -> float:
    """The largest gamma_i that scores in their ranges can give; attained (docs/privacy.md, (2)).

    One client has the highest scores, all others the lowest: by Jensen's inequality nothing is worse.
    """
    q, lam, tau, width = parameters.cohort, parameters.lam, parameters.tau, parameters.fairness_max
    balance, fairness = _inner(q, 1.0), _inner(q, width)
    gap = lam * (balance - _inner_rest(q, 1.0)) + math.exp(fairness) - math.exp(_inner_rest(q, width))
    return 1.0 / (1.0 + (q - 1) * math.exp(-gap / tau))


def replacement_bound(parameters: RoundParameters, removed: bool = False) -> float:
    """Bound on ||sum gamma_i u_i - sum gamma'_i u'_i|| / C, where one client's scores and update are replaced.

    F2GNN's weights, gamma = softmax((lam softmax(B) + exp(softmax(l))) / tau), all other clients alike. With g the
    `largest_weight` and p, p' the other clients' weights scaled to sum to one, docs/privacy.md, (1) to (7), shows

        2 g + (1 - g) D,    D >= ||p - p'||_1,

    where the first term is attained and D is of second order: it is the replaced client's pull on the other clients
    through the two inner softmaxes. Never above 2.

    Args:
        removed: whether the client may also be taken away instead, which pulls a little harder: its exponentials fall
            to 0 and not only to 1 (docs/privacy.md, (7a)).
    """
    q, lam, tau, width = parameters.cohort, parameters.lam, parameters.tau, parameters.fairness_max
    if q == 1:
        return 2.0
    g = largest_weight(parameters)
    if q == 2:
        return 2.0 * g
    # The fairness changes last. By then the client may be gone from the balance's softmax, where the others' weights,
    # now of q - 1 clients, differ more.
    rest = _inner(q - 1 if removed else q, 1.0)
    spread_balance = lam / tau * (rest - rest * math.exp(-1.0))
    spread_fairness = (math.exp(_inner(q, width)) - math.exp(_inner(q, width) * math.exp(-width))) / tau
    drift = _drift(q, 1.0, lambda c: lam / tau * c, spread_fairness, removed)
    drift += _drift(q, width, lambda c: np.exp(c) / tau, spread_balance, removed)
    return 2.0 * g + (1.0 - g) * min(2.0, drift)


def softmax_bound(parameters: RoundParameters, least: int) -> float:
    """Bound on ||sum gamma_i u_i - sum gamma'_i u'_i|| / C where one client of a softmax over [0, W] is replaced.

    Replacing client 1 changes the others' weights by a common factor alone: p_i = gamma_i / (1 - gamma_1) is the same
    before and after. With v = sum_{i > 1} p_i u_i, of norm at most C, the difference is

        gamma_1 u_1 - gamma'_1 u'_1 + (gamma'_1 - gamma_1) v,

    of norm at most gamma_1 + gamma'_1 + |gamma'_1 - gamma_1| = 2 max(gamma_1, gamma'_1) times C, which is at most 2 g
    with g = 1 / (1 + (q-1) e^-W), the largest weight that scores can give; attained. Where the client drops out
    instead, in either world, its weight there is 0 and the same bound holds. g falls with q.

    Args:
        least: the fewest clients of which the sum may be.
    """
    return 2.0 * _inner(least, parameters.fairness_max)


def softmax_own(parameters: RoundParameters) -> tuple[float, float]:
    """The largest weight of `softmax` with a fixed denominator, e^(W/2) / m, and its error on shares.

    Raises:
        ConfigError: naming the setting, where the exponent is out of the arithmetic's range.
    """
    assert parameters.expected is not None
    if parameters.fairness_max > 2.0 * EXP_MAX:
        raise ConfigError(
            f"the score's range is {parameters.fairness_max:g} (method.sharpness, method.temperature): expected at "
            f"most {2 * EXP_MAX:g} with Poisson sampling and privacy.sensitivity = bounded_weights, whose weights have "
            "a fixed denominator"
        )
    return math.exp(0.5 * parameters.fairness_max) / parameters.expected, own_exponential_error_ulp(parameters) * _ULP


def weights_error(parameters: RoundParameters, cohort: int | None = None) -> float:
    """Bound on the sum of |error| of all weights of a model on shares, by the rule's own `Rule.error_ulp`.

    Args:
        cohort: q; None for `parameters.cohort`.
    """
    parameters = replace(parameters, cohort=parameters.cohort if cohort is None else cohort)
    return RULES[parameters.rule].error_ulp(parameters) * _ULP


BOUNDS = {
    "f2gnn": WeightBounds(1.0, True, dropout_bound, fixed_weight),
    "fedavg": WeightBounds(1.0, False, lambda p, least: 2.0 / least, lambda p: (1.0 / (p.expected or p.cohort), _ULP)),
    "softmax": WeightBounds(1.0, True, softmax_bound, softmax_own),
}
"""By rule. For one that is missing no epsilon is stated."""


def _inner(q: int, width: float) -> float:
    """Largest weight of a softmax of q scores in [0, width]."""
    return 1.0 / (1.0 + (q - 1) * math.exp(-width))


def _inner_rest(q: int, width: float) -> float:
    """What remains for each of the others then."""
    return math.exp(-width) * _inner(q, width)


_Score = Callable[[np.ndarray], np.ndarray]
"""log psi: what an inner weight c adds to the combined score, lam c / tau or e^c / tau."""

_CELLS = 2048


def _drift(q: int, width: float, score: _Score, spread: float, removed: bool) -> float:
    """Bound on ||p - p'||_1 when one client's score changes within an inner softmax over [0, width], q >= 3.

    Two bounds, the smaller one counts: by the oscillation of the change of the scores, docs/privacy.md, (5), good
    where scores are much alike, and by the mass that can change, (6), good where few clients hold it. Each is the
    supremum of a function of one variable, bounded on cells between whose ends every part of it is monotone.

    Args:
        score: see `_Score`; psi = exp(score) must have non-negative derivatives of all orders.
        spread: largest difference of two clients in the part of the combined score that does not change.
        removed: whether the client's exponential e^score may fall to 0, and not only to 1.
    """
    n, fallen = q - 2, -math.inf if removed else 0.0
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

        change = (
            score(share(high, fallen))
            - score(least(high, fallen))
            - score(share(low, width))
            + score(least(low, width))
        )
        by_oscillation = 2.0 * math.tanh(float(change.max()) / 4.0)

        # S = x + n while x grows to its end, then x = e^width and S grows to (q - 1) e^width.
        t = _cells(float(np.logaddexp(width, math.log(n))), math.log(q - 1) + width, ())
        part = np.concatenate([1.0 / (1.0 + n * np.exp(-s)), np.exp(width - t)])  # x / S
        log_sum = np.concatenate([np.logaddexp(s, math.log(n)), t])
        after, before = part / (1.0 + np.exp(fallen - log_sum)), part / (1.0 + np.exp(width - log_sum))
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
