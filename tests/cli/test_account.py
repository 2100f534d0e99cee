"""`safegnn account`: from noise to epsilon and back."""

from __future__ import annotations

import json

import pytest

from orchestrator.privacy.plan import VIEWS, NoisySum, PrivacyPlan
from tests.cli.commands import assert_refused

ACCOUNT = ["account", "--clients", "30", "--cohort", "3", "--rounds", "500", "--delta", "1e-3"]


@pytest.mark.parametrize(
    ("options", "per_round", "epsilon", "adjacency"),
    [
        (("--sampler", "fixed"), 0.321, 8.87, "replace-one"),
        (("--sampler", "fixed", "--accountant", "rdp"), 0.730, 20.18, "replace-one"),
        (("--sampler", "fixed", "--accountant", "pld"), 0.321, 8.87, "replace-one"),
        (("--sampler", "poisson", "--accountant", "rdp"), 0.614, 8.35, "add/remove"),
        (("--sampler", "poisson", "--accountant", "pld"), 0.321, 7.34, "add/remove"),
        (("--sampler", "fixed", "--accountant", "paper"), 1.013, 9.43, "add/remove"),
    ],
)
def test_account_prints_one_json_document(safegnn, options, per_round, epsilon, adjacency):
    status, out, err = safegnn(*ACCOUNT, "--noise-multiplier", "1.341", *options, "--noise", "split", "--json")
    assert (status, err) == (0, "")
    document = json.loads(out, parse_constant=pytest.fail)
    assert document["epsilon"] == pytest.approx(epsilon, abs=0.005)
    assert document["epsilon_per_round"] == pytest.approx(per_round, abs=0.0005)
    assert document["delta"] == 1e-3 and document["adjacency"] == adjacency
    assert document["accountant"] == (options[3] if len(options) > 2 else "tightest")
    assert document["views"].keys() == {"outsider", "client", "server"}


def test_account_prints_a_table_over_rounds(safegnn):
    paper = ("--sampler", "fixed", "--noise-multiplier", "1.341", "--noise", "split")
    status, out, err = safegnn(*ACCOUNT, *paper)
    assert (status, err) == (0, "")
    assert all(part in out for part in ("epsilon, outsider", "8.868", "replace-one", "delta 0.001", "tightest"))
    assert "9.253" in out and "350 " in out  # another client, and a server that subtracts its half of the noise
    out = safegnn(*ACCOUNT, *paper, "--accountant", "paper")[1]
    assert "9.429" in out and "warning: comparison only" in out


def test_account_finds_the_noise_for_a_target(safegnn):
    target = ("--target-epsilon", "4", "--accountant", "rdp", "--json")
    status, out, _ = safegnn(*ACCOUNT, "--sampler", "poisson", *target)
    document = json.loads(out, parse_constant=pytest.fail)
    assert status == 0 and 3.99 < document["epsilon"] <= 4
    assert document["noise_multiplier"] == pytest.approx(2.1797 / 2**0.5, abs=1e-3)


SETTINGS = (
    "method={name: fedavg, stateful: false}",
    "federation={cohort: 3, rounds: 7}",
    "evaluation={where: clients, tables: summed, noise_multiplier: 5, every: 3}",
    "privacy={clip_norm: 0.5, noise_multiplier: 2, delta: 1e-3, noise: split, accountant: rdp}",
)


def test_account_of_settings_counts_the_sums_besides_as_training_does(safegnn):
    """Clients' tables after rounds 3, 6 and 7."""
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    status, out, err = safegnn("account", *settings, "--json")
    document = json.loads(out, parse_constant=pytest.fail)
    plan = PrivacyPlan("fixed", 30, 3, 2.0, 1e-3, "rdp", "split")
    noisy = NoisySum("evaluation", 5.0, 3)
    assert (status, err, document["rounds"]) == (0, "", 7)
    assert document["sums"] == [{"name": "evaluation", "noise_multiplier": 5.0, "released": "3 times"}]
    for view in VIEWS:
        spent = plan.new_accountant().compose(plan.release(view), 7).compose(plan.sum_release(noisy, view), 3)
        assert document["views"][view] == pytest.approx(spent.epsilon(1e-3), rel=1e-9)
        assert document["views"][view] > plan.epsilon(7, view)
    assert "it counts the sum 'evaluation', noise multiplier 5, 3 times" in safegnn("account", *settings)[1]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--set", "seed=1"), ("privacy.noise_multiplier = 0: without noise epsilon is infinite",)),
        (("--set", SETTINGS[3], "--rounds", "5"), ("settings say all that there is to account for", "--set")),
        (
            ("--set", "privacy={clip_norm: 1, noise_multiplier: 1, accountant: null}"),
            ("no epsilon is stated: none was asked for",),
        ),
        (("--sampler", "fixed"), ("give --sampler, --clients, --cohort and --rounds, or settings",)),
    ],
)
def test_what_there_is_no_account_of_is_refused(safegnn, options, parts):
    assert_refused(safegnn("account", *options), 2, *parts)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--sampler", "fixed"), ("give one of --noise-multiplier and --target-epsilon",)),
        (("--sampler", "fixed", "--noise-multiplier", "1", "--target-epsilon", "1"), ("give one of",)),
        (("--sampler", "with_replacement", "--noise-multiplier", "1"), ("sampler with_replacement", "fixed, poisson")),
        (
            ("--sampler", "fixed", "--noise-multiplier", "1", "--accountant", "x"),
            ("accountant x", "tightest, rdp, pld"),
        ),
        (("--sampler", "fixed", "--noise-multiplier", "-1"), ("noise multiplier -1",)),
        (("--sampler", "fixed", "--noise-multiplier", "nan"), ("noise multiplier nan",)),
        (("--sampler", "fixed", "--noise-multiplier", "1", "--cohort", "31"), ("cohort 31", "1 to 30")),
        (("--sampler", "fixed", "--noise-multiplier", "1", "--delta", "1"), ("delta 1", "between 0 and 1")),
        (("--sampler", "fixed", "--noise-multiplier", "1", "--rounds", "0"), ("--rounds",)),
        (("--sampler", "fixed", "--noise-multiplier", "1", "--noise", "loud"), ("noise loud", "each_full")),
        (("--sampler", "fixed", "--target-epsilon", "0"), ("target epsilon 0",)),
        (("--sampler", "fixed", "--noise-multiplier", "1", "--noise", "clients"), ("noise clients", "honest clients")),
        (("--sampler", "fixed", "--noise-multiplier", "1", "--honest-clients", "2"), ("honest clients 2",)),
    ],
)
def test_account_refuses_in_one_line(safegnn, options, parts):
    assert_refused(safegnn(*ACCOUNT, *options), 2, *parts)


FEW = ["account", "--sampler", "poisson", "--clients", "10000", "--cohort", "100", "--rounds", "100", "--delta", "1e-5"]


@pytest.mark.parametrize("accountant", ["tightest", "rdp", "pld", "paper"])
@pytest.mark.parametrize("sigma", ["1e-300", "1e300", "1e-9", "1e-7", "1e7"])
def test_noise_beyond_what_can_be_computed_is_one_line(safegnn, sigma, accountant):
    out = safegnn(*FEW, "--accountant", accountant, "--noise-multiplier", sigma)
    assert_refused(out, 2, f"noise multiplier {float(sigma):g}: expected 0, or a number from 1e-06 to 1e+06")


@pytest.mark.parametrize(
    ("sigma", "rounds"), [("1e-6", "1"), ("0.001", "100"), ("0.01", "1000000"), ("1", "1000000000"), ("2", "10000000")]
)
def test_what_pld_cannot_reach_is_refused_at_once(safegnn, sigma, rounds):
    options = ["--rounds", rounds, "--accountant", "pld", "--noise-multiplier", sigma]
    said = safegnn("account", "--sampler", "poisson", "--clients", "100", "--cohort", "100", *options)
    assert_refused(said, 2, "accountant pld: noise multiplier ", "beyond its reach", "use accountant rdp")


@pytest.mark.parametrize("sigma", ["1e-6", "1", "1e6"])
@pytest.mark.parametrize("clients", ["100", "10000000000", "1000000000000"])
def test_rdp_reaches_far(safegnn, sigma, clients):
    sampler = ["account", "--sampler", "fixed", "--clients", clients, "--cohort", "100", "--rounds", "1000000000"]
    sampler += ["--accountant", "rdp", "--delta", "1e-2"]  # truncations on shares alone cost more than 1e-5
    status, out, _ = safegnn(*sampler, "--noise-multiplier", sigma, "--json")
    document = json.loads(out, parse_constant=pytest.fail)
    assert status == 0 and document["epsilon"] >= document["epsilon_per_round"] >= 0


@pytest.mark.parametrize("target", ["0", "-1", "1e300", "nan", "inf"])
def test_a_target_that_is_none_is_one_line(safegnn, target):
    assert_refused(safegnn(*FEW, "--target-epsilon", target), 2, "target epsilon ")


def test_too_many_clients_are_one_line(safegnn):
    many = ["--clients", "10000000000000", "--noise-multiplier", "1"]
    assert_refused(safegnn(*FEW, *many), 2, "clients 10000000000000: expected 1 to 1e+12")


def test_noise_of_clients_is_said_to_be_theirs_and_worth_less_to_one_of_them(safegnn):
    options = ("--sampler", "cyclic", "--noise-multiplier", "2", "--noise", "clients", "--honest-clients", "3")
    status, out, _ = safegnn(*ACCOUNT, *options)
    assert status == 0 and "noise multiplier 2, of 3 clients who answer, add theirs and tell nobody; delta" in out
    document = json.loads(safegnn(*ACCOUNT, *options, "--json")[1])
    assert (document["noise"], document["honest_clients"]) == ("clients", 3)
    assert document["views"]["outsider"] == document["views"]["server"] < document["views"]["client"]


def test_account_states_a_persons_epsilon_beside_a_clients_where_memberships_are_capped(safegnn):
    cycle = (
        "clients.count=30",
        "federation={cohort: 3, rounds: 20, sampling: cyclic}",
        "privacy={clip_norm: 0.1, noise_multiplier: 9}",
    )
    settings = [part for setting in cycle for part in ("--set", setting)]
    capped = [*settings, "--set", "clients.max_memberships=2"]
    document = json.loads(safegnn("account", *capped, "--json")[1], parse_constant=pytest.fail)
    plan = PrivacyPlan("cyclic", 30, 3, 9.0, 1e-5)
    assert document["epsilon"] == plan.epsilon(20)
    stated = {view: plan.of_persons(2).epsilon(20) for view in VIEWS}
    assert document["person"] == {"memberships": 2, "epsilon": stated} and stated["server"] > 2 * plan.epsilon(20)
    assert (
        f"a person in up to 2 clients, all of whose data there may be others: epsilon {stated['server']:.4g}"
        in safegnn("account", *capped)[1]
    )
    said = "a person in several clients: no epsilon stated; up to 30 memberships (clients.max_memberships)"
    assert said in safegnn("account", *settings)[1]
    assert "person" not in safegnn("account", *settings, "--set", "clients.partition=disjoint")[1]
