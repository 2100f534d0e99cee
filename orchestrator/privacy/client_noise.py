"""Noise that clients add, each a part: the distributed discrete Gaussian (Kairouz, Liu, Steinke, arXiv:2102.06387).

Every client of a round adds exact discrete Gaussian noise of standard deviation sigma Delta / sqrt(h) to what it
shares; h, `honest`, is the least number of clients of a released round whose noise nobody else knows. Theirs together
has sigma Delta. No server draws any, so that a server has nothing to subtract.

The sum of discrete Gaussians is none. Formal guarantee (docs/privacy.md, (13), with a proof): the probability of any
value of a sum of n of them, s steps each, s at least 1/2, is that of one discrete Gaussian of variance n s^2 times
e^x, |x| <= tau / 2, with the tau of their theorem 1.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["client_stddev", "left_multiplier", "tau"]


def tau(clients: int, stddev_steps: float) -> float:
    """10 sum_{k=1}^{n-1} exp(-2 pi^2 s^2 k / (k + 1)).

    Args:
        clients: n, the summands.
        stddev_steps: s of each, in steps of the grid.
    """
    if stddev_steps < 0.5:
        raise ValueError(f"Expected stddev_steps={stddev_steps} >= 1/2: nothing is proven below.")
    first = (math.pi * stddev_steps) ** 2
    if clients < 2 or math.exp(-first) == 0.0:  # the largest of the terms
        return 0.0
    k = np.arange(1.0, clients)
    return 10.0 * float(np.exp(-2.0 * first * k / (k + 1.0)).sum())


def client_stddev(noise_multiplier: float, sensitivity: float, honest: int) -> float:
    """Absolute standard deviation of the noise that each client adds."""
    return noise_multiplier * sensitivity / math.sqrt(honest)


def left_multiplier(noise_multiplier: float, honest: int, known: int) -> float:
    """What is left of sigma for whoever knows the noise of so many of the honest clients."""
    return noise_multiplier * math.sqrt(max(0, honest - known) / honest)
