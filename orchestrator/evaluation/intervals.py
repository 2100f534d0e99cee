"""How far a difference of two shares may lie from the one that was seen."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

__all__ = ["difference_interval", "size_interval", "widened"]


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


def widened(
    hits: np.ndarray, totals: np.ndarray, ends: tuple[np.ndarray, np.ndarray], stddev: np.ndarray, error: float
) -> tuple[np.ndarray, np.ndarray]:
    """The interval `ends` of p1 - p0 where hits and misses have independent Gaussian noise too, to first order.

    Args:
        hits, totals: as they are known, with noise; shape (2, ...).
        stddev: of the noise on hits, and on misses; shape (2,).
        error: see `difference_interval`.
    """
    shares = hits / totals
    variance = (((1 - shares) * stddev[0]) ** 2 + (shares * stddev[1]) ** 2) / totals**2
    noise = NormalDist().inv_cdf(1 - error / 2) * np.sqrt(variance.sum(axis=0))
    difference = shares[1] - shares[0]
    low, high = difference - np.hypot(difference - ends[0], noise), difference + np.hypot(ends[1] - difference, noise)
    return np.maximum(low, -1.0), np.minimum(high, 1.0)
