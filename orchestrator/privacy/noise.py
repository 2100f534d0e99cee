"""Exact Gaussian noise that a server adds to its own share (SaFeGNN, Algorithm 1, lines 24-25).

Formal guarantees:

* Each value is an independent discrete Gaussian on the ring's grid: an integer x, counted in steps of 2^-scale_bits,
  with probability proportional to exp(-x^2 / (2 s^2)), s = `steps(stddev, scale_bits)`, never less than was asked for.
  It is sampled exactly, in integers of any size, by rejection from a discrete Laplace distribution (Canonne, Kamath
  and Steinke, arXiv:2004.00010, algorithm 3), in OpenDP's implementation, which carries a proof.
* The values that it is added to lie on the same grid, so that the sum is the mechanism which the accountant knows.
* Randomness comes from OpenDP's own generator, that of the OpenSSL inside it, which the operating system seeds.
* OpenDP hands over 64 bits and would saturate. That, and all else that exactness does not survive, begins at 2^63
  steps, more than 10 s (`VectorFormat.check_noise`): with a probability below 2e-23 a value.

One value takes some 18 microseconds, so a server draws its noise ahead, while clients train.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["discrete_gaussian", "noise_ring64", "steps"]


def steps(stddev: float, scale_bits: int) -> int:
    """A standard deviation in steps of the grid, rounded up."""
    return math.ceil(math.ldexp(stddev, scale_bits))


def discrete_gaussian(count: int, stddev: int) -> np.ndarray:
    """Discrete Gaussians on the integers; int64, shape (count,). Args: stddev: in steps, 10 of it below 2^63."""
    if not 0 <= 10 * stddev < 2**63:
        raise ValueError(f"Expected 0 <= 10 * stddev < 2^63 steps, got stddev={stddev}.")
    if count == 0 or stddev == 0:
        return np.zeros(count, dtype=np.int64)
    # A fifth of a second, which a server without noise need not spend.
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")  # which make_gaussian asks for
    domain = vector_domain(atom_domain(T="i64"))
    measurement = make_gaussian(domain, l2_distance(T="f64"), float(stddev))
    return np.array(measurement([0] * count), dtype=np.int64)


def noise_ring64(count: int, stddev: float, scale_bits: int) -> np.ndarray:
    """Noise of an absolute standard deviation at a scale in Z_2^64; uint64, shape (count,)."""
    return discrete_gaussian(count, steps(stddev, scale_bits)).view(np.uint64)
