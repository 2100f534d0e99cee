"""The scalar arithmetic of an aggregation round (SaFeGNN, Algorithm 1, lines 11-15 and 22), written once.

The same text runs on NumPy float64 (`Float64`, the plaintext reference), on the embedded engine's shares, and at
compile time of the MP-SPDZ programs. It needs nothing but the standard library, and no value is opened here: what a
backend opens to compute a product or a comparison is that backend's matter and always masked.

A backend `ops` offers vectors of numbers with ``x + y``, ``x - y``, ``x + c``, ``x * c`` (public number c), ``x[i:j]``,
``len``; vectors of secret bits; and

    ops.take(x, indices)        the vector (x[i] for i in indices), indices public
    ops.sums(x, groups)         the sums of `groups` equal, consecutive parts
    ops.concat(parts)           one vector from several
    ops.weigh(bits, constants)  bits[k] * constants[k] as numbers; exact
    ops.negate(bits)            1 - bit
    await ops.multiply(x, y)    elementwise product
    await ops.less(x, y)        bits [x < y]; |x - y| < 2^31
    await ops.all(bits, groups) AND over `groups` equal, consecutive parts
    await ops.numbers(bits)     bits as 0/1 in the form that `weigh` and `multiply` take

Notation: q clients; f fractional bits (32 on shares); ulp = 2^-f. "Rounds" are exchanges between the two servers.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["CLAMP", "clip_factors", "exp", "maximum", "reciprocal", "softmax", "thresholds"]

CLAMP = 24.0
"""Scores that lie further below the maximum count as this far below: e^-24 < 2^-34, under half an ulp."""

NARROW = 4.0
"""A softmax whose inputs' public range is at most this wide needs no maximum: e^(+-2) is harmless in fixed point."""

ALL_PAIRS = 32
"""Up to this many values a maximum compares all pairs at once; more are grouped into two levels."""

WIDE = 16.0
"""A reciprocal whose interval spans more than this factor ends with a step of Newton's iteration."""

Vector = Any


async def exp(ops: Any, x: Vector, low: float, high: float) -> Vector:
    """e^x for every x in the public interval [low, high], high <= 4.

    x is scaled by 2^-m until it lies within 1/4 of the interval's middle, a Taylor polynomial of degree 7 is
    evaluated (remainder below 6e-10, relative), and m squarings undo the scaling.

    Rounds: 3 + m, where 2^m >= 2 (high - low). Error on shares: below 2^m * 6 ulp * max(1, e^high).
    """
    squarings = max(0, math.ceil(math.log2(max(high - low, 1e-9) / 0.5)))
    shrink = 0.5**squarings
    middle = 0.5 * (low + high) * shrink
    c = [math.exp(middle) / math.factorial(k) for k in range(8)]
    y = x * shrink - middle
    y2 = await ops.multiply(y, y)
    n = len(x)
    products = await ops.multiply(ops.concat([y2, y2]), ops.concat([y, y2]))
    y3, y4 = products[:n], products[n:]
    upper = await ops.multiply(y4, y * c[5] + y2 * c[6] + y3 * c[7] + c[4])
    result = y * c[1] + y2 * c[2] + y3 * c[3] + upper + c[0]
    for _ in range(squarings):
        result = await ops.multiply(result, result)
    return result


async def reciprocal(ops: Any, x: Vector, low: float, high: float) -> Vector:
    """1/x for every x in the public interval [low, high], 0 < low, high/low <= 2^11.

    Goldschmidt's iteration (Markstein, 2004): with y0 = 2/(low + high) and e = 1 - x*y0, |e| <= (high-low)/(high+low),
    1/x = y0 (1+e)(1+e^2)(1+e^4)...; every factor costs one round because e^2k is squared beside it. Rounding of e is
    amplified by up to A = (low+high)/(2 low), so on a wide interval the product stops at half the accuracy and one
    step of Newton's iteration, y (2 - x*y), which corrects itself, supplies the rest.

    Rounds: with k the least such that ((high-low)/(high+low))^(2^k) < target: k for high/low <= 16 (target 2^-33),
    else k + 2 (target 2^-17). Error on shares: below 2 A (k + 2) max(1, 1/low) ulp, else 4 max(1, 1/low) ulp.
    """
    wide = high > WIDE * low
    target = 2.0**-17 if wide else 2.0**-33
    start = 2.0 / (low + high)
    ratio = (high - low) / (high + low)
    n = len(x)
    e = x * (-start) + 1.0
    y = e * start + start
    power = ratio * ratio
    if power > target:
        e = await ops.multiply(e, e)
        while (power := power * power) > target:
            products = await ops.multiply(ops.concat([y, e]), ops.concat([e, e]))
            y, e = y + products[:n], products[n:]
        y = y + await ops.multiply(y, e)
    if wide:
        y = await ops.multiply(y, 2.0 - await ops.multiply(x, y))
    return y


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
        x = ops.take(x, [min(i, q - 1) for i in range(groups * size)])
        pairs = [(i, j) for i in range(size) for j in range(i + 1, size)]
        left = [g * size + i for g in range(groups) for i, _ in pairs]
        right = [g * size + j for g in range(groups) for _, j in pairs]
        exceeded = await ops.less(ops.take(x, left), ops.take(x, right))
        both = ops.concat([exceeded, ops.negate(exceeded)])
        where = {pair: k for k, pair in enumerate(pairs)}
        wins = [
            g * len(pairs) + (where[j, i] if j < i else len(left) + where[i, j])
            for g in range(groups)
            for i in range(size)
            for j in range(size)
            if i != j
        ]
        winner = await ops.numbers(await ops.all(ops.take(both, wins), groups * size))
        x = ops.sums(await ops.multiply(winner, x), groups)
    return x


async def softmax(ops: Any, x: Vector, low: float, high: float) -> Vector:
    """softmax(x) for x in the public interval [low, high].

    A narrow interval needs no maximum: its middle is subtracted instead, which no one needs to compute. On a wide
    one the maximum is subtracted and what lies more than CLAMP below counts as CLAMP below.

    Error on shares: below (64 + q) ulp per weight: a few ulp of each exponential, and one more in each term of the sum.
    """
    q = len(x)
    if high - low <= NARROW:
        half = 0.5 * (high - low)
        e = await exp(ops, x - 0.5 * (low + high), -half, half)
        low_sum, high_sum = q * math.exp(-half), q * math.exp(half)
    else:
        distance = x - ops.take(await maximum(ops, x), [0] * q)
        far = await ops.numbers(await ops.less(distance, -CLAMP))
        distance = distance - await ops.multiply(far, distance + CLAMP)
        e = await exp(ops, distance, -CLAMP, 0.0)
        low_sum, high_sum = 1.0, float(q)
    inverse = await reciprocal(ops, ops.sums(e, 1), low_sum, high_sum)
    return await ops.multiply(e, ops.take(inverse, [0] * q))


def thresholds(largest: float) -> int:
    """How many powers of two `clip_factors` compares with, for ratios up to `largest`."""
    return max(1, math.ceil(math.log2(max(largest, 1.0 + 1e-9))))


async def clip_factors(ops: Any, ratio: Vector, largest: float) -> Vector:
    """min(1, 1/ratio) for ratio = ||Delta||_2 / C in [0, largest] (SaFeGNN, Algorithm 1, line 22).

    One batch of comparisons with 1, 2, 4, ... decides min(1, .) and finds the power of two that brings the ratio
    into (1/2, 1]; its reciprocal follows on that fixed interval. A ratio of at most 1 is replaced by 1.

    Rounds: one comparison + 1 + 6 + 1. Error on shares: below 6 ulp (absolute; the factor itself is at most 1).
    """
    q, steps = len(ratio), thresholds(largest)
    clients = [i for i in range(q) for _ in range(steps)]
    exceeds = await ops.numbers(
        ops.negate(await ops.less(ops.take(ratio, clients), [2.0**j for _ in range(q) for j in range(steps)]))
    )
    # With b_j = [ratio >= 2^j]: the sum of (b_j - b_{j+1}) 2^-(j+1) is 2^-(j*+1) at the highest j* that holds, else 0.
    constants = [2.0 ** -(j + 1) - (2.0**-j if j else 0.0) for j in range(steps)]
    power = ops.sums(ops.weigh(exceeds, constants * q), q)
    small = ops.weigh(ops.take(exceeds, [i * steps for i in range(q)]), [-1.0] * q) + 1.0
    normalised = await ops.multiply(ratio, power) + small
    inverse = await reciprocal(ops, normalised, 0.5, 1.0)
    return await ops.multiply(inverse, power + small)
