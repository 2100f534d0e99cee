"""Noise that cancels a part of itself in later rounds: banded matrix factorisation, on a server's own share.

A model is a sum over rounds, so that noise drawn afresh in every round adds up. Here the noise of round t is

    y_t = z_t - floor(c_1 y_{t-1} + ... + c_{b-1} y_{t-b+1}),

z_t fresh and exact (`orchestrator.privacy.noise`), the c_j public multiples of 2^-24 in [0, 1): what earlier rounds
added is taken back in parts. With C the lower triangular Toeplitz matrix of b bands 1, c_1, ..., c_{b-1} this is
Y = C^-1 Z, the noise of the factorisation A = (A C^-1) C of the prefix sums A (Choquette-Choo, Ganesh, McKenna,
McMahan, Rush, Thakurta and Xu, NeurIPS 2023, arXiv:2306.08153; Toeplitz: McKenna, arXiv:2405.15913).

Formal guarantee: let a client take part in k rounds, any two of them at least b releases apart, and move a round's sum
by at most Delta. Then all rounds together are one Gaussian mechanism of multiplier s / (sqrt(k) ||c|| Delta) for noise
z of standard deviation s and ||c||^2 = 1 + c_1^2 + ... + c_{b-1}^2 (docs/privacy.md, (11), with the proof for integers,
rounding included). No sampling is counted on, and a server, which can take off its own noise, is left with the other's.

The state is a server's last b - 1 noises: secret, in memory alone. A server that starts anew begins without: less is
cancelled, and no more is learned.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

__all__ = [
    "BAND_BITS",
    "MOST_BANDS",
    "ROUNDING",
    "BandedNoise",
    "column_norm",
    "growth",
    "optimal_bands",
    "prefix_error",
]

BAND_BITS = 24
"""Fractional bits of the c_j: with 31 bits of a noise, and summed over all bands, products stay below 2^63."""

MOST_BANDS = 256
ROUNDING = 2.0**-20
"""What rounding adds to ||c|| Delta at most, as a part of it, where Delta is at least 2^40 steps and b d below 2^40."""

_HALF = 31
_LARGEST = 2**62
_HORIZON = 2**12
_MANY = 2**14
"""Rounds, after which noise that c_j below 1 let decay no longer grows."""


@lru_cache(maxsize=8)
def optimal_bands(rounds: int, bands: int) -> tuple[int, ...]:
    """c_1, ..., c_{b-1} in units of 2^-24 that make `prefix_error` least, of 4,096 rounds at most; none for one band.

    Args:
        rounds: T, of the sums that count.
        bands: b, 1 to 256, at most T.
    """
    if not 1 <= bands <= min(rounds, MOST_BANDS):
        raise ValueError(f"Expected 1 <= bands={bands} <= min(rounds={rounds}, {MOST_BANDS}).")
    if bands == 1:
        return ()
    from scipy.optimize import minimize  # a tenth of a second, which runs without bands need not spend

    horizon = min(rounds, _HORIZON)
    left = horizon - np.arange(horizon)

    def excess(later: np.ndarray) -> tuple[float, np.ndarray]:
        """log of `_prefix_variance`, and its gradient: the derivative of 1/c(x) by c_j is -x^j / c(x)^2."""
        inverse = _inverse(later, horizon)
        prefix, squared = np.cumsum(inverse), np.cumsum(np.convolve(inverse, inverse)[:horizon])
        total, norm = left @ prefix**2, 1.0 + later @ later
        slopes = [-2.0 * (left[j:] * prefix[j:]) @ squared[: horizon - j] for j in range(1, bands)]
        return math.log(total / horizon * norm), np.array(slopes) / total + 2.0 * later / norm

    # The square root of A, from which no band is cut, has the coefficients of (1 - x)^(-1/2).
    start = np.cumprod([(2 * j - 1) / (2 * j) for j in range(1, bands)])
    found = minimize(excess, start, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0 - 2.0**-BAND_BITS)] * (bands - 1)).x
    return tuple(round(math.ldexp(c, BAND_BITS)) for c in found)


def column_norm(bands: Sequence[int]) -> float:
    """||c||: by so much more than one round does, a client's turn moves what the fresh noise hides."""
    return math.sqrt(1.0 + sum(math.ldexp(c, -BAND_BITS) ** 2 for c in bands))


def growth(bands: Sequence[int]) -> float:
    """The largest standard deviation of a noise y, relative to that of the fresh z; it grows with the rounds."""
    return float(np.linalg.norm(_inverse(_real(bands), _MANY)))


def prefix_error(bands: Sequence[int], rounds: int) -> float:
    """Root mean square, over the rounds, of the noise that the model holds, for fresh noise of 1 / ||c||.

    That of independent noise is sqrt((T + 1) / 2): the figures are for alike guarantees.
    """
    return math.sqrt(_prefix_variance(_real(bands), rounds))


class BandedNoise:
    """A server's noise over the rounds of one session.

    Attributes:
        bands: c_1, ..., c_{b-1} in units of 2^-24.
    """

    def __init__(self, bands: Sequence[int]) -> None:
        self.bands = tuple(bands)
        self._noises: deque[np.ndarray] = deque(maxlen=len(self.bands))

    def next(self, fresh: np.ndarray) -> np.ndarray:
        """y of the next round, from its z; uint64, shape (d,), both integers in two's complement.

        Raises:
            OverflowError: an element reaches 2^62, with probability below 1e-20 where twice the noise fits the format
                (`VectorFormat.check_noise`).
        """
        if not self.bands:
            return fresh
        high, low = np.zeros((2, len(fresh)), dtype=np.int64)
        for band, noise in zip(self.bands, self._noises, strict=False):  # the last one first
            high += band * (noise >> _HALF)
            low += band * (noise & (1 << _HALF) - 1)
        own = fresh.view(np.int64) - ((high << (_HALF - BAND_BITS)) + (low >> BAND_BITS))
        if len(own) and not -_LARGEST < own.min() <= own.max() < _LARGEST:
            raise OverflowError("the noise left the range in which it is exact")
        self._noises.appendleft(own)
        return own.view(np.uint64)


def _real(bands: Sequence[int]) -> np.ndarray:
    return np.ldexp(np.array(bands, dtype=np.float64), -BAND_BITS)


def _prefix_variance(later: np.ndarray, rounds: int) -> float:
    """Mean over the rounds of the variance of a prefix sum, times ||c||^2; later: c_1, ... as real numbers."""
    prefix = np.cumsum(_inverse(later, rounds))  # the first column of A C^-1; round t holds its first t entries
    return float((rounds - np.arange(rounds)) @ prefix**2 / rounds * (1.0 + later @ later))


def _inverse(later: np.ndarray, rounds: int) -> np.ndarray:
    """The first column of C^-1, shape (rounds,)."""
    from scipy.signal import lfilter

    impulse = np.zeros(rounds)
    impulse[0] = 1.0
    return np.asarray(lfilter([1.0], [1.0, *later], impulse))
