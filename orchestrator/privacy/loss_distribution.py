"""Privacy loss distributions: what releases say about one client, as epsilon at a given delta.

Discretisation and composition are dp-accounting's (Doroshenko et al., arXiv:2207.04380): between the losses of a grid
the hockey-stick curve is replaced by its chords, which lie above it. dp-accounting knows unsampled and Poisson-sampled
Gaussians; for cohorts of fixed size without replacement, and replace-one neighbours, the curve is given here, and so
for neighbours that differ in several clients: docs/privacy.md says why it dominates, and why dominating pairs compose
adaptively.

Steps of the grid follow the spread of the losses: 1/20 of it, or 1e-5 of the expected sum, or 2e-5 of the largest one,
rounded down to a power of two, so that a round's distribution is found again as rounds are added. In double precision
the Fourier transform of T rounds is off by some 3e-17 T: delta is lowered by 1e-15 T beforehand.
"""

from __future__ import annotations

import math
from functools import lru_cache, reduce
from typing import TYPE_CHECKING

import numpy as np

from orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from orchestrator.privacy.release import Release

__all__ = ["composed_epsilon"]

_MOST_ROUNDS = 10**6
_ROUNDING = 1e-15
"""Of delta, for each round."""


@lru_cache(maxsize=64)
def composed_epsilon(ledger: tuple[tuple[Release, int], ...], delta: float) -> float:
    """The epsilon of all releases, each so many times, at `delta`.

    Raises:
        ConfigError: losses too large for the grid, more than a million rounds, or a delta below double precision.
    """
    rounds = sum(count for _, count in ledger)
    step = max(
        1e-9,
        0.05 * max(_spread(release, count) for release, count in ledger),
        1e-5 * sum(_expected(release, count) for release, count in ledger),
        2e-5 * max(_largest(release, count) for release, count in ledger),
    )
    if step > 1.0 or rounds > _MOST_ROUNDS or delta < 2 * _ROUNDING * rounds:
        least = min(release.noise_multiplier for release, _ in ledger)
        raise ConfigError(
            f"accountant pld: noise multiplier {least:g} over {rounds} rounds at delta {delta:g} is beyond its reach "
            f"in time, memory or precision; use accountant rdp, more noise, a larger delta, or {_MOST_ROUNDS} rounds"
        )
    step = 2.0 ** math.floor(math.log2(step))
    each = [_composed(release, count, step) for release, count in ledger]
    return float(reduce(lambda a, b: a.compose(b), each).get_epsilon_for_delta(delta - _ROUNDING * rounds))


def _composed(release: Release, count: int, step: float) -> PrivacyLossDistribution:
    if not release.sampled:  # as many Gaussians are one
        return _of_gaussian(release.unsampled_multiplier / math.sqrt(count), 1.0, step)
    if release.sampler == "poisson" and not release.group:
        return _of_gaussian(release.noise_multiplier, release.rate, step).self_compose(count)
    return _of_exchange(release, step).self_compose(count)


@lru_cache(maxsize=8)
def _of_gaussian(sigma: float, rate: float, step: float) -> PrivacyLossDistribution:
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    return from_gaussian_mechanism(sigma, value_discretization_interval=step, sampling_prob=rate)


@lru_cache(maxsize=8)
def _of_exchange(release: Release, step: float) -> PrivacyLossDistribution:
    """Of a Gaussian mechanism on a sample of clients, of whom one or several are others, in either order; rate < 1.

    Let p_j be the probability that j of those are in the sample, eta that any is, delta_j(l) the curve of a Gaussian
    mechanism that moves j times as far. The curve at a loss l' >= 0 is sum_j p_j delta_j(l) where e^l' = 1 + eta
    (e^l - 1), and at -l' its mirror image. Of one client of a cohort of fixed size that is Balle, Barthe and Gaboardi
    (2018), theorem 9; of several docs/privacy.md, "Persons".
    """
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    from scipy.special import log_ndtr

    shares, rest = release.shares()
    touched = float(shares.sum()) + rest
    steps = math.ceil(_sampled(_reach(release.noise_multiplier / len(shares)), touched) / step)
    losses = step * np.arange(steps + 1)
    unsampled = losses + np.log1p(-(1.0 - touched) * np.exp(-losses)) - math.log(touched)
    deltas = np.full_like(losses, rest)
    for moved, share in enumerate(shares, start=1):
        sigma = release.noise_multiplier / moved
        first = log_ndtr(0.5 / sigma - sigma * unsampled)
        second = unsampled + log_ndtr(-0.5 / sigma - sigma * unsampled)
        deltas += share * np.exp(first) * -np.expm1(np.minimum(second - first, 0.0))
    mirrored = -np.expm1(-losses) + np.exp(-losses) * deltas
    curve = np.concatenate([mirrored[:0:-1], deltas])
    return PrivacyLossDistribution(create_pmf_pessimistic_connect_dots_fixed_gap(step, -steps, steps, curve))


def _reach(sigma: float) -> float:
    """A loss that a Gaussian mechanism exceeds with a probability below 1e-23."""
    return 0.5 / sigma**2 + 10.0 / sigma


def _sampled(loss: float, rate: float) -> float:
    """What sampling makes of a loss: log(1 + rate (e^loss - 1))."""
    return loss if rate == 1.0 else float(np.logaddexp(math.log1p(-rate), math.log(rate) + loss))


def _spread(release: Release, count: int) -> float:
    """The standard deviation of a round's loss, about; 2 % of that of all where they are one Gaussian."""
    sigma = release.unsampled_multiplier
    return release.rate / sigma if release.sampled else 0.02 * math.sqrt(count) / sigma


def _expected(release: Release, count: int) -> float:
    """The expected loss of all, at most about: a mixture's is below its share of the whole, and below chi-squared."""
    rate = min(1.0, release.rate * max(1, release.group)) if release.sampled else 1.0
    square = release.unsampled_multiplier**-2
    return count * min(rate * square / 2, rate**2 * math.expm1(min(square, 700.0)))


def _largest(release: Release, count: int) -> float:
    """The largest loss of one round, or of all where they are one Gaussian."""
    if not release.sampled:
        return _reach(release.unsampled_multiplier / math.sqrt(count))
    shares, rest = release.shares()
    return _sampled(_reach(release.noise_multiplier / len(shares)), float(shares.sum()) + rest)
