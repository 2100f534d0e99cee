"""The scalar arithmetic of an aggregation round (SaFeGNN, Algorithm 1, lines 11-15 and 22), written once.

The same text runs on NumPy float64 (`Float64`, the plaintext reference), on the embedded engine's shares, and at
compile time of the MP-SPDZ programs. It needs nothing but the standard library, and no value is opened here: what a
backend opens to compute a product or a comparison is that backend's matter and always masked.

A backend `ops` offers vectors of numbers with ``x + y``, ``x - y``, ``x + c`` (public number c, or one an element),
``x[i:j]``, ``len``; vectors of secret bits; and

    ops.constants(values)       public numbers as a vector
    ops.take(x, indices)        the vector (x[i] for i in indices), indices public
    ops.sums(x, groups)         the sums of `groups` equal parts; element k belongs to part k mod groups
    ops.concat(parts)           one vector from several
    ops.combine(terms, k)       k + the sum of c * x over terms (x, c), c and k public; rounded once
    ops.weigh(bits, constants)  bits[k] * constants[k] as numbers; exact
    ops.negate(bits)            1 - bit
    await ops.multiply(*pairs)  the elementwise product of each pair (x, y), a list; all in one round
    await ops.inner(x, y, k)    the sums of x[i] y[i] over k equal parts, formed as in `sums`; rounded once
    await ops.less(x, y)        bits [x < y]; |x - y| < 2^31
    await ops.all(bits, groups) AND over `groups` equal parts, formed as in `sums`
    await ops.numbers(bits)     bits as 0/1 in the form that `weigh` and `multiply` take

The backend at MP-SPDZ's compile time has no `inner`: the rule that needs it has no program there.

Notation: q clients; f fractional bits (32 on shares); ulp = 2^-f. "Rounds" are exchanges between the two servers.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

__all__ = [
    "CLAMP",
    "EXP_MAX",
    "WIDE",
    "clip_factors",
    "divide",
    "exp",
    "maximum",
    "softmax",
    "softmax_error_ulp",
    "thresholds",
]

CLAMP = 24.0
"""Scores that lie further below the maximum count as this far below: e^-24 < 2^-34, under half an ulp."""

EXP_MAX = 4.0
"""Largest exponent of `exp`."""

NARROW = 4.0
"""A softmax whose inputs' public range is at most this wide needs no maximum: e^(+-2) is harmless in fixed point."""

ALL_PAIRS = 32
"""Up to this many values a maximum compares all pairs at once; more are grouped into two levels."""

WIDE = 16.0
"""A division by an interval that spans more than this factor ends with a step of Newton's iteration."""

Vector = Any


async def exp(ops: Any, x: Vector, low: float, high: float) -> Vector:
    """e^x for every x in the public interval [low, high], high <= EXP_MAX.

    x is scaled by 2^-m until it lies within 5/4 of the interval's middle, a polynomial of degree 12 is evaluated in
    blocks of four coefficients (Paterson and Stockmeyer, 1973), and m squarings undo the scaling. On an interval of
    at most 1 degree 8 suffices, which is one block and one round less.

    Rounds: 4 + m, where m is the least with (high - low) / 2^m <= 5/2; 3 where high - low <= 1.
    Relative error in float64: below 5e-11 * 2^m. Error on shares: below 2^m * 12 ulp * max(1, e^high).
    """
    squarings = max(0, math.ceil(math.log2(max(high - low, 1e-9) / 2.5)))
    shrink = 0.5**squarings
    middle, reach = 0.5 * (low + high) * shrink, 0.5 * (high - low) * shrink
    c = _exp_coefficients(middle, reach)
    y = ops.combine([(x, shrink)], -middle) if squarings else x - middle
    [y2] = await ops.multiply((y, y))
    y3, y4 = await ops.multiply((y2, y), (y2, y2))
    result = ops.combine([(y, c[-4]), (y2, c[-3]), (y3, c[-2]), (y4, c[-1])], c[-5])
    for k in range(len(c) - 9, -1, -4):
        block = ops.combine([(y, c[k + 1]), (y2, c[k + 2]), (y3, c[k + 3])], c[k])
        [product] = await ops.multiply((y4, result))
        result = block + product
    for _ in range(squarings):
        [result] = await ops.multiply((result, result))
    return result


@lru_cache
def _exp_coefficients(middle: float, reach: float) -> tuple[float, ...]:
    """Of a polynomial near e^(middle + y) for |y| <= reach <= 5/4: of degree 8 for reach <= 1/2, else of degree 12.

    It is Taylor's of degree 20, from whose terms of higher degree, the highest first, the smallest polynomial on the
    interval with the same leading term is taken away: Chebyshev's (Lanczos, 1938). Relative error: below 5e-11.
    """
    c = [math.exp(middle) / math.factorial(k) for k in range(21)]
    for k in range(20, 8 if reach <= 0.5 else 12, -1):
        lead, shrink = c.pop(), 1.0
        for m in range(1, k // 2 + 1):
            shrink *= -0.25 * reach**2
            c[k - 2 * m] -= lead * shrink * k / (k - m) * math.comb(k - m, m)
    return tuple(c)


async def divide(ops: Any, x: Vector, by: Vector, low: float, high: float) -> Vector:
    """x / by for divisors in [low, high], 0 < low, high/low <= 2^11; element i of x by element i mod len(by).

    With t the divisor d mapped from [low, high] to [1, -1] and t0 the image of 0, let E_j = T(t) / T(t0) for the
    Chebyshev polynomial T of degree 2^j: the smallest possible on the interval among those with E = 1 at d = 0.
    Then (1 - E_j) / d is a polynomial that tends to 1/d, and T_2n = 2 T_n^2 - 1 gives, with c = T(t0),

        T' = 2 T^2 - 1,   c' = 2 c^2 - 1,   x' = x (1 + T / c) * 2 c^2 / c',   from T = t, c = t0, x / m,

    m the middle of the interval: Goldschmidt's iteration (Markstein, 2004), accelerated. Each step is one round.
    On a wide interval rounding is amplified before E gets small; there 1/d is found to half the accuracy, one step of
    Newton's iteration y (2 - d y), which corrects itself, supplies the rest, and x is multiplied last.

    Rounds: k, the least with |E_k| < 2^-33, for high/low <= 16; else k + 3, the least with |E_k| < 2^-17.
    Error on shares: below 8 (k + 2) max(1, |x|) max(1, 1/low) ulp; on a wide interval without the factor k + 2.
    """
    wide = high > WIDE * low
    target = 2.0**-17 if wide else 2.0**-33
    middle = 0.5 * (low + high)
    half = max(0.5 * (high - low), middle * target)  # on a narrower interval no step is needed
    # The middle is taken away first: what is multiplied, and cut on shares, is then at most 1 however large `by` is.
    t, c = ops.combine([(by - middle, -1.0 / half)]), middle / half
    quotient = ops.constants([1.0 / middle] * len(by)) if wide else ops.combine([(x, 1.0 / middle)])

    def spread(factor: Vector, to: Vector) -> Vector:
        return factor if len(factor) == len(to) else ops.take(factor, [i % len(factor) for i in range(len(to))])

    while 1.0 / c > target:
        gain = 2 * c * c / (2 * c * c - 1)
        factor = spread(ops.combine([(t, gain / c)], gain), quotient)
        c = 2 * c * c - 1
        if 1.0 / c > target:
            quotient, t = await ops.multiply((quotient, factor), (t + t, t))
            t = t - 1.0
        else:
            [quotient] = await ops.multiply((quotient, factor))
    if not wide:
        return quotient
    [ratio] = await ops.multiply((by, quotient))
    [inverse] = await ops.multiply((quotient, 2.0 - ratio))
    [quotient] = await ops.multiply((x, spread(inverse, x)))
    return quotient


async def maximum(ops: Any, x: Vector) -> Vector:
    """The largest element, as a vector of length one; exact.

    All pairs of a group are compared at once; the winner is the element that no later one exceeds and that exceeds
    all earlier ones, so exactly one element wins also among equal ones.

    Rounds for q <= 32: one comparison + ceil(log2(q-1)) + 2; above, twice that with groups of ceil(sqrt(q)).
    """
    while len(x) > 1:
        q = len(x)
        size = q if q <= ALL_PAIRS else math.ceil(math.sqrt(q))
        groups = math.ceil(q / size)
        x = ops.take(x, [min(k, q - 1) for k in range(size * groups)])
        pairs = [(i, j) for i in range(size) for j in range(i + 1, size)]
        left = [i * groups + g for i, _ in pairs for g in range(groups)]
        right = [j * groups + g for _, j in pairs for g in range(groups)]
        exceeded = await ops.less(ops.take(x, left), ops.take(x, right))
        both = ops.concat([exceeded, ops.negate(exceeded)])
        where = {pair: k * groups for k, pair in enumerate(pairs)}
        wins = [
            g + (where[j, i] if j < i else len(left) + where[i, j])
            for turn in range(1, size)
            for i in range(size)
            for j in [(i + turn) % size]
            for g in range(groups)
        ]
        winner = await ops.numbers(await ops.all(ops.take(both, wins), size * groups))
        [chosen] = await ops.multiply((winner, x))
        x = ops.sums(chosen, groups)
    return x


async def softmax(ops: Any, x: Vector, low: float, high: float) -> Vector:
    """softmax(x) for x in the public interval [low, high].

    A narrow interval needs no maximum: its middle is subtracted instead, which no one needs to compute. On a wide
    one the maximum is subtracted and what lies more than CLAMP below counts as CLAMP below.

    Rounds: those of exp and divide; on a wide interval also those of maximum, one comparison and 2.
    Error on shares: below (64 + q) ulp per weight: a few ulp of each exponential, and one more in each term of the sum.
    """
    q = len(x)
    if high - low <= NARROW:
        half = 0.5 * (high - low)
        e = await exp(ops, x - 0.5 * (low + high), -half, half)
        return await divide(ops, e, ops.sums(e, 1), q * math.exp(-half), q * math.exp(half))
    distance = x - ops.take(await maximum(ops, x), [0] * q)
    far = await ops.numbers(await ops.less(distance, -CLAMP))
    [excess] = await ops.multiply((far, distance + CLAMP))
    distance = distance - excess
    e = await exp(ops, distance, -CLAMP, 0.0)
    return await divide(ops, e, ops.sums(e, 1), 1.0, float(q))


def softmax_error_ulp(cohort: int, gain: float = 1.0) -> float:
    """Bound on the sum of |error| of q = `cohort` weights on shares that a softmax of scores makes, in ulp.

    64 ulp each, and common errors: the softmax's sum moves all weights by a common factor, q ulp in total; errors of
    the scores, where these are made of softmaxes too, below `gain` (64 + q) ulp, move the weights by no more than that
    in total (docs/privacy.md, (8)).

    Args:
        gain: `RoundParameters.gain`.
    """
    return 64 * cohort + cohort + gain * (64 + cohort)


def thresholds(largest: float) -> int:
    """How many powers of two `clip_factors` compares with, for ratios up to `largest`."""
    return max(1, math.ceil(math.log2(max(largest, 1.0 + 1e-9))))


async def clip_factors(ops: Any, ratio: Vector, largest: float) -> Vector:
    """min(1, 1/ratio) for ratio = ||Delta||_2 / C in [0, largest] (SaFeGNN, Algorithm 1, line 22).

    One batch of comparisons with 1, 2, 4, ... decides min(1, .) and finds the power of two that brings the ratio
    into (1/2, 1]; its reciprocal follows on that fixed interval. A ratio of at most 1 is replaced by 1.

    Rounds: one comparison + 2 + those of divide. Error on shares: below 24 ulp (the factor itself is at most 1).
    """
    q, steps = len(ratio), thresholds(largest)
    powers = [2.0**j for j in range(steps) for _ in range(q)]
    exceeds = await ops.numbers(ops.negate(await ops.less(ops.concat([ratio] * steps), powers)))
    # With b_j = [ratio >= 2^j]: the sum of (b_j - b_{j+1}) 2^-(j+1) is 2^-(j*+1) at the highest j* that holds, else 0.
    weights = [0.5 / power - (1.0 / power if power > 1.0 else 0.0) for power in powers]
    power = ops.sums(ops.weigh(exceeds, weights), q)
    small = ops.weigh(exceeds[:q], [-1.0] * q) + 1.0
    [normalised] = await ops.multiply((ratio, power))
    return await divide(ops, power + small, normalised + small, 0.5, 1.0)
