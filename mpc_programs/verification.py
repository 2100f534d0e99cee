"""What the servers check of an update that its client may have made up, in figures: rows, threshold, and kappa.

`ROWS` random rows of {-1, 0, 1} (1/4, 1/2, 1/4) are multiplied with the update D, integers in steps; ||R D||^2 is
ROWS / 2 times ||D||^2 in the mean. docs/protocol.md, "Clients that lie", has the theorem and its proof:

* an update with ||D|| <= B is refused with probability below 2^-40 + 2^(7.1 - 64) B;
* one with ||D|| > KAPPA B, modulo 2^64 and whatever else it is, is accepted with probability below 2^-42.
"""

from __future__ import annotations

import math

__all__ = [
    "ABOVE",
    "BELOW",
    "KAPPA",
    "LARGEST_BOUND",
    "LARGEST_LENGTH",
    "LEAST_BOUND",
    "LIE_PASSES",
    "PRODUCT_ROWS",
    "ROWS",
    "largest_sum",
    "shift",
]

ROWS = 128
PRODUCT_ROWS = 64
"""Of these, those by which the product with the client's mask is checked: a wrong one passes each with at most 1/2."""

ABOVE, BELOW = 1.5, 1.78
"""||R D|| is above ABOVE sqrt(ROWS / 2) ||D|| with probability below 2^-40, and below that over BELOW with 2^-42."""

LEAST_BOUND = 2**13
"""Of B, in steps: beside it rounding to 2^`shift` is small."""

LARGEST_BOUND = 2**34
"""Of B: honest updates of it are refused with probability below 2^-22."""

LARGEST_LENGTH = 2**24
"""Of d: a row times an update whose coordinates are below 25 B is then below 2^63, and wraps nowhere."""

_FINEST = 8
_LEAST_SHIFT = 5
"""Squares of numbers of 64 - 5 bits, ROWS of them, stay below 2^127."""


def shift(bound: float) -> int:
    """Bits that are cut from every element of R D before it is squared. Args: bound: B in steps."""
    return max(_LEAST_SHIFT, math.floor(math.log2(bound)) - _FINEST)


def largest_sum(bound: float) -> int:
    """The largest sum of squares that is accepted: that of ABOVE sqrt(ROWS / 2) B, and one unit a row for rounding."""
    rows = ABOVE * math.sqrt(ROWS / 2) * math.ldexp(bound, -shift(bound))
    return math.ceil((rows + math.sqrt(ROWS)) ** 2)


LIE_PASSES = 2.0**-42 + 2.0**-64
"""Bound on the probability that an update longer than KAPPA B, or with a wrong product, is accepted."""

KAPPA = 2.7
"""BELOW (ABOVE sqrt(ROWS/2) + 2 sqrt(ROWS) 2^-8) / sqrt(ROWS/2) = 2.69, rounded up."""
