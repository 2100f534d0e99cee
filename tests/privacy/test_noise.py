"""The noise is distributed as the accountant assumes, on the ring's grid, and of the scale that the plan says."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from orchestrator.privacy.accountant import RdpAccountant
from orchestrator.privacy.noise import discrete_gaussian, noise_ring64, steps
from orchestrator.privacy.plan import PrivacyPlan
from orchestrator.privacy.release import Release

BITS = 57
COUNT = 20_000
TOLERANCE = 5 / (2 * COUNT) ** 0.5
"""Five standard errors of a standard deviation, 2.5 %: right ones pass, and those that are 5 % off do not."""


def numbers(ring):
    """Elements of the ring as float64."""
    return ring.view(np.int64) * 2.0**-BITS


def scale_is(values, stddev):
    return abs(values.std() / stddev - 1) < TOLERANCE and abs(values.mean()) < 5 * stddev / len(values) ** 0.5


@pytest.mark.parametrize("stddev", [1, 2, 5])
def test_probabilities_are_those_of_the_discrete_gaussian(stddev):
    samples = discrete_gaussian(COUNT, stddev)
    assert samples.dtype == np.int64
    support = np.arange(-12 * stddev, 12 * stddev + 1)
    probabilities = np.exp(-(support**2) / (2.0 * stddev**2))
    probabilities /= probabilities.sum()
    often = probabilities * COUNT > 10
    found = np.array([(samples == value).sum() for value in support[often]])
    expected = probabilities[often] * COUNT
    rest = max(COUNT * (1 - probabilities[often].sum()), 1e-9)
    assert chisquare([*found, COUNT - found.sum()], [*expected, rest]).pvalue > 1e-6


def test_large_deviations_are_exact_to_the_last_bit():
    """The grid is far finer than float64 would show of such numbers: the lowest bits are uniform."""
    samples = discrete_gaussian(COUNT, 2**59)
    assert kstest(samples / 2.0**59, "norm").pvalue > 1e-6
    assert chisquare(np.bincount(samples & 7, minlength=8)).pvalue > 1e-6


def test_a_deviation_counts_steps_of_the_grid_and_is_never_rounded_down():
    assert steps(1.0, 57) == 2**57 and steps(0.0, 57) == 0
    assert steps(1e-20, 57) == 1
    assert steps(3.0000001, 0) == 4


def test_what_does_not_fit_64_bits_is_refused():
    for stddev in (2**63 // 10 + 1, -1):
        with pytest.raises(ValueError, match="Expected 0 <= 10"):
            discrete_gaussian(1, stddev)
    assert len(discrete_gaussian(3, 2**63 // 10)) == 3


def test_no_noise_and_none_at_all():
    assert not discrete_gaussian(5, 0).any()
    assert discrete_gaussian(0, 7).shape == (0,)


def test_each_call_draws_fresh_noise():
    assert not (noise_ring64(100, 1.0, BITS) == noise_ring64(100, 1.0, BITS)).any()


@pytest.mark.parametrize(("noise", "share", "total"), [("each_full", 1.0, 2**0.5), ("split", 0.5**0.5, 1.0)])
def test_each_servers_noise_and_their_sum_have_the_plans_scale_and_5_percent_would_show(noise, share, total):
    plan = PrivacyPlan("fixed", 30, 3, 1.341, 1e-5, noise=noise, sensitivity=0.2)
    first, second = (noise_ring64(COUNT, plan.server_stddev, BITS) for _ in range(2))
    unit = 1.341 * 0.2
    for values, stddev in (
        (numbers(first), share * unit),
        (numbers(second), share * unit),
        (numbers(first + second), total * unit),
    ):
        assert scale_is(values, stddev)
        assert not scale_is(values, 1.05 * stddev) and not scale_is(values, stddev / 1.05)


@pytest.mark.parametrize("noise", ["each_full", "split"])
def test_a_server_that_subtracts_its_noise_sees_the_epsilon_that_the_plan_states_for_it(noise):
    """What is left for it is the other server's noise alone, in rounds whose cohort it knows."""
    plan = PrivacyPlan("fixed", 30, 3, 1.341, 1e-5, "rdp", noise=noise, sensitivity=0.2)
    own, other = (noise_ring64(COUNT, plan.server_stddev, BITS) for _ in range(2))
    left = numbers((own + other) - own).std() / plan.sensitivity

    def epsilon(multiplier):
        return RdpAccountant().compose(Release("known", 30, 3, multiplier), 10).epsilon(1e-5)

    assert plan.epsilon(10, "server") == pytest.approx(epsilon(left), rel=2 * TOLERANCE)
    assert plan.epsilon(10, "server") > plan.epsilon(10)  # an outsider subtracts nothing and knows no cohort
    # In the paper's way each server sees less noise than the sigma that is claimed.
    assert left == pytest.approx(1.341 if noise == "each_full" else 1.341 / 2**0.5, rel=TOLERANCE)


def test_a_server_starts_without_the_libraries_of_noise_and_learning():
    code = (
        "import sys, orchestrator.server.embedded;"
        "print(sorted({'opendp', 'torch', 'dp_accounting', 'pydantic', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
