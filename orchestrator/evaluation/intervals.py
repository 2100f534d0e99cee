"""How far a difference of two shares may lie from the one that was seen."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

__all__ = ["difference_interval", "size_interval"]


def difference_interval(hits: np.ndarray, totals: np.ndarray, error: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    """Newcombe's hybrid score interval of p1 - p0 (Statistics in Medicine 17, 1998, pp. 873-890, method 10).

    It holds the difference that was seen, lies in [-1, 1], and is no point where that is 0 or 1. It takes all nodes
    for independent draws.

    Args:
        hits, totals: how many, and of how many, in group 0 and in group 1; shape (2, ...), totals above 0.
        error: probability with which the interval misses, about.

    Returns:
        Its ends, shape (...).
    """
    z2 = NormalDist().inv_cdf(1 - error / 2) ** 2
    shares = hits / totals
    middle = (hits + z2 / 2) / (totals + z2)  # Wilson's score interval of each share is middle ± half
    half = np.sqrt(z2 * (hits * (1 - shares) + z2 / 4)) / (totals + z2)
    below, above = shares - (middle - half), middle + half - shares
    difference = shares[1] - shares[0]
    low = difference - np.hypot(below[1], above[0])
    high = difference + np.hypot(above[1], below[0])
    return np.maximum(low, -1.0), np.minimum(high, 1.0)


def size_interval(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What |x| can be where x lies from low to high; it begins at 0 where they have 0 between them."""
    return np.maximum(0.0, np.maximum(low, -high)), np.maximum(-low, high)
