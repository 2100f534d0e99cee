"""The sum of clients' discrete Gaussians: how far it is from one, what it is worth to whom, and who cannot add it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import convolve

from orchestrator.agreement import round_plan
from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import Config
from orchestrator.errors import ConfigError
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.privacy.client_noise import client_stddev, left_multiplier, tau
from orchestrator.privacy.plan import VIEWS, PrivacyPlan

PLAN = PrivacyPlan("fixed", 30, 10, 2.0, 1e-5, noise="clients", honest=8)


def gaussian(stddev, reach):
    """Probabilities of the discrete Gaussian on -reach, ..., reach."""
    values = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * stddev**2))
    return values / values.sum()


def total(stddev, clients, method="direct"):
    """Probabilities of the sum of so many, on a symmetric range."""
    one = gaussian(stddev, math.ceil(14 * stddev))
    found = one
    for _ in range(clients - 1):
        found = convolve(found, one, method=method)
    return found


@pytest.mark.parametrize("clients", [2, 3, 5])
@pytest.mark.parametrize("stddev", [0.5, 0.6, 0.8, 1.0])
def test_the_sum_is_a_discrete_gaussian_but_for_half_of_tau(stddev, clients):
    found = total(stddev, clients)
    middle, near = len(found) // 2, math.ceil(6 * stddev)  # beyond, convolution in float64 errs
    expected = gaussian(stddev * clients**0.5, 40)
    logs = np.log(found[middle - near : middle + near + 1] / expected[40 - near : 40 + near + 1])
    assert np.abs(logs).max() <= tau(clients, stddev) / 2
    if clients == 2:  # the first term's 5 could be 2, and no less
        assert np.abs(logs).max() > 0.35 * tau(clients, stddev) / 2


def test_tau_is_the_sum_of_the_theorem_and_nothing_on_the_rings_grid():
    for clients, stddev in ((2, 0.5), (5, 0.7), (1000, 1.5)):
        terms = [math.exp(-2 * math.pi**2 * stddev**2 * k / (k + 1)) for k in range(1, clients)]
        assert tau(clients, stddev) == pytest.approx(10 * math.fsum(terms), rel=1e-12)
    assert tau(1, 0.5) == 0.0 == tau(10**9, 2.0**40)
    with pytest.raises(ValueError, match="nothing is proven below"):
        tau(3, 0.4)


def test_what_is_stated_holds_for_the_exact_sum_and_is_attained():
    """One dimension, one round in which everybody takes part: the curve of the sum itself, shifted by the sensitivity.

    One of four moves a sum with noise of 1,000 steps each by 1,000 at sigma = 2; who knows its own has less against it.
    """
    stddev, shift, delta = 1000, 1000, 1e-5
    plan = PrivacyPlan("fixed", 4, 4, 2.0, delta, noise="clients", honest=4)
    assert client_stddev(2.0, shift, 4) == stddev
    for view, unknown in (("outsider", 4), ("server", 4), ("client", 3)):
        probabilities, epsilon = total(stddev, unknown, "fft"), plan.epsilon(1, view)
        moved = np.concatenate([np.zeros(shift), probabilities])
        here = np.concatenate([probabilities, np.zeros(shift)])
        found = np.maximum(moved - math.exp(epsilon) * here, 0.0).sum()
        coarse = (1 + math.exp(epsilon)) / (40 * unknown * stddev**2)  # beside a continuous Gaussian
        assert coarse < 0.01 * delta and 0.99 * delta < found <= delta + coarse


def test_nobody_has_noise_to_subtract_but_the_clients_themselves():
    assert {view: PLAN.release(view).noise_multiplier for view in VIEWS} == {
        "outsider": 2.0,
        "client": 2.0 * math.sqrt(7 / 8),
        "server": 2.0,
    }
    assert PLAN.server_stddev == 0.0
    servers = replace(PLAN, noise="split", honest=None)  # the same noise in sum
    assert PLAN.epsilon(50) == servers.epsilon(50)
    assert PLAN.epsilon(50, "server") < servers.epsilon(50, "server")
    assert PLAN.epsilon(50, "client") > servers.epsilon(50, "client")
    turns = replace(PLAN, sampler="cyclic")
    assert [turns.release(view).noise_multiplier for view in VIEWS] == [2.0, 2.0 * math.sqrt(7 / 8), 2.0]
    assert replace(PLAN, honest=1).epsilon(1, "client") == math.inf
    assert [left_multiplier(2.0, 4, known) for known in (0, 3, 4, 5)] == [2.0, 1.0, 0.0, 0.0]


def test_the_figures_of_the_page():
    """docs/privacy.md, (13): 1,000 of 10,000 clients in turn, 100 rounds, no bands."""
    plan = PrivacyPlan("cyclic", 10_000, 1_000, 3.41894, 1e-5, noise="clients", honest=800)
    found = [plan.epsilon(100, view) for view in VIEWS]
    assert found == pytest.approx([4.0, 4.003, 4.0], abs=6e-4)


def test_a_mismatch_costs_what_a_failure_of_its_probability_would():
    off = replace(PLAN, mismatch=1e-8)
    assert off.failing(20) == pytest.approx(PLAN.failing(20) + math.expm1(20e-8), rel=1e-9)
    assert off.epsilon(20) > PLAN.epsilon(20)
    assert replace(PLAN, mismatch=1e-6).epsilon(20) == math.inf  # 2e-5 is above delta


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"honest": None}, "noise clients: expected honest clients, 1 to 10"),
        ({"honest": 11}, "noise clients: expected honest clients, 1 to 10"),
        ({"sampler": "poisson"}, "noise clients: .* not poisson"),
        ({"noise": "split"}, "honest clients 8: they count with noise clients alone"),
    ],
)
def test_a_plan_says_how_many_clients_noise_it_counts_on(changes, said):
    with pytest.raises(ConfigError, match=said):
        replace(PLAN, **changes)


def settings(**changes):
    sections = {
        "method": {"name": "fedavg"},
        "clients": {"count": 20},
        "federation": {"cohort": 5, "min_cohort": 4},
        "privacy": {"clip_norm": 1.0, "noise_multiplier": 2.0, "noise": "clients", "sensitivity": "bounded_weights"},
        "evaluation": {"exact_beside_noise": True},
    }
    for name, section in changes.items():
        sections[name] = {**sections.get(name, {}), **section}
    return Config(**sections)


def test_each_clients_noise_is_scaled_to_the_fewest_that_answer_and_no_server_draws_any():
    plan = plan_of(settings())
    assert (plan.privacy.honest, plan.privacy.noise) == (4, "clients")
    assert plan.sensitivity == pytest.approx(2 / 4, rel=1e-5) and plan.sensitivity > 2 / 4  # of as few as answer
    assert (plan.terms.noise_stddev, plan.terms.client_stddev) == (0.0, 2.0 * plan.sensitivity / 2)
    fewer = plan_of(settings(privacy={"honest_clients": 2}))
    assert fewer.terms.client_stddev == pytest.approx(2**0.5 * plan.terms.client_stddev)
    assert fewer.privacy.release("client").noise_multiplier == pytest.approx(2.0 / 2**0.5)
    assert plan_of(settings(privacy={"noise_multiplier": 0.0})).terms.client_stddev == 0.0
    assert plan_of(settings(federation={"sampling": "cyclic"})).bands == ()


def test_the_plan_counts_the_mismatch_of_as_many_as_may_answer(monkeypatch):
    asked = []
    monkeypatch.setattr(round_plan, "tau", lambda clients, steps: asked.append((clients, steps)) or 2.0**-80)
    plan = plan_of(settings())
    assert plan.privacy.mismatch == 2.0**40 * 2.0**-80 / 2
    assert asked[-1] == (5, pytest.approx(plan.terms.client_stddev * 2.0**57))
    assert plan_of(settings(privacy={"noise": "each_full"})).privacy.mismatch > 0 and asked[-1][0] == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": {"name": "f2gnn"}}, "method.name = f2gnn, whose weights are no plain mean"),
        ({"method": {"name": "privfairfl"}}, r"sums besides the model \(method.name = privfairfl"),
        ({"engine": {"program": "scalar-first"}}, "engine.program = scalar-first, where servers alone make"),
        ({"engine": {"name": "mpspdz"}}, "engine.name = mpspdz"),
        ({"federation": {"sampling": "poisson", "min_cohort": None}}, "poisson, where nobody may be there"),
        ({"federation": {"clients": "untrusted"}}, "untrusted, as nothing can check it"),
        ({"privacy": {"clip": "quantile"}}, "quantile, whose count has the servers' noise"),
        ({"privacy": {"bands": 4}, "federation": {"sampling": "cyclic"}}, "bands = 4, which servers keep"),
        ({"privacy": {"honest_clients": 5}}, "honest_clients = 5: expected 1 to 4, federation.min_cohort"),
        ({"federation": {"min_cohort": 0}}, "honest_clients = 0: expected 1 to 0"),
        ({"privacy": {"noise": "split", "honest_clients": 2}}, "honest_clients needs privacy.noise = clients"),
        ({"privacy": {"noise_multiplier": 60.0}}, "noise of all clients of a round has standard deviation"),
        ({"privacy": {"noise_multiplier": 1e-6}}, "each client's noise of .* is below 2.40 steps"),
    ],
)
def test_what_clients_cannot_add_noise_to_is_refused_by_name(changes, said):
    with pytest.raises(ConfigError, match=said):
        plan_of(settings(**changes))


def test_only_masked_sums_of_clients_noise_are_accounted():
    """Under masks the sum's sensitivity is that of integers which clients clip, whatever the weights' error is."""
    plan = plan_of(settings(engine={"name": "masking"}))
    assert plan.privacy is not None and 2.0 < plan.sensitivity < 2.0 * (1 + 1e-8)
    servers = plan_of(settings(engine={"name": "masking"}, privacy={"noise": "each_full"}))
    assert servers.privacy is None and "no" in servers.unproven


def test_norms_that_float64_measures_are_off_by_less_than_masked_sums_allow_for():
    vectors, rng = VectorFormat(25, 32, 6), np.random.default_rng(3)
    update = vectors.encode_update(rng.normal(scale=0.1, size=2**16))
    for length in (1.0, 0.3, 5.0):
        short = vectors.shorten_update(update, length).view(np.int64)
        square = sum(int(value) ** 2 for value in short)
        assert square <= (length * 2**25 * (1 + round_plan.MASKED_ERROR)) ** 2
