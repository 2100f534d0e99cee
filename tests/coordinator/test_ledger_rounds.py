"""Clients that keep a ledger: it counts what the coordinator's account does, and its veto comes before a release."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from orchestrator.agreement.from_settings import plan_of
from orchestrator.client.ledger import Account, read_ledger
from orchestrator.client.plain import plain_encoder
from orchestrator.coordinator.client_pool import ClientPool
from orchestrator.coordinator.factory import create_engine
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import ConfigError, RunError
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.privacy.budget import Budget
from orchestrator.privacy.plan import VIEWS, PrivacyPlan
from orchestrator.privacy.together import epsilon_together
from orchestrator.registry import METHODS, Method
from tests.training_runs import Crash, CrashingFolder, run

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")

COUNTING = "tests.examples.counting:"
PLAN = PrivacyPlan("fixed", 6, 3, 2.0, 1e-3, "rdp")


@pytest.fixture
def kept(tiny, tmp_path):
    """``kept("federation.rounds=3", ...)``: settings of a run whose clients keep a ledger, and the ledger."""
    path = tmp_path / "ledger.json"

    def build(*overrides: str, limit: str = "null"):
        noise = "clip_norm: 0.5, noise_multiplier: 2, delta: 1e-3, accountant: rdp"
        settings = (
            "method={name: fedavg, stateful: false}",
            "evaluation={where: nowhere, exact_beside_noise: false}",
            f"privacy={{{noise}, ledger: '{path}', ledger_limit: {limit}}}",
        )
        return tiny(tmp_path, *settings, *overrides)

    return build, path


def counted(path) -> list[tuple[list[int], dict[str, int]]]:
    states = [entry.budget.state() for entry in read_ledger(path).values()]
    return [(state["attempts"], state["sums"]) for state in states]


def charged(folder: RunFolder) -> tuple[list[int], dict[str, int]]:
    state = folder.load_privacy()
    return state["attempts"], state["sums"]


def test_every_run_has_an_entry_that_counts_what_its_own_account_does_and_all_are_one(kept):
    settings, path = kept
    summed = "evaluation={where: clients, tables: summed, every: 2, exact_beside_noise: false}"
    folders = [run(settings(*more, "federation.rounds=3"))[0] for more in ((), (summed,))]
    assert counted(path) == [charged(folder) for folder in folders] == [([1, 1, 1], {}), ([1, 1, 1], {"evaluation": 2})]
    entries = [*read_ledger(path).values()]
    assert [len(entry.rounds) for entry in entries] == [3, 3] and len({entry.data for entry in entries}) == 1
    noisy = plan_of(settings(summed)).privacy.sums[0]
    both = PLAN.new_accountant().compose(PLAN.release(), 6).compose(PLAN.sum_release(noisy), 2)
    assert epsilon_together([e.spent for e in entries], "outsider", 1e-3) == pytest.approx(both.epsilon(1e-3), rel=1e-6)


@pytest.mark.parametrize(("kind", "noise"), [("Counting", "counts_noise"), ("Cohorts", "sum_noise")])
def test_sums_of_everybody_and_of_cohorts_are_counted(kept, monkeypatch, kind, noise):
    entry = Method(f"{COUNTING}{kind}", f"{COUNTING}{kind}Settings", "fedavg")
    monkeypatch.setitem(METHODS, "summing", entry)
    settings, path = kept
    folder, _ = run(settings(f"method={{name: summing, stateful: false, {noise}: 3}}"))
    assert counted(path) == [charged(folder)]


def test_rounds_that_are_repeated_after_a_crash_count_again_and_completed_ones_do_not(kept):
    settings, path = kept
    config = settings("federation.rounds=5")
    folder = CrashingFolder.create(config)
    with pytest.raises(Crash):
        train(config, folder)
    assert counted(path) == [([1, 1, 1, 1], {})]
    train(config, RunFolder.open(folder.path)[0], resume=True)
    assert counted(path) == [charged(folder)] == [([1, 1, 1, 2, 1], {})]


def test_rounds_with_an_empty_cohort_count(kept):
    settings, path = kept
    folder, results = run(settings("federation={sampling: poisson, cohort: 1, rounds: 8}"))
    [entry] = read_ledger(path).values()
    assert counted(path) == [charged(folder)] == [([1] * 8, {})]
    assert entry.rounds == {result.round for result in results if result.cohort}


def test_the_clients_veto_comes_before_a_release_and_what_stands_can_be_ended_in_order(kept):
    settings, path = kept
    config = settings("federation.rounds=9", limit=str((PLAN.epsilon(2) + PLAN.epsilon(3)) / 2))
    folder, released = RunFolder.create(config), []
    with pytest.raises(RunError, match=r"round 3 would bring what these data spent in 1 run to epsilon"):
        train(config, folder, observe=released.append)
    assert len(released) == 2 and charged(folder) == ([1, 1], {}) and counted(path) == [([1, 1], {})]
    train(config.changed(federation={"rounds": 2}), folder, resume=True)
    assert folder.model().exists()
    with pytest.raises(RunError, match="round 1 would bring what these data spent in 2 runs"):
        run(settings(limit=str(PLAN.epsilon(2) * 1.01)))
    assert len(read_ledger(path)) == 1


TURNS = "federation={sampling: cyclic, cohort: 2, rounds: 7}"
IN_TURN = PrivacyPlan("cyclic", 6, 2, 2.0, 1e-3, "rdp")
"""Three rounds are a cycle, and noise has three bands. Hosts of all clients are in every round, and count as one."""


@pytest.mark.parametrize("engine", ["plaintext", "embedded"])
def test_clients_in_turn_count_their_turns_and_pay_for_one_that_is_repeated_within_a_cycle(kept, engine):
    settings, path = kept
    config = settings(TURNS, f"engine={{name: {engine}, preprocessing: dealer}}")
    assert len(plan_of(config).bands) == 2
    folder = CrashingFolder.create(config)
    with pytest.raises(Crash):  # after round 4, the first of the second cycle, whose checkpoint is lost
        train(config, folder)
    assert counted(path) == [([1, 1, 1, 1], {})]
    train(config, RunFolder.open(folder.path)[0], resume=True)
    assert counted(path) == [charged(folder)] == [([1, 1, 1, 2, 1, 1, 1], {})]
    [entry] = read_ledger(path).values()
    assert entry.rounds == set(range(1, 8))
    # As one client in seven rounds, of which one was released twice: sigma / sqrt(2) there. To everybody alike.
    spent = IN_TURN.new_accountant().compose(IN_TURN.release("server"), 6).compose(IN_TURN.release("server", 2))
    for view in VIEWS:
        assert epsilon_together([entry.spent], view, 1e-3) == pytest.approx(spent.epsilon(1e-3), rel=1e-6)
    # The run's own account is of one client, with three turns.
    turns = IN_TURN.new_accountant().compose(IN_TURN.release(), 2).compose(IN_TURN.release(attempts=2))
    own = Budget(plan_of(config).privacy, run=entry.budget.run).restore(folder.load_privacy())
    assert own.epsilon == pytest.approx(turns.epsilon(1e-3), rel=1e-6)


def test_a_veto_in_the_middle_of_a_cycle_comes_before_a_release_and_the_run_can_be_ended(kept):
    settings, path = kept
    known = IN_TURN.release("server")
    four, five = (IN_TURN.new_accountant().compose(known, rounds).epsilon(1e-3) for rounds in (4, 5))
    config = settings(TURNS, limit=str((four + five) / 2))
    folder, released = RunFolder.create(config), []
    with pytest.raises(RunError, match=r"round 5 would bring what these data spent in 1 run to epsilon"):
        train(config, folder, observe=released.append)
    assert [result.round for result in released] == [1, 2, 3, 4]
    assert charged(folder) == ([1, 1, 1, 1], {}) and counted(path) == [([1, 1, 1, 1], {})]
    with pytest.raises(RunError, match="round 5 would bring"):  # asked again it says so again, and counts nothing
        train(config, folder, resume=True)
    assert counted(path) == [([1, 1, 1, 1], {})]
    shorter = config.changed(federation={"rounds": 4})
    train(shorter, folder, resume=True)
    assert folder.model().exists() and counted(path) == [charged(folder)]


def test_who_keeps_a_ledger_lets_out_nothing_that_no_epsilon_counts(kept):
    settings, path = kept
    config = settings()
    graphs = client_graphs(load_graph(config.data, config.seed), config.clients, config.seed)
    with ClientPool(graphs, config, account=Account(PLAN, "run", "session")) as pool:
        pool.train(1, [], np.zeros(1), plain_encoder, print)  # whoever is not in a round counts it
        assert counted(path) == [([1], {})]
        with_plaintext = partial(pool.train, 1, [0], np.zeros(1), plain_encoder, print, plain_encoder)
        for ask in (with_plaintext, partial(pool.evaluate, 1, [0], None, False), partial(pool.models, 1, [0], None)):
            with pytest.raises(RunError, match="asked for what no epsilon counts"):
                ask()
        with pytest.raises(RunError, match="asked for what no epsilon counts"):
            pool.ask(0)
    assert all(not entry.rounds for entry in read_ledger(path).values())


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (("privacy.noise_multiplier=0",), "there is no epsilon that clients could keep account of: the run has no"),
        (("privacy.accountant=null",), "there is no epsilon that clients could keep account of: none was asked for"),
        (("evaluation.exact_beside_noise=true",), "evaluation.exact_beside_noise lets out what no ledger can count"),
    ],
)
def test_what_a_ledger_cannot_count_is_refused_before_the_run(kept, overrides, reason):
    with pytest.raises(ConfigError, match=f"^privacy.ledger: {reason}"):
        create_engine(kept[0](*overrides))
