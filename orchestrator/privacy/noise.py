"""Gaussian noise that each server adds to its own share (SaFeGNN, Algorithm 1, lines 24-25).

Experiment only: the samples are continuous Gaussians from the operating system's randomness, rounded to the ring's
grid of 2^-57 or so. No privacy guarantee is claimed for them; that takes an exact discrete sampler and an accountant.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from orchestrator.sharing.prg import Prg

__all__ = ["gaussian", "gaussian_ring64", "server_stddev"]


def server_stddev(noise_multiplier: float, clip_norm: float | None) -> float:
    """Absolute standard deviation of one server's noise: sqrt(2) sigma C, so that both together have 2 sigma C."""
    return math.sqrt(2.0) * noise_multiplier * clip_norm if noise_multiplier and clip_norm else 0.0


def gaussian(count: int, stddev: float, prg: Prg) -> np.ndarray:
    """N(0, stddev^2) as float64, shape (count,): the inverse of the distribution function at 52 uniform bits."""
    uniform = ((prg.uint64(count) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return stddev * ndtri(uniform)


def gaussian_ring64(count: int, stddev: float, scale_bits: int, prg: Prg) -> np.ndarray:
    """The same, rounded to a scale in Z_2^64; uint64, shape (count,). Needs 9 stddev < 2^(63 - scale_bits)."""
    return np.rint(np.ldexp(gaussian(count, stddev, prg), scale_bits)).astype(np.int64).view(np.uint64)
