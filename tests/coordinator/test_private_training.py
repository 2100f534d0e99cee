"""The round loop with noise: its scale, the budget, the adaptive clip bound, and what must not end a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import load_config
from orchestrator.coordinator.factory import create_engine
from orchestrator.coordinator.plaintext import PlaintextEngine
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import CohortError, ConfigError, RunError
from orchestrator.methods.base import LocalUpdate
from orchestrator.models import create_network
from orchestrator.models.trained import load_model
from orchestrator.privacy.bands import column_norm
from orchestrator.privacy.budget import Budget
from orchestrator.privacy.plan import VIEWS, PrivacyPlan
from orchestrator.registry import METHODS
from orchestrator.reports.run import no_epsilon, privacy_report
from tests.training_runs import Crash, CrashingFolder, crash_after, run

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


@pytest.fixture(scope="module")
def tiny(tiny):
    """Of clients that keep no state, so that epsilon counts on sampling."""
    return lambda run_dir, *overrides: tiny(run_dir, "method.stateful=false", *overrides)


@pytest.mark.parametrize("engine", ["plaintext", "embedded"])
@pytest.mark.parametrize(("how", "factor"), [("split", 1.0), ("each_full", 2**0.5)])
def test_noise_has_standard_deviation_two_sigma_c_or_that_from_each_server(tiny, tmp_path, engine, how, factor):
    options = ["federation.rounds=1", "model.hidden=64"]
    plain = run(tiny(tmp_path, *options, "privacy={clip_norm: 0.5}"))[1][0]
    privacy = f"privacy={{clip_norm: 0.5, noise_multiplier: 0.3, noise: {how}}}"
    noisy = run(tiny(tmp_path, *options, privacy, f"engine.name={engine}"), audit=True)[1][0]
    noise, stddev = noisy.parameters - plain.parameters, factor * 2 * 0.3 * 0.5
    count = len(noise)
    assert count > 4000
    assert abs(noise.std() / stddev - 1) < 5 / (2 * count) ** 0.5
    assert abs(noise.mean()) < 5 * stddev / count**0.5
    assert (noisy.difference, noisy.bound) == (None, None)  # nobody but the servers can subtract the noise


@pytest.mark.parametrize("engine", ["plaintext", "embedded"])
def test_with_noise_no_update_ends_the_run(tiny, tmp_path, engine):
    """That a run ended would tell about a client's data, and no noise covers it."""
    diverging = ["federation.rounds=2", "method.learning_rate=1e30", f"engine.name={engine}"]
    with pytest.raises(CohortError, match="is not finite after training"):
        run(tiny(tmp_path, *diverging))
    config = tiny(tmp_path, *diverging, "privacy={clip_norm: 0.5, noise_multiplier: 0.3}")
    assert [result.round for result in run(config)[1]] == [1, 2]


# Privacy

NOISY = "privacy={clip_norm: 0.5, noise_multiplier: 2, delta: 1e-3"


def epsilons(folder: RunFolder) -> list[float | None]:
    return [row["epsilon"] for row in folder.records()]


@pytest.mark.parametrize(("sampling", "sampler"), [("distinct", "fixed"), ("poisson", "poisson"), ("cyclic", "cyclic")])
def test_every_round_states_the_epsilon_so_far(tiny, tmp_path, sampling, sampler):
    config = tiny(tmp_path, f"federation={{sampling: {sampling}, rounds: 3}}", NOISY + "}")
    folder, results = run(config)
    plan = PrivacyPlan(sampler, 6, 3, 2.0, 1e-3)
    assert epsilons(folder) == [plan.epsilon(rounds) for rounds in (1, 2, 3)] == [r.epsilon for r in results]
    assert "epsilon" in (folder.path / "metrics.csv").read_text().splitlines()[0].split(",")
    report = privacy_report(folder, config)
    assert report["epsilon"] == plan.epsilon(3) == report["views"]["outsider"]
    assert (report["delta"], report["adjacency"], report["accountant"]) == (1e-3, plan.adjacency, "tightest")
    most = max(Counter(client for result in results for client in result.cohort).values())
    assert report["participations"] == most and report["simulated"]
    assert report["views"]["client"] == plan.epsilon(3, "client")
    assert report["views"]["server"] == plan.epsilon(3 if sampler == "cyclic" else most, "server")
    longer = {"fixed": 1.0, "poisson": 1.0, "cyclic": column_norm(plan_of(config).bands)}[sampler]
    assert report["bands"] == (2 if sampler == "cyclic" else 1)
    assert report["server_stddev"] == pytest.approx(2.0 * 2 * 0.5 * longer, rel=1e-4) and report["stopped"] is None


def test_a_person_in_several_clients_is_stated_beside_a_client(tiny, tmp_path):
    shape = ("federation={sampling: cyclic, rounds: 3}", "clients.max_memberships=2", NOISY + "}")
    config = tiny(tmp_path, *shape)
    folder = run(config)[0]
    plan = PrivacyPlan("cyclic", 6, 3, 2.0, 1e-3)
    epsilon = plan.of_persons(2).epsilon(3)
    assert privacy_report(folder, config)["person"] == {"memberships": 2, "epsilon": dict.fromkeys(VIEWS, epsilon)}
    assert epsilon > plan.epsilon(3)


def of_bands(*privacy: str, rounds: int = 4):
    settings = [
        "method.name=fedavg",
        "clients.count=12",
        f"federation={{sampling: cyclic, cohort: 4, rounds: {rounds}}}",
    ]
    usual = "clip_norm: 1, noise_multiplier: 2, sensitivity: bounded_weights"
    return load_config(overrides=[*settings, f"privacy={{{', '.join(privacy) or usual}}}"])


def test_the_plaintext_engine_simulates_bands_and_a_new_start_forgets_them():
    d, plan = 20_000, plan_of(of_bands())
    engine, cohort = PlaintextEngine(plan), [0, 1, 2, 3]

    def play(number):
        before = engine._model
        for slot in range(4):
            engine.submit(number, slot, slot, LocalUpdate(np.zeros(d), 0.0, {}))
        return engine.aggregate(number, cohort).parameters - before

    engine.start(np.zeros(d))
    noises = [play(number) for number in (1, 2, 3)]
    c = [1.0, *(band * 2.0**-24 for band in plan.bands)]
    fresh = [sum(c[j] * noises[t - j] for j in range(t + 1)) for t in range(3)]
    assert np.abs(np.corrcoef(fresh) - np.eye(3)).max() < 5 / d**0.5 and np.corrcoef(noises)[0, 1] < -0.3
    engine.start(np.zeros(d))
    again = play(1)
    assert abs(np.std(again) / (2**0.5 * plan.terms.noise_stddev) - 1) < 5 / (2 * d) ** 0.5
    assert abs(np.corrcoef(again, noises[2])[0, 1]) < 5 / d**0.5


def test_bands_fit_the_format_twenty_times_and_go_with_one_clip_bound_alone():
    of = "clip_norm: 1, sensitivity: bounded_weights, noise_multiplier: "
    assert plan_of(of_bands(of + "3.1", rounds=100)).bands
    with pytest.raises(ConfigError, match="20 of them do not fit"):
        plan_of(of_bands(of + "3.3", rounds=100))
    quantile = "clip_norm: 1, noise_multiplier: 2, clip: quantile, quantile: {bit_noise_multiplier: 2}"
    assert plan_of(of_bands(quantile)).bands == ()


def test_a_run_in_turns_goes_on_for_more_rounds_with_other_bands(tiny, tmp_path):
    turns = "federation={sampling: cyclic, rounds: 2, cohort: 2}"
    config = tiny(tmp_path, turns, NOISY + ", sensitivity: bounded_weights}", "method.name=fedavg")
    folder, _ = run(config)
    longer = config.changed(federation={"rounds": 4})
    assert plan_of(longer).bands != plan_of(config).bands
    train(longer, folder, resume=True)
    plan = plan_of(longer).privacy
    assert epsilons(folder) == [plan.epsilon(rounds) for rounds in (1, 2, 3, 4)]
    assert privacy_report(folder, longer)["epsilon"] == plan.epsilon(4)


def test_bands_whose_rounding_would_count_are_refused():
    small = "privacy={clip_norm: 6.2e-5, noise_multiplier: 99, sensitivity: bounded_weights}"
    changes = ("method.name=fedavg", "clients.count=3000", small)
    config = load_config(overrides=[*changes, "federation={cohort: 1000, sampling: cyclic}"])
    with pytest.raises(ConfigError, match=r"privacy.bands: a client moves the sum by 1.5\de-07, below 2\^40 steps"):
        plan_of(config)
    assert plan_of(config.changed(privacy={"bands": 1})).privacy is not None


@pytest.mark.parametrize("sampling", ["distinct", "poisson"])
def test_where_clients_keep_state_epsilon_counts_on_no_sampling_of_fixed_size(tiny, tmp_path, sampling):
    """What others train tells in later rounds who took part before; Poisson samples are independent of each other."""
    config, said = tiny(tmp_path, NOISY + "}", f"federation.sampling={sampling}", "method.stateful=true"), []
    folder, _ = run(config, announce=said.append)
    report, fixed = privacy_report(folder, config), sampling == "distinct"
    plan = PrivacyPlan("fixed" if fixed else "poisson", 6, 3, 2.0, 1e-3)
    # Known cohorts, as a server knows them, but both servers' noise.
    known = replace(plan, noise_multiplier=plan.noise_multiplier * 2**0.5).epsilon(2, "server")
    expected = known if fixed else plan.epsilon(2)
    assert report["epsilon"] == report["views"]["client"] == expected and report["amplified"] != fixed
    assert bool([line for line in said if line.startswith("clients keep state, so that epsilon counts on no")]) == fixed
    assert plan.epsilon(2, "server") > 1.25 * plan.epsilon(2)


@pytest.mark.parametrize(
    "overrides",
    [
        ("privacy.clip_norm=0.5",),
        ("federation.sampling=with_replacement", NOISY + "}"),
        (NOISY + ", accountant: null}",),
    ],
)
def test_no_epsilon_is_stated_where_none_is_valid(tiny, tmp_path, overrides):
    config = tiny(tmp_path, *overrides)
    folder, _ = run(config)
    assert epsilons(folder) == [None, None]
    assert privacy_report(folder, config) is None
    assert folder.load_privacy() is None


SAGE_PLUS = (
    "method.name=fedsage+",
    "model.name=sage",
    "method.generator={encoder_hidden: 4, latent: 3, widths: [4, 6], local_epochs: 1, exchanges: 1}",
)


def test_of_clients_that_exchange_gradients_first_no_epsilon_is_stated_and_why(tiny, tmp_path):
    """FedSage+: what they exchange has no noise, and everybody's mended graph follows from everybody's data."""
    config, said = tiny(tmp_path, *SAGE_PLUS, NOISY + "}", "federation.rounds=1"), []
    folder, results = run(config, announce=said.append)
    assert epsilons(folder) == [None] == [result.epsilon for result in results]
    assert privacy_report(folder, config) is None and folder.load_privacy() is None
    reason = "clients exchange gradients without noise before the first round"
    assert no_epsilon(config).startswith(reason)
    assert [line for line in said if line.startswith(f"no epsilon is stated: {reason}")]
    with pytest.raises(ConfigError, match=rf"^privacy\.epsilon_budget: no epsilon can be stated: {reason}"):
        run(tiny(tmp_path, *SAGE_PLUS, NOISY + ", epsilon_budget: 50}"))
    assert no_epsilon(tiny(tmp_path, NOISY + "}")) is None is no_epsilon(tiny(tmp_path, *SAGE_PLUS))


def test_a_method_that_prepares_and_does_not_say_so_is_refused(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "fedsage+", replace(METHODS["fedsage+"], unaccounted=""))
    with pytest.raises(ConfigError, match=r"its clients prepare together, which no epsilon counts"):
        run(tiny(tmp_path, *SAGE_PLUS, NOISY + "}"))


def test_training_stops_before_the_budget_is_exceeded_and_leaves_a_whole_run(tiny, tmp_path):
    plan = PrivacyPlan("fixed", 6, 3, 2.0, 1e-3)
    limit = (plan.epsilon(3) + plan.epsilon(4)) / 2
    config = tiny(tmp_path, "federation.rounds=9", NOISY + f", epsilon_budget: {limit}}}")
    folder, results = run(config)
    assert [result.round for result in results] == [1, 2, 3] and folder.load().round == 3
    assert max(epsilons(folder)) == plan.epsilon(3) <= limit
    np.testing.assert_array_equal(load_model(folder.path / "model.pt").parameters, results[-1].parameters)
    stopped = privacy_report(folder, config)["stopped"]
    assert stopped.startswith("round 4 would bring epsilon from ") and "\n" not in stopped
    train(config, folder, resume=True)  # which changes nothing
    assert [row["round"] for row in folder.records()] == [1, 2, 3] and folder.load().round == 3


def test_a_budget_too_small_for_one_round_is_a_setting_at_fault(tiny, tmp_path):
    with pytest.raises(ConfigError, match=r"privacy\.epsilon_budget = 0\.01 does not allow a single round"):
        run(tiny(tmp_path, NOISY + ", epsilon_budget: 0.01}"))


def test_noise_too_fine_to_be_gaussian_on_the_grid_is_a_setting_at_fault(tiny, tmp_path):
    with pytest.raises(ConfigError, match=r"privacy\.noise_multiplier = 1e-06: .* steps of the ring's grid"):
        run(tiny(tmp_path, "privacy={clip_norm: 1e-3, noise_multiplier: 1e-6}"))


def test_a_resumed_run_goes_on_with_its_budget(tiny, tmp_path):
    config = tiny(tmp_path, "federation.rounds=5", NOISY + "}")
    whole, folder = run(config)[0], RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, folder, observe=partial(crash_after, 3))
    train(config, folder, resume=True)
    assert epsilons(folder) == epsilons(whole)
    assert folder.load_privacy()["attempts"] == whole.load_privacy()["attempts"] == [1] * 5


def test_a_round_that_is_repeated_after_a_crash_is_paid_for_again(tiny, tmp_path):
    """Its first result had been released, whether or not it was recorded."""
    config = tiny(tmp_path, "federation.rounds=5", NOISY + "}")
    folder, plan = RunFolder.create(config), PrivacyPlan("fixed", 6, 3, 2.0, 1e-3)
    with pytest.raises(Crash):
        train(config, CrashingFolder(folder.path))
    train(config, folder, resume=True)
    values = epsilons(folder)
    assert values[:3] == [plan.epsilon(rounds) for rounds in (1, 2, 3)]
    repeated = plan.new_accountant().compose(plan.release(), 3).compose(plan.release(attempts=2))
    assert values[3] == plan.stated(repeated, 5) > plan.epsilon(4)
    assert values[4] == plan.stated(repeated.compose(plan.release()), 6)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_round_is_paid_for_before_its_result_exists(tiny, tmp_path, moment):
    """A crash within `aggregate` leaves a charge on the disk: somebody may have seen the result."""
    config = tiny(tmp_path, "federation.rounds=3", NOISY + "}")
    folder, plan, engine = RunFolder.create(config), PrivacyPlan("fixed", 6, 3, 2.0, 1e-3), create_engine(config)
    aggregate = engine.aggregate

    def crash(number, cohort):
        assert folder.load_privacy()["attempts"] == [1] * number
        if number == 2:
            if moment == "after":
                aggregate(number, cohort)
            raise Crash
        return aggregate(number, cohort)

    engine.aggregate = crash
    with pytest.raises(Crash):
        train(config, folder, engine=engine)
    assert len(folder.records()) == 1
    charged = folder.load_privacy()
    assert Budget(plan, run=charged["plan"]["run"]).restore(charged).epsilon == plan.epsilon(2)
    train(config, folder, resume=True)
    repeated = plan.new_accountant().compose(plan.release()).compose(plan.release(attempts=2))
    assert epsilons(folder)[1] == plan.stated(repeated, 3) > plan.epsilon(2)


@pytest.mark.parametrize("damage", ["", "[1]", "{}", None])
def test_a_run_that_cannot_say_what_it_released_is_not_resumed(tiny, tmp_path, damage):
    config = tiny(tmp_path, "federation.rounds=3", NOISY + "}")
    folder = RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, folder, observe=partial(crash_after, 1))
    path = folder.state_dir / "privacy.json"
    path.unlink() if damage is None else path.write_text(damage)
    with pytest.raises(RunError) as caught:
        train(config, folder, resume=True)
    assert "\n" not in str(caught.value)


# The adaptive clip bound

QUANTILE = "privacy={clip_norm: 0.5, clip: quantile"


def bounds_follow(results, config) -> bool:
    """Each round's clip bound is what the count of the round before makes of that round's bound."""
    quantile, rows = config.privacy.quantile, [(result.clip_norm, result.within) for result in results]
    return all(
        following[0]
        == pytest.approx(c * np.exp(-quantile.learning_rate * (within / config.federation.cohort - quantile.target)))
        for (c, within), following in pairwise(rows)
    )


@pytest.mark.parametrize("engine", ["plaintext", "embedded"])
@pytest.mark.parametrize("sampling", ["distinct", "poisson"])
def test_the_clip_bound_follows_the_released_counts(tiny, tmp_path, engine, sampling):
    """Without noise the counts are exact, and the audit, which knows each round's bound, still holds."""
    federation = f"federation={{rounds: 8, cohort: 3, sampling: {sampling}}}"
    config = tiny(tmp_path, QUANTILE + ", quantile: {learning_rate: 1.0}}", federation, f"engine.name={engine}")
    folder, results = run(config, audit=True)
    assert results[0].clip_norm == 0.5 and bounds_follow(results, config)
    assert all(result.within in range(len(result.cohort) + 1) for result in results)
    assert len({result.within / max(1, len(result.cohort)) for result in results}) > 1  # some are clipped, some are not
    assert all(result.difference is None or result.difference <= result.bound for result in results)
    assert [(row["clip_norm"], row["updates_within_clip_norm"]) for row in folder.records()] == [
        (result.clip_norm, result.within) for result in results
    ]


@pytest.mark.parametrize("engine", ["plaintext", "embedded"])
def test_noise_follows_the_clip_bound_and_the_count_has_its_own(tiny, tmp_path, engine):
    privacy = QUANTILE + ", noise_multiplier: 0.3, quantile: {bit_noise_multiplier: 0.5, learning_rate: 0.5}}"
    config = tiny(tmp_path, privacy, "federation.rounds=4", "model.hidden=64", f"engine.name={engine}")
    folder, results = run(config)
    assert bounds_follow(results, config)
    assert any(abs(result.within - round(result.within)) > 1e-3 for result in results)
    before, ratios = create_network(6, 2, config.model).initial_parameters(config.seed), []
    for result in results:
        # The step itself has a norm of at most C, spread over thousands of coordinates.
        ratios.append((result.parameters - before).std() / result.clip_norm)
        before = result.parameters
    np.testing.assert_allclose(ratios, 2**0.5 * 2 * 0.3, rtol=0.06)
    assert len({result.clip_norm for result in results}) == 4
    report = privacy_report(folder, config)
    assert report["clip_norm"] == results[-1].clip_norm
    assert report["server_stddev"] == pytest.approx(0.3 * 2 * results[-1].clip_norm, rel=1e-3)


@pytest.mark.parametrize(
    ("how", "cohort", "allowed"),
    [("each_full", 18, False), ("each_full", 19, True), ("split", 13, False), ("split", 14, True)],
)
def test_noise_that_drowns_the_count_is_refused_by_name(tiny, tmp_path, how, cohort, allowed):
    """The default, of ten clients' weight from each server, is for larger cohorts: the bound would walk at random."""
    some = ["clients.count=30", f"federation.cohort={cohort}"]
    config = tiny(tmp_path, *some, QUANTILE + f", noise_multiplier: 2, noise: {how}}}")
    if allowed:
        assert plan_of(config).terms.count_stddev is not None
        return
    said = (
        rf"^privacy\.quantile\.bit_noise_multiplier = 10: .* drowns the count of a cohort of {cohort}; expected at most"
    )
    with pytest.raises(ConfigError, match=said) as caught:
        plan_of(config)
    most = float(str(caught.value).partition("at most ")[2].partition(",")[0])
    enough = QUANTILE + f", noise_multiplier: 2, noise: {how}, quantile: {{bit_noise_multiplier: {0.99 * most}}}}}"
    assert plan_of(tiny(tmp_path, *some, enough)).privacy is not None


@pytest.mark.parametrize(("how", "factor"), [("each_full", 1.0), ("split", 2**-0.5)])
def test_the_counts_noise_is_what_its_multiplier_says(tiny, tmp_path, how, factor):
    """What the accountant takes it for: sigma_b from each server, or of both together."""
    privacy = QUANTILE + f", noise_multiplier: 2, noise: {how}, quantile: {{bit_noise_multiplier: 1.5}}}}"
    plan = plan_of(tiny(tmp_path, privacy))
    assert plan.privacy.bit_noise_multiplier == 1.5
    assert plan.terms.count_stddev == pytest.approx(1.5 * factor, rel=1e-12)
    assert plan.terms.noise_stddev == pytest.approx(2.0 * plan.privacy.sensitivity * factor, rel=1e-12)
    engine, counts = PlaintextEngine(replace(plan, min_cohort=0)), []
    engine.start(np.zeros(1))
    for number in range(1, 1001):
        engine.prepare(number, 0, plan.terms)
        counts.append(engine.aggregate(number, []).within)
    assert np.std(counts) == pytest.approx(1.5 * factor * 2**0.5, rel=5 / 2000**0.5)


def test_the_budget_pays_for_the_counts(tiny, tmp_path):
    privacy = QUANTILE + ", noise_multiplier: 2, delta: 1e-3, quantile: {bit_noise_multiplier: 1.5}}"
    config = tiny(tmp_path, privacy, "federation.rounds=3")
    folder, _ = run(config)
    plan = PrivacyPlan("fixed", 6, 3, 2.0, 1e-3, bit_noise_multiplier=1.5)
    assert epsilons(folder) == [plan.epsilon(rounds) for rounds in (1, 2, 3)]
    assert plan.epsilon(3) > PrivacyPlan("fixed", 6, 3, 2.0, 1e-3).epsilon(3)
    report = privacy_report(folder, config)
    assert (report["bit_noise_multiplier"], report["epsilon"]) == (1.5, plan.epsilon(3))


@pytest.mark.parametrize("noise", ["", ", noise_multiplier: 2, quantile: {bit_noise_multiplier: 0.5}"])
def test_a_resumed_run_goes_on_with_its_clip_bound(tiny, tmp_path, noise):
    config = tiny(tmp_path, "federation.rounds=5", QUANTILE + noise + "}")
    folder = RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, folder, observe=partial(crash_after, 3))
    bound = folder.load().clip_norm
    results = []
    train(config, folder, resume=True, observe=results.append)
    rows = folder.records()
    assert results[0].clip_norm == rows[3]["clip_norm"] == bound != 0.5
    rate, target = config.privacy.quantile.learning_rate, config.privacy.quantile.target
    assert bound == pytest.approx(
        rows[2]["clip_norm"] * np.exp(-rate * (rows[2]["updates_within_clip_norm"] / 3 - target))
    )
    if not noise:
        assert [row["clip_norm"] for row in rows] == [row["clip_norm"] for row in run(config)[0].records()]


@pytest.mark.parametrize("multiplier", [1e-3, 1e6])
def test_noise_of_the_count_beyond_the_ring_is_a_setting_at_fault(tiny, tmp_path, multiplier):
    quantile = f", noise_multiplier: 1, quantile: {{bit_noise_multiplier: {multiplier}}}}}"
    with pytest.raises(ConfigError, match=r"^privacy\.quantile\.bit_noise_multiplier = .* expected 0\.0625 to 13107"):
        run(tiny(tmp_path, QUANTILE + quantile))
