"""The aggregation rules: from the clients' secret scores to the secret factors s_i of w_new = w - sum_i s_i Delta_i.

A rule names the scores that it takes, with their public ranges, computes weights, and says what fixed-point arithmetic
may put them off by. Weights are ones that sum to one, or, where
the round's parameters say how many clients are expected, ones that each depend on their own client alone. Clipping is
common to these rules and multiplies the weights. A personal rule has a row of weights s_ij for every client i, which
gets w - sum_j s_ij Delta_j for itself, unclipped. Adding a rule means one coroutine and one entry in `RULES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from mpc_programs.arithmetic import clip_factors, exp, softmax, softmax_error_ulp
from mpc_programs.fixed_denominator import FixedDenominator
from mpc_programs.lockstep import Protocol, gather
from mpc_programs.similarity import Similarity

__all__ = [
    "RULES",
    "Range",
    "RoundParameters",
    "Rule",
    "factors",
    "own_exponential_error_ulp",
    "score_names",
    "score_widths",
    "weights_and_clip",
]


@dataclass(frozen=True)
class RoundParameters:
    """What is public about a round's arithmetic; both servers must hold the same.

    Attributes:
        rule: key of `RULES`.
        cohort: q, the number of clients in the round.
        lam, tau: lambda and tau of F2GNN's final score.
        fairness_max: W, public cap of the fairness score of `f2gnn`, and of the score of `softmax`.
        ratio_max: public cap of ||Delta||_2 / C; None where updates are not clipped.
        expected: m, the size of a cohort that is expected, where the weights' denominators are fixed at it; None where
            weights sum to one over whoever takes part.
        embedding: length of FED-PUB's functional embeddings.
        similarity: tau of FED-PUB's softmax; twice it is at most `arithmetic.CLAMP`.
        bound: where clients are not trusted, C: they shorten their updates to it themselves, and the servers check that
            (`verification`). None where clients are trusted.
    """

    rule: str
    cohort: int
    lam: float = 0.5
    tau: float = 4.0
    fairness_max: float = 2.0
    ratio_max: float | None = None
    expected: int | None = None
    embedding: int = 0
    similarity: float = 3.0
    bound: float | None = None

    @property
    def personal(self) -> bool:
        return RULES[self.rule].personal

    @property
    def models(self) -> int:
        """How many weighted sums of the updates a round computes: one, or under a personal rule one for each client."""
        return self.cohort if self.personal else 1

    @property
    def fixed_denominator(self) -> FixedDenominator:
        """F2GNN's, for the expected size of a cohort."""
        if self.expected is None:
            raise ValueError("these weights sum to one over the cohort; their denominators are not fixed")
        return FixedDenominator(self.expected, self.lam, self.tau, self.fairness_max)

    @property
    def gain(self) -> float:
        """How much the final score magnifies errors of the inner weights, at least 1."""
        return max(1.0, (self.lam + math.e) / self.tau)

    @property
    def similarities(self) -> Similarity:
        """FED-PUB's."""
        return Similarity(self.cohort, self.embedding, self.similarity)


class Range(NamedTuple):
    """Public range of a score, a number or `size` coordinates, whose Euclidean norm is then at most `high` as well."""

    low: float
    high: float
    size: int = 1


@dataclass(frozen=True)
class Rule:
    """Score ranges by name, and the coroutine that turns the scores into weights.

    How far one client can move what a rule computes is in `orchestrator.privacy.sensitivity`.

    Attributes:
        ranges: of the scores that the rule takes.
        weights: from a vector for each score to that of the weights. Scores of size k are k q numbers: the first
            coordinate of all q clients, then the second, and so on.
        error_ulp: bound on the sum of |error| of one model's weights on shares, in units of 2^-32, the scalars' last
            place, against float64 for scores in their ranges.
        personal: whether every client has weights of its own: q times q of them, those of client 0 first.
    """

    ranges: Callable[[RoundParameters], dict[str, Range]]
    weights: Callable[[Any, RoundParameters, Mapping[str, Any]], Protocol]
    error_ulp: Callable[[RoundParameters], float]
    personal: bool = False


async def _f2gnn(ops: Any, parameters: RoundParameters, scores: Mapping[str, Any]) -> Any:
    """gamma = softmax((lam softmax(B) + exp(softmax(l))) / tau) (SaFeGNN, Algorithm 1, lines 11-15).

    The two inner softmaxes run in lock-step. Where a cohort's size is random, see `fixed_denominator`.
    """
    if parameters.expected is not None:
        return await parameters.fixed_denominator.weights(ops, scores["balance"], scores["fairness"])
    lam, tau = parameters.lam, parameters.tau
    g_balance, g_fair = await gather(
        softmax(ops, scores["balance"], 0.0, 1.0),
        softmax(ops, scores["fairness"], 0.0, parameters.fairness_max),
    )
    g_fair = await exp(ops, g_fair, 0.0, 1.0)
    score = ops.combine([(g_balance, lam / tau), (g_fair, 1.0 / tau)])
    return await softmax(ops, score, 1.0 / tau, (lam + math.e) / tau)


def _f2gnn_error_ulp(parameters: RoundParameters) -> float:
    """Of nested softmaxes, or of q weights that each depend on their own client alone."""
    if parameters.expected is not None:
        return parameters.cohort * parameters.fixed_denominator.error_ulp
    return softmax_error_ulp(parameters.cohort, parameters.gain)


async def _softmax(ops: Any, parameters: RoundParameters, scores: Mapping[str, Any]) -> Any:
    """gamma_i = e^s_i / sum_k e^s_k for scores s in [0, W]: weights in proportion to a secret number of each client.

    Where a cohort's size is random, e^(s_i - W/2) / m, m the expected size: a client in the middle of the range weighs
    1/m, whoever else takes part.
    """
    if parameters.expected is None:
        return await softmax(ops, scores["score"], 0.0, parameters.fairness_max)
    half = 0.5 * parameters.fairness_max
    weight = await exp(ops, scores["score"] - half, -half, half)
    return ops.combine([(weight, 1.0 / parameters.expected)])


def _softmax_error_ulp(parameters: RoundParameters) -> float:
    """Of one softmax; or of q exponentials on [-W/2, W/2], by `exp`, each divided by m and rounded once more."""
    if parameters.expected is None:
        return softmax_error_ulp(parameters.cohort)
    return parameters.cohort * own_exponential_error_ulp(parameters)


def own_exponential_error_ulp(parameters: RoundParameters) -> float:
    """Bound on the error of one client's weight under `softmax` with a fixed denominator, in ulp."""
    squarings = max(0, math.ceil(math.log2(parameters.fairness_max / 2.5)))
    return 13.0 * 2.0**squarings * math.exp(0.5 * parameters.fairness_max) / (parameters.expected or 1) + 2.0


async def _fedavg(ops: Any, parameters: RoundParameters, scores: Mapping[str, Any]) -> Any:
    """The plain mean of the cohort, as in F2GNN's and FED-PUB's baselines: sizes of clients stay with the clients."""
    return ops.constants([1.0 / (parameters.expected or parameters.cohort)] * parameters.cohort)


async def _fedpub(ops: Any, parameters: RoundParameters, scores: Mapping[str, Any]) -> Any:
    """A softmax over the similarities of the clients' functional embeddings, see `similarity`."""
    return await parameters.similarities.weights(ops, scores["embedding"])


RULES: dict[str, Rule] = {
    "f2gnn": Rule(
        lambda p: {"balance": Range(0.0, 1.0), "fairness": Range(0.0, p.fairness_max)}, _f2gnn, _f2gnn_error_ulp
    ),
    "fedavg": Rule(lambda p: {}, _fedavg, lambda p: p.cohort),
    "softmax": Rule(lambda p: {"score": Range(0.0, p.fairness_max)}, _softmax, _softmax_error_ulp),
    "fedpub": Rule(
        lambda p: {"embedding": Range(-1.0, 1.0, p.embedding)},
        _fedpub,
        lambda p: p.similarities.error_ulp,
        personal=True,
    ),
}


def score_names(parameters: RoundParameters) -> list[str]:
    """Which score each scalar that a client shares belongs to, in order; a vector's name stands once a coordinate.

    The norm ratio ||Delta|| / C comes last where updates are clipped.
    """
    ranges = RULES[parameters.rule].ranges(parameters)
    names = [name for name, limits in ranges.items() for _ in range(limits.size)]
    return names if parameters.ratio_max is None else [*names, "ratio"]


def score_widths(parameters: RoundParameters) -> tuple[int, ...]:
    """With how many bits each of `score_names` is shared where clients are not trusted, the first one 2^-32.

    Whatever the bits are is a score in [0, W], for W a power of two from 2^-31 on. Raises ValueError for another range.
    """
    widths = []
    for limits in RULES[parameters.rule].ranges(parameters).values():
        fraction, exponent = math.frexp(limits.high)
        if limits.low != 0.0 or fraction != 0.5 or exponent < -30:
            raise ValueError(f"a score in [{limits.low:g}, {limits.high:g}] is no number of so many bits")
        widths += [31 + exponent] * limits.size
    return tuple(widths)


async def weights_and_clip(
    ops: Any, parameters: RoundParameters, scores: Mapping[str, Any], ratio: Any | None
) -> tuple[Any, Any | None]:
    """The weights gamma_i and the clip factors min(1, C / ||Delta_i||), vectors of length q, in lock-step.

    Args:
        ops: the backend.
        parameters: the public side; of a personal rule, whose weights are q times q, without a clip.
        scores: one vector for each score of the rule, as `Rule.weights` takes them.
        ratio: ||Delta_i||_2 / C, or None exactly where `parameters.ratio_max` is None; then there is no clip.
    """
    rule = RULES[parameters.rule]
    if parameters.ratio_max is None:
        return await rule.weights(ops, parameters, scores), None
    return await gather(rule.weights(ops, parameters, scores), clip_factors(ops, ratio, parameters.ratio_max))


async def factors(ops: Any, parameters: RoundParameters, scores: Mapping[str, Any], ratio: Any | None) -> Any:
    """The factors s_i = gamma_i * min(1, C / ||Delta_i||), `parameters.models` rows of length q; arguments as above."""
    weights, clip = await weights_and_clip(ops, parameters, scores, ratio)
    if clip is None:
        return weights
    [product] = await ops.multiply((weights, clip))
    return product
