"""The plan: what each party can learn, and what no accountant covers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from scipy.stats import norm

from orchestrator.errors import ConfigError
from orchestrator.privacy.plan import VIEWS, NoisySum, PrivacyPlan, server_stddev

PLAN = PrivacyPlan("fixed", 30, 3, 1.341, 1e-3)
SQRT2 = math.sqrt(2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sampler": "with_replacement"}, "sampler with_replacement: no accountant is valid for it"),
        ({"accountant": "gdp"}, "accountant gdp: expected one of tightest, rdp, pld, paper"),
        ({"noise": "none"}, "noise none: expected each_full, split or clients"),
        ({"clients": 0}, "clients 0: expected 1 to 1e+12"),
        ({"cohort": 0}, "cohort 0: expected 1 to 30"),
        ({"cohort": 31}, "cohort 31: expected 1 to 30"),
        ({"delta": 0.0}, "delta 0: expected a number between 0 and 1"),
        ({"delta": math.nan}, "delta nan: expected"),
        ({"noise_multiplier": -1.0}, "noise multiplier -1: expected a finite number of at least 0"),
        ({"noise_multiplier": math.inf}, "noise multiplier inf: expected"),
        ({"sensitivity": math.nan}, "sensitivity nan: expected"),
        ({"bit_noise_multiplier": -1.0}, "bit noise multiplier -1: expected"),
    ],
)
def test_a_plan_without_a_valid_accountant_is_refused_in_one_line(changes, said):
    with pytest.raises(ConfigError) as caught:
        replace(PLAN, **changes)
    assert str(caught.value).startswith(said) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("sampler", "adjacency"), [("fixed", "replace-one"), ("poisson", "add/remove"), ("cyclic", "replace-one")]
)
def test_the_adjacency_is_the_samplers(sampler, adjacency):
    assert replace(PLAN, sampler=sampler).adjacency == adjacency


def test_where_clients_take_turns_every_observer_sees_what_a_server_does():
    plan = PrivacyPlan("cyclic", 10_000, 1_000, 3.41894, 1e-5)
    assert [plan.turns(rounds) for rounds in (0, 1, 10, 11, 100)] == [0, 1, 1, 2, 10]
    assert [replace(plan, clients=7, cohort=3).turns(rounds) for rounds in (1, 2, 3, 5, 7)] == [1, 1, 2, 3, 3]
    # The Gaussian mechanism's own curve (Balle and Wang, 2018, theorem 8), of ten turns as one.
    mu, epsilon = math.sqrt(10) / 3.41894, plan.epsilon(100)
    delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert delta == pytest.approx(1e-5, rel=1e-3) and epsilon == pytest.approx(4.0, abs=1e-4)
    for noise, one in (("each_full", 1.0), ("split", 0.5**0.5)):
        found = [replace(plan, noise=noise).release(view) for view in VIEWS]
        assert len(set(found)) == 1 and found[0].sampler == "known"
        assert found[0].noise_multiplier == pytest.approx(one * 3.41894)
    with pytest.raises(ConfigError, match="accountant paper: the paper's cohorts are sampled"):
        replace(plan, accountant="paper")


def test_the_paper_claims_another_adjacency_than_its_sampler_has():
    assert replace(PLAN, accountant="paper").adjacency == "add/remove"


def test_each_servers_noise_follows_from_the_plan():
    """Split noise adds up to sigma times the sensitivity, the paper's 2 sigma C; full noise is that at each server."""
    assert replace(PLAN, sensitivity=20.0).server_stddev == pytest.approx(2 * 1.341 * 10)
    split = replace(PLAN, sensitivity=20.0, noise="split").server_stddev
    assert split == pytest.approx(math.sqrt(2) * 1.341 * 10) == server_stddev(1.341, 20.0, "split")


@pytest.mark.parametrize("sampler", ["fixed", "poisson"])
@pytest.mark.parametrize("noise", ["each_full", "split"])
def test_a_server_sees_more_than_a_client_and_a_client_no_less_than_an_outsider(sampler, noise):
    plan = replace(PLAN, sampler=sampler, noise=noise)
    outsider, client, server = (plan.epsilon(500, view) for view in VIEWS)
    assert outsider <= client < server
    assert (outsider == client) == (sampler == "poisson")  # Poisson samples are independent


def test_a_server_knows_the_cohort_and_so_nothing_is_amplified_for_it():
    assert replace(PLAN, accountant="rdp").epsilon(500, "server") == pytest.approx(198.66, abs=0.006)
    assert PLAN.epsilon(500, "server") == pytest.approx(189.63, abs=0.02)
    everybody = replace(PLAN, sampler="poisson", cohort=30, noise_multiplier=1.341 * SQRT2, noise="split")
    server = replace(PLAN, noise_multiplier=1.341 * SQRT2).epsilon(500, "server")
    assert everybody.epsilon(500) == pytest.approx(server, rel=1e-8)  # cohorts of 30 and of 3 truncate


@pytest.mark.parametrize("attempts", [1, 4])
@pytest.mark.parametrize("bits", [None, 3.0])
def test_a_view_has_the_noise_against_it_that_it_does_not_know(bits, attempts):
    """A server knows its own, outsiders and clients neither; full noise is sigma a server, split noise sigma in sum."""
    full = replace(PLAN, bit_noise_multiplier=bits)
    once = full.effective_multiplier / math.sqrt(attempts)
    for plan, known, unknown in ((full, once, SQRT2 * once), (replace(full, noise="split"), once / SQRT2, once)):
        found = {view: plan.release(view, attempts).noise_multiplier for view in VIEWS}
        assert found == {"outsider": unknown, "client": unknown, "server": known}


@pytest.mark.parametrize(
    ("sigma", "outsider", "server"),
    [(1.519, 2.300, 48.98), (2.512, 1.197, 24.22), (4.509, 0.595, 11.36), (8.409, 0.292, 5.36)],
)
def test_the_operating_points_epsilons(sigma, outsider, server):
    """docs/privacy.md: 1,000 of 10,000 clients, 100 rounds, full noise at each server."""
    plan = PrivacyPlan("fixed", 10_000, 1_000, sigma, 1e-5)
    assert plan.epsilon(100) == pytest.approx(outsider, abs=6e-4)
    assert plan.epsilon(100, "server") == pytest.approx(server, abs=6e-3)


def test_a_server_that_subtracts_its_noise_gains_where_the_noise_is_split_and_only_there():
    """The same noise in sum: split at sigma, or full at sigma/sqrt(2)."""
    split, full = replace(PLAN, noise="split"), replace(PLAN, noise_multiplier=1.341 / SQRT2)
    assert split.epsilon(500) == pytest.approx(full.epsilon(500), rel=1e-9) == pytest.approx(8.868, abs=6e-4)
    assert split.epsilon(500, "server") == full.epsilon(500, "server")
    assert split.epsilon(500, "server") > 1.5 * PLAN.epsilon(500, "server")


def test_subtracted_noise_alone_costs_what_the_paper_leaves_out():
    """Poisson, rdp, delta 1e-3: 8.35 becomes 15.62 at sigma/sqrt(2), before the cohort is known too."""
    plan = replace(PLAN, sampler="poisson", accountant="rdp", noise="split")
    assert plan.epsilon(500) == pytest.approx(8.35, abs=0.005)
    assert replace(plan, noise_multiplier=1.341 / math.sqrt(2)).epsilon(500) == pytest.approx(15.62, abs=0.005)


def test_another_client_is_one_of_the_cohort_or_of_the_rest():
    """Knowing its own part, it sees q of the n-1 others at most."""
    assert PLAN.epsilon(500, "client") == replace(PLAN, clients=29).epsilon(500)
    assert PrivacyPlan("fixed", 1, 1, 1.0, 1e-3).epsilon(5, "client") > 0


def test_the_paper_accounts_for_outsiders_alone():
    assert [replace(PLAN, accountant="paper").epsilon(500, view) for view in VIEWS[1:]] == [None, None]


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_a_noisy_count_of_bits_costs_something_and_little_if_it_is_noisy_enough(accountant):
    plan = PrivacyPlan("poisson", 1000, 100, 1.5, 1e-5, accountant)
    with_bits = [replace(plan, bit_noise_multiplier=sigma).epsilon(100) for sigma in (1e6, 10.0, 1.5)]
    assert with_bits[0] == pytest.approx(plan.epsilon(100), rel=1e-6)
    assert plan.epsilon(100) < with_bits[1] < 1.05 * plan.epsilon(100)
    assert with_bits[2] == pytest.approx(replace(plan, noise_multiplier=1.5 / math.sqrt(2)).epsilon(100), rel=1e-6)
    assert replace(plan, bit_noise_multiplier=0.0).epsilon(100) == math.inf


@pytest.mark.parametrize("view", VIEWS)
def test_a_repeated_round_is_less_noise_on_the_same_sample(view):
    once, twice = PLAN.release(view), PLAN.release(view, attempts=2)
    assert twice.noise_multiplier == pytest.approx(once.noise_multiplier / SQRT2, rel=1e-12)
    assert replace(twice, noise_multiplier=once.noise_multiplier) == once


@pytest.mark.parametrize("sampler", ["fixed", "poisson"])
def test_the_stated_delta_includes_that_a_truncation_goes_wrong(sampler):
    """Of many rounds of many clients it is a third of delta."""
    plan = PrivacyPlan(sampler, 10**6, 10**5, 4.0, 1e-6, accountant="rdp")
    eta = plan.failing(1000)
    assert eta == pytest.approx(2.0**-54 * 64 * 1000 * (1e5 if sampler == "fixed" else 2e5), rel=1e-2)
    for view in VIEWS:
        spent = plan.new_accountant().compose(plan.release(view), 1000)
        assert plan.epsilon(1000, view) == spent.epsilon(1e-6 - eta) - math.log1p(-eta) > spent.epsilon(1e-6) + 1e-4
    assert replace(plan, delta=eta).epsilon(1000) == math.inf


def test_truncations_of_sums_and_of_what_cohorts_add_up_count_too():
    sums = (NoisySum("of all", 9.0, every=1), NoisySum("of cohorts", 9.0, of_cohort=True))
    plan = PrivacyPlan("fixed", 1000, 10, 4.0, 1e-6)
    found, expected = replace(plan, sums=sums).failing(3, 2), 2 * plan.failing(3) + 2 * 2.0**-54 * 64 * 1001
    assert found == pytest.approx(expected, rel=1e-9, abs=0)
