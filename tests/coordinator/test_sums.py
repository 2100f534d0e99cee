"""Secure sums: exact but for fixed point, clipped and noised on shares, charged, kept for a resumed run."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest

from orchestrator import registry
from orchestrator.agreement.from_settings import plan_of
from orchestrator.agreement.sum_plan import sum_plan
from orchestrator.client.host import Clients as hosted
from orchestrator.client.summands import as_update
from orchestrator.config import Config
from orchestrator.coordinator.client_pool import ClientPool
from orchestrator.coordinator.factory import create_sum_engine
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.sums import Summation, Total
from orchestrator.coordinator.training import train
from orchestrator.errors import CohortError, ConfigError, RangeError, RunError
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.methods.base import LocalUpdate
from orchestrator.privacy.budget import Budget
from orchestrator.privacy.plan import NoisySum, PrivacyPlan
from orchestrator.privacy.release import Release
from orchestrator.registry import Method
from orchestrator.reports.run import no_epsilon, privacy_report
from orchestrator.secure_sum import SecureSum
from orchestrator.wire.message import Place
from tests.training_runs import Crash, crash_after, run

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")

ENTRY = Method("tests.examples.counting:Counting", "tests.examples.counting:CountingSettings", "fedavg")
COHORTS = {part: f"tests.examples.counting:Cohorts{end}" for part, end in (("client", ""), ("settings", "Settings"))}
COUNTING = ("method.name=counting", "federation.rounds=1")
PLAN = plan_of(Config())
PLAINTEXT = Config(engine={"name": "plaintext"})


@pytest.fixture(autouse=True)
def counting(monkeypatch):
    monkeypatch.setitem(registry.METHODS, "counting", ENTRY)
    monkeypatch.setitem(registry.METHODS, "cohorts", replace(ENTRY, **COHORTS))


@dataclass
class Clients:
    """Stands for the pool: each client's numbers by its number, or the error that it failed with."""

    numbers: dict[int, Any]
    encode: Any = None

    def contribute(self, round, clients, summand, bound, length, encoder, deliver):
        missing = {}
        for slot, client in enumerate(clients):
            own = self.numbers[client]
            if isinstance(own, Exception):
                missing[slot] = own
            else:
                update = self.encode(own) if self.encode else as_update(own, bound, length)
                deliver(slot, client, encoder(update, Place(round, slot, client)))
        return missing


def numbers(clients: int, length: int, norm: float) -> dict[int, np.ndarray]:
    generator = np.random.default_rng(5)
    drawn = [generator.normal(size=length) for _ in range(clients)]
    return {c: own * norm / np.linalg.norm(own) for c, own in enumerate(drawn)}


@pytest.fixture(scope="module", params=["plaintext", "embedded"])
def added(request):
    """``added(numbers, encode=None)``: the next total of one sum, of up to six clients and seven numbers each."""
    config = Config(engine={"name": request.param, "preprocessing": "dealer"})
    described = SecureSum("some", 50.0, lambda sizes: 7)
    with Summation(
        described, 7, create_sum_engine(sum_plan(described, 6, plan_of(config)), config.engine)
    ) as summation:
        rounds = count(1)

        def total(own: dict[int, Any], encode: Any = None) -> Total:
            return summation.total(next(rounds), range(len(own)), Clients(own, encode), None)

        yield total


def test_the_sum_is_that_of_the_clients_each_time_it_is_asked_for(added):
    """A second release does not begin at the first one."""
    own = numbers(6, 7, norm=49.0)
    for total in (added(own), added(own)):
        error = np.abs(total.numbers - sum(own.values())).max()
        plan = sum_plan(SecureSum("some", 50.0, len), 6, PLAN)
        assert error <= 50.0 * plan.error_bound(6, 1.0) < 1e-5
        assert total.left_out == {} and total.cost.upload_bytes > 0


def test_whoever_brings_more_than_the_bound_is_clipped_also_where_he_does_not_do_so_himself(added):
    own = numbers(6, 7, norm=20.0)
    own[3] = own[3] * 400  # which the ring would not hold
    expected = sum(own.values()) - own[3] * (1 - 50.0 / 8000.0)
    np.testing.assert_allclose(added(own).numbers, expected, atol=1e-5)

    own = {c: (400.0 / np.linalg.norm(x)) * x for c, x in own.items()}
    lied = added(own, lambda x: LocalUpdate(x / -50.0, 400.0 / 50.0, {}))
    np.testing.assert_allclose(lied.numbers, sum(own.values()) / 8, atol=1e-4)


@pytest.mark.parametrize(
    ("engine", "how", "sampling", "factor"),
    [
        ("plaintext", "each_full", "poisson", 2**0.5),
        ("plaintext", "split", "distinct", 2.0),
        ("embedded", "each_full", "distinct", 2.0 * 2**0.5),
    ],
)
def test_noise_is_scaled_by_how_far_one_client_can_move_the_sum(engine, how, sampling, factor):
    """Twice the bound where one client is exchanged for another, the bound where one comes or goes."""
    config = Config(
        engine={"name": engine, "preprocessing": "dealer"},
        federation={"sampling": sampling},
        privacy={"clip_norm": 1.0, "noise_multiplier": 1.0, "noise": how},
    )
    described = SecureSum("some", 50.0, lambda sizes: 4000, 1.5)
    plan = sum_plan(described, 4, plan_of(config))
    with Summation(described, 4000, create_sum_engine(plan, config.engine)) as summation:
        total = summation.total(1, range(4), Clients({c: np.zeros(4000) for c in range(4)}), None)
    ratio = total.numbers.std() / (1.5 * factor * 50.0)
    assert abs(ratio - 1) < 5 / (2 * 4000) ** 0.5


def test_a_client_that_fails_costs_its_own_part(added):
    own: dict[int, Any] = numbers(6, 7, norm=10.0)
    own[2] = RangeError("has none")
    total = added(own)
    assert total.left_out == {2: "has none"}
    np.testing.assert_allclose(total.numbers, sum(x for c, x in own.items() if c != 2), atol=1e-5)


def test_too_few_clients_have_no_sum():
    own: dict[int, Any] = numbers(6, 7, norm=10.0) | {c: RangeError("has none") for c in (0, 1, 2)}
    described = SecureSum("some", 50.0, lambda sizes: 7)
    plan = sum_plan(described, 6, plan_of(PLAINTEXT))
    with (
        Summation(described, 7, create_sum_engine(plan, PLAINTEXT.engine)) as summation,
        pytest.raises(CohortError, match=r"clients 0, 1, 2.*has none; 3 of 6 clients remain, fewer than .* = 4"),
    ):
        summation.total(1, range(6), Clients(own), None)


def test_numbers_of_another_length_are_refused():
    with pytest.raises(RangeError, match=r"^its numbers for the sum have shape \(2,\), expected \(3,\)$"):
        as_update(np.zeros(2), 1.0, 3)


@pytest.mark.parametrize(
    ("described", "clients", "reason"),
    [
        ({"bound": 0.0}, 6, "a bound of 0; expected a number above 0"),
        ({"noise_multiplier": 1e-7}, 6, "a noise multiplier of 1e-07; expected 0, or a number from 1e-06 to 1e"),
        ({"noise_multiplier": 1e-5}, 1000, "a noise multiplier of 1e-05 is too fine for the ring's grid; raise it"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(described, clients, reason):
    with pytest.raises(ConfigError) as caught:
        sum_plan(SecureSum("some", **({"bound": 1.0, "length": len} | described)), clients, PLAN)
    assert str(caught.value).startswith(f"the sum 'some': {reason}")


# In a run


def counts(config) -> np.ndarray:
    """Training nodes of each class, over all clients."""
    parts = client_graphs(load_graph(config.data, config.seed), config.clients, config.seed)
    return np.sum([np.bincount(part.labels[part.train], minlength=2) for part in parts], axis=0)


@pytest.mark.parametrize("engine", ["plaintext", "embedded"])
def test_clients_add_up_what_their_method_asks_for_and_a_resumed_run_tells_it_again(
    tiny, tmp_path, monkeypatch, engine
):
    config, told, said = tiny(tmp_path, *COUNTING, "federation={rounds: 2, cohort: 4}", f"engine.name={engine}"), [], []
    hear = ClientPool.hear_total
    monkeypatch.setattr(ClientPool, "hear_total", lambda self, *total: (told.append(total), hear(self, *total)))
    folder = RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, folder, observe=partial(crash_after, 1), announce=said.append)
    [(name, total)] = told
    np.testing.assert_allclose(total, counts(config), atol=1e-3)
    assert name == "classes" and said == ["clients added up 'classes' on shares"]
    facts = folder.preparation()["sums"]["classes"]
    assert facts["numbers"] == 2 and facts["left_out"] == [] and facts["upload_bytes"] > 0
    if engine == "embedded":
        return
    train(config, folder, resume=True, announce=said.append)
    assert len(said) == 1 and len(told) == 2
    np.testing.assert_array_equal(told[1][1], total)
    assert folder.preparation()["sums"]["classes"] == facts
    (folder.state_dir / "state.npz").unlink()
    (folder.path / "metrics.jsonl").unlink()
    with pytest.raises(RunError, match="holds rounds of a run already"):  # its sums were released
        train(config, folder)


NOISY = "privacy={clip_norm: 0.5, noise_multiplier: 2, delta: 1e-3, accountant: rdp"


@pytest.mark.parametrize(
    ("sampling", "sampler", "how"), [("distinct", "fixed", "each_full"), ("poisson", "poisson", "split")]
)
def test_a_sum_is_charged_beside_the_rounds_for_every_observer(tiny, tmp_path, sampling, sampler, how):
    settings = (*COUNTING, "method={stateful: false, counts_noise: 3}", f"federation.sampling={sampling}")
    config = tiny(tmp_path, *settings, NOISY + f", noise: {how}}}")
    folder, [result] = run(config)
    rounds = PrivacyPlan(sampler, 6, 3, 2.0, 1e-3, "rdp", noise=how)
    both, one = (3.0 * 2**0.5, 3.0) if how == "each_full" else (3.0, 3.0 / 2**0.5)
    alone = {"outsider": both, "client": both, "server": one}
    report = privacy_report(folder, config)
    for view, sigma in alone.items():
        own = rounds.new_accountant().compose(rounds.release(view))
        own.compose(Release("known", 6, 6, sigma))  # sampling hides nobody
        assert report["views"][view] == pytest.approx(own.epsilon(1e-3), rel=1e-6)
        assert own.epsilon(1e-3) > rounds.epsilon(1, view)
    assert result.epsilon == report["epsilon"] == report["views"]["outsider"]
    plan = replace(rounds, sums=(NoisySum("classes", 3.0),))
    assert report["epsilon"] == plan.epsilon(1)


def test_a_sum_without_noise_in_a_run_with_noise_leaves_no_epsilon_and_says_why(tiny, tmp_path):
    config, said = tiny(tmp_path, *COUNTING, NOISY + "}"), []
    folder, [result] = run(config, announce=said.append)
    reason = "the sum 'classes' over clients is released without noise"
    assert no_epsilon(config) == reason and f"no epsilon is stated: {reason}" in said
    assert result.epsilon is None is privacy_report(folder, config)
    with pytest.raises(ConfigError, match=rf"^privacy\.epsilon_budget: no epsilon can be stated: {reason}"):
        run(tiny(tmp_path, *COUNTING, NOISY + ", epsilon_budget: 50}"))


def test_a_budget_counts_the_sums_before_there_is_one(tiny, tmp_path):
    noisy = (*COUNTING, "method={stateful: false, counts_noise: 0.5}")
    plan = PrivacyPlan("fixed", 6, 3, 2.0, 1e-3, "rdp")
    limit = replace(plan, sums=(NoisySum("classes", 0.5),)).epsilon(1) * 0.999
    assert plan.epsilon(1) < limit
    with pytest.raises(ConfigError, match="does not allow a single round"):
        run(tiny(tmp_path, *noisy, NOISY + f", epsilon_budget: {limit}}}"))


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_sum_is_paid_for_before_it_exists_and_once_if_it_was_kept(tiny, tmp_path, monkeypatch, moment):
    """A crash before the total is on the disk repeats it, and pays twice; a crash later does not."""
    config = tiny(tmp_path, *COUNTING, "method={stateful: false, counts_noise: 3}", NOISY + "}")
    folder, total, keep = RunFolder.create(config), Summation.total, RunFolder.save_totals

    def crash(self, *arguments):
        assert folder.load_privacy()["sums"] == {"classes": 1}
        if moment == "after":
            keep(self, *arguments)
        raise Crash

    paid, released = [], []
    monkeypatch.setattr(Summation, "total", lambda self, *a: paid.append(folder.load_privacy()) or total(self, *a))
    monkeypatch.setattr(RunFolder, "save_totals", crash)
    with pytest.raises(Crash):
        train(config, folder)
    assert [state and state["sums"] for state in paid] == [{"classes": 1}]
    monkeypatch.setattr(RunFolder, "save_totals", keep)
    monkeypatch.setattr(Summation, "total", lambda self, *a: released.append(total(self, *a)) or released[-1])
    train(config, folder, resume=True)
    times = 2 if moment == "before" else 1
    assert folder.load_privacy()["sums"] == {"classes": times} and len(released) == times - 1
    plan = PrivacyPlan("fixed", 6, 3, 2.0, 1e-3, "rdp")
    paid = plan.new_accountant().compose(plan.release())
    paid.compose(plan.sum_release(NoisySum("classes", 3.0)), times)
    assert folder.records()[-1]["epsilon"] == plan.stated(paid, 1, times)


def test_clients_hear_a_sum_whether_they_were_made_before_or_are_after(tiny, tmp_path):
    config = tiny(tmp_path, *COUNTING)
    parts = client_graphs(load_graph(config.data, config.seed), config.clients, config.seed)
    clients, total = hosted(parts, config), np.array([3.0, 4.0])
    before = clients[0]
    clients.hear("classes", total)
    assert before.heard is total is clients[1].heard


def test_what_was_counted_with_other_sums_is_no_account_of_these():
    plan, charged = PrivacyPlan("fixed", 6, 3, 2.0, 1e-3), (NoisySum("classes", 3.0), NoisySum("numbers", 3.0))
    state = Budget(replace(plan, sums=charged[:1])).state()
    Budget(replace(plan, sums=charged[:1])).restore(state)
    for sums in ((), charged[1:], charged, (NoisySum("classes", 4.0),), (NoisySum("classes", 3.0, 1),)):
        with pytest.raises(RunError, match="was counted for other settings"):
            Budget(replace(plan, sums=sums)).restore(state)


def test_a_kept_sum_that_nobody_charged_ends_the_run(tiny, tmp_path):
    config = tiny(tmp_path, *COUNTING, "federation.rounds=2", "method={stateful: false, counts_noise: 3}", NOISY + "}")
    folder = RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, folder, observe=partial(crash_after, 1))
    path = folder.state_dir / "privacy.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps({**state, "sums": {}}))
    with pytest.raises(RunError, match="holds the sum 'classes', but no account of it"):
        train(config, folder, resume=True)
    path.write_text(json.dumps({**state, "sums": {"other": 1}}))
    with pytest.raises(RunError, match="it counts a sum 'other' that the plan does not have"):
        train(config, folder, resume=True)


# In a round, over its cohort


@pytest.mark.parametrize(("engine", "sampling"), [("plaintext", "distinct"), ("embedded", "poisson")])
def test_each_rounds_cohort_adds_up_its_own_numbers_and_everybody_hears_the_last_sum(
    tiny, tmp_path, monkeypatch, engine, sampling
):
    federation = f"federation={{rounds: 4, cohort: 4, sampling: {sampling}}}"
    config, told = tiny(tmp_path, "method.name=cohorts", federation, f"engine.name={engine}"), []
    hear = ClientPool.hear_total
    monkeypatch.setattr(ClientPool, "hear_total", lambda *a: (told.append(a[1:]), hear(*a)))
    folder, results = RunFolder.create(config), []
    with pytest.raises(Crash):
        train(config, folder, observe=lambda result: (results.append(result), crash_after(3, result)))
    assert len({tuple(sorted(result.cohort)) for result in results}) > 1
    for (name, total), result in zip(told, results, strict=True):
        np.testing.assert_allclose(total, [sum(c + 1 for c in result.cohort), len(result.cohort)], atol=1e-4)
        assert name == "numbers" and result.costs()["sums_upload_bytes_per_client"] >= 16 * bool(result.cohort)
    assert folder.records()[0]["numbers_left_out"] == []
    if engine == "embedded":
        return
    train(config, folder, resume=True)
    assert len(told) == 5
    np.testing.assert_array_equal(told[3][1], told[2][1])


@pytest.mark.parametrize(("sampling", "sampler"), [("distinct", "fixed"), ("poisson", "poisson")])
def test_a_cohorts_sum_and_the_model_are_one_mechanism_on_one_sample(tiny, tmp_path, sampling, sampler):
    settings = ("method={name: cohorts, stateful: false, sum_noise: 3}", f"federation.sampling={sampling}")
    config = tiny(tmp_path, *settings, NOISY + "}")
    folder, results = run(config)
    plan = PrivacyPlan(sampler, 6, 3, (2.0**-2 + 3.0**-2) ** -0.5, 1e-3, "rdp")
    assert [result.epsilon for result in results] == pytest.approx([plan.epsilon(1), plan.epsilon(2)], rel=1e-9)
    views = privacy_report(folder, config)["views"]
    assert views["client"] == pytest.approx(plan.epsilon(2, "client"), rel=1e-9)
    most = privacy_report(folder, config)["participations"]
    assert views["server"] == pytest.approx(plan.epsilon(most, "server"), rel=1e-9)
    bare = tiny(tmp_path, "method={name: cohorts, stateful: false}", NOISY + "}")
    assert no_epsilon(bare) == "the sum 'numbers' over clients is released without noise"


def test_two_sums_of_one_name_are_refused(tiny, tmp_path, monkeypatch):
    """One of them would be charged for the other."""
    settings = registry.load(ENTRY.settings)
    monkeypatch.setattr(settings, "statistics", lambda self: [SecureSum("same", 1.0, len)] * 2)
    with pytest.raises(ConfigError, match=r"^method\.name = counting: there are two sums 'same'$"):
        plan_of(tiny(tmp_path, *COUNTING))
