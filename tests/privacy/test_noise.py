import numpy as np
import pytest
from scipy.stats import kstest

from orchestrator.privacy.noise import gaussian, gaussian_ring64, server_stddev
from orchestrator.sharing.prg import Prg


def test_both_servers_together_have_twice_sigma_c():
    assert 2 * server_stddev(1.341, 10.0) ** 2 == pytest.approx((2 * 1.341 * 10) ** 2)
    assert server_stddev(0.0, 10.0) == server_stddev(0.0, None) == 0.0


def test_samples_are_gaussian():
    samples = gaussian(50_000, 3.0, Prg())
    assert kstest(samples / 3.0, "norm").pvalue > 1e-6
    assert abs(samples.std() / 3.0 - 1) < 5 / np.sqrt(2 * len(samples))


def test_the_ring_holds_the_same_samples():
    seed = bytes(16)
    exact = gaussian(1000, 2.0, Prg(seed))
    ring = gaussian_ring64(1000, 2.0, 57, Prg(seed)).view(np.int64) * 2.0**-57
    assert np.abs(ring - exact).max() <= 2.0**-50


def test_each_call_draws_fresh_noise():
    assert not (gaussian(100, 1.0, Prg()) == gaussian(100, 1.0, Prg())).any()
