"""The adaptive clip bound: it follows a quantile of the updates' norms (Andrew, Thakkar, McMahan and Ramaswamy, 2021).

Every client of a cohort says, on shares, whether its norm is within the bound; only the noisy number of those that are
becomes known, which changes by at most one where a client is added, removed or replaced. What it costs is in
`PrivacyPlan.effective_multiplier`. The bound of the next round is computed from public numbers alone.
"""

from __future__ import annotations

import math

__all__ = ["COUNT_SENSITIVITY", "next_clip_norm"]

COUNT_SENSITIVITY = 1.0
"""How far one client moves the count, under either adjacency."""

_LARGEST_STEP = 50.0
"""Of the logarithm, in one round: more would lead out of any range, and beyond e^709 out of float64."""


def next_clip_norm(
    clip_norm: float, within: float, expected: int, target: float, learning_rate: float, limits: tuple[float, float]
) -> float:
    """C exp(-eta (within/m - target)), kept in a range (Andrew et al., NeurIPS 2021, algorithm 1, last line).

    Args:
        clip_norm: C of the round.
        within: the released number of updates with a norm of at most C; noisy, so it may be negative or above m.
        expected: m, the size of a cohort, or its expectation.
        target: the share of updates that should be within the bound.
        learning_rate: eta.
        limits: the least and the largest bound that the arithmetic can carry.
    """
    step = -learning_rate * (within / expected - target)
    proposed = clip_norm * math.exp(min(max(step, -_LARGEST_STEP), _LARGEST_STEP))
    return min(max(proposed, limits[0]), limits[1])
