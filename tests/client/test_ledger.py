"""A client's ledger: charged before anything leaves, once for a release, across runs, and its veto."""

from __future__ import annotations

import json
import stat
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.client import ledger as module
from orchestrator.client.ledger import Account, Ledger, data_digest, read_ledger
from orchestrator.config import ClientsConfig
from orchestrator.errors import BusyError, ConfigError, RunError
from orchestrator.graphs import client_graphs
from orchestrator.privacy.plan import NoisySum, PrivacyPlan
from tests.models.graphs import make_graph

SUMS = (NoisySum("counts", 5.0), NoisySum("losses", 5.0, of_cohort=True))
PLAN = PrivacyPlan("fixed", 30, 3, 2.0, 1e-3, "rdp", sums=SUMS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.json"


@pytest.fixture
def process(path):
    """``process("session", run="one")``: the ledger as a process holds it that hosts clients of these data."""

    def make(
        session: str = "s", run: str = "one", limit: float | None = None, plan: PrivacyPlan | None = PLAN
    ) -> Ledger:
        return Ledger(path, limit, Account(plan, run, session), lambda: "digest")

    return make


def attempts(path, run: str = "one") -> list[int]:
    return read_ledger(path)[run].budget.state()["attempts"]


def test_a_round_is_counted_once_however_many_processes_hear_of_it(process, path):
    first, second, idle = process(), process(), process()
    for number in (1, 2):
        for each in (first, second, idle):
            each.hear(number)
        first.take_part(number)
        second.take_part(number)
    first.hear(3)
    entry = read_ledger(path)["one"]
    assert attempts(path) == [1, 1, 1] and entry.rounds == {1, 2} and entry.data == "digest"
    assert entry.budget.epsilon == replace(PLAN, sums=SUMS[1:]).epsilon(3)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_process_that_is_asked_again_counts_again_whatever_it_is_told(process, path):
    own = process()
    own.take_part(1)
    own.take_part(1)
    own.take_part(2)
    own.add(2, "counts")
    own.add(2, "counts")
    assert attempts(path) == [2, 1] and read_ledger(path)["one"].budget.released("counts") == 2


def test_what_is_repeated_when_a_run_is_resumed_is_paid_for_again_and_nothing_else_is(process, path):
    before, after = process("monday"), process("tuesday")
    for number in (1, 2, 3):
        before.take_part(number)
    for number in (3, 4):
        after.take_part(number)
    assert attempts(path) == [1, 1, 2, 1] and read_ledger(path)["one"].rounds == {1, 2, 3, 4}


def test_rounds_of_others_that_nobody_told_of_are_counted_when_the_next_one_is(process, path):
    process().take_part(5)
    assert attempts(path) == [1, 1, 1, 1, 1] and read_ledger(path)["one"].rounds == {5}


def test_a_sum_of_the_cohort_is_a_part_of_its_round_and_of_no_other(process, path):
    own = process()
    with pytest.raises(RunError, match=r"the sum 'losses' is a part of round 1, which was not asked for$"):
        own.add(1, "losses")
    own.take_part(1)
    own.add(1, "losses")
    with pytest.raises(RunError, match="which was not asked for"):
        own.add(1, "losses")
    with pytest.raises(RunError, match="no epsilon counts it"):
        own.add(1, "secrets")
    assert read_ledger(path)["one"].budget.state()["sums"] == {}


def test_the_limit_is_of_all_runs_together_and_what_would_exceed_it_leaves_no_trace(process, path, caplog):
    plan = replace(PLAN, sums=())
    limit = (plan.epsilon(4) + plan.epsilon(5)) / 2
    one, other = (process(run=run, limit=limit, plan=plan) for run in ("one", "other"))
    for number in (1, 2, 3):
        one.take_part(number)
    other.take_part(1)
    before = path.read_bytes()
    for ask in (
        lambda: other.take_part(2),
        lambda: one.hear(4),
        lambda: process("s", "third", limit, plan).take_part(1),
    ):
        with pytest.raises(RunError) as caught:
            ask()
        message = str(caught.value)
        assert message in caplog.text and "\n" not in message  # at both ends
        for part in (str(path), "these data spent", f"epsilon {plan.epsilon(5):.4g}", "privacy.ledger_limit = "):
            assert part in message
        assert path.read_bytes() == before
    process(run="other", limit=None, plan=plan).take_part(2)


def test_where_clients_take_turns_only_their_own_count_and_each_is_refused_in_time(process, path):
    """Also where a process that has no part in a round hears of it before the one that has."""
    plan = PrivacyPlan("cyclic", 30, 3, 4.0, 1e-3, "rdp")
    known = plan.release("server")
    two, three = (plan.new_accountant().compose(known, turns).epsilon(1e-3) for turns in (2, 3))
    limit = (two + three) / 2
    own, idle = process(plan=plan, limit=limit), process(plan=plan, limit=limit)
    for number in range(1, 12):
        idle.hear(number)
        if number in (3, 7):
            own.take_part(number)
        else:
            own.hear(number)
    entry = read_ledger(path)["one"]
    assert attempts(path) == [1] * 7 and entry.rounds == {3, 7}
    before = path.read_bytes()
    idle.hear(12)
    with pytest.raises(RunError, match="round 12 would bring"):
        own.take_part(12)
    assert path.read_bytes() == before
    with pytest.raises(ConfigError, match="no epsilon is stated"):
        process(plan=None).hear(1)


def test_a_sum_has_to_fit_too(process, path):
    limit = (PLAN.epsilon(1) + replace(PLAN, sums=SUMS[1:]).epsilon(1)) / 2
    own = process(limit=limit)
    own.take_part(1)
    with pytest.raises(RunError, match=r"the sum 'counts' would bring"):
        own.add(1, "counts")


def test_a_charge_is_on_the_disk_before_the_client_goes_on_and_survives_a_crash_whole(process, path, monkeypatch):
    process().take_part(1)
    before = path.read_bytes()

    def crash(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", crash)
    with pytest.raises(RunError, match="cannot be written: No space left"):
        process().take_part(2)
    assert path.read_bytes() == before


def test_a_run_without_an_epsilon_and_one_with_another_plan_are_refused(process, path):
    with pytest.raises(ConfigError, match="no epsilon is stated of this run"):
        process(plan=None).take_part(1)
    assert not path.exists()
    process().take_part(1)
    with pytest.raises(RunError, match="was counted with another plan"):
        process(plan=replace(PLAN, noise_multiplier=3.0)).take_part(2)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"runs": {"one": {}}}', '{"runs": {"one": 3}}', '{"runs": [1]}', "\xff"]
)
def test_a_damaged_ledger_is_one_line_and_nothing_goes_on(process, path, text):
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(RunError) as caught:
        process().take_part(1)
    assert str(caught.value).startswith(f"{path}: is no ledger, or damaged: ") and "\n" not in str(caught.value)
    assert path.read_bytes() == text.encode("latin-1")


def test_a_number_in_the_file_that_cannot_be_is_refused(process, path):
    process().take_part(1)
    for old, new in (('"clients": 30', '"clients": 0'), ('"sampler": "fixed"', '"sampler": "none"')):
        good = path.read_text()
        path.write_text(good.replace(old, new, 1))
        with pytest.raises(RunError, match="is no ledger, or damaged"):
            read_ledger(path)
        path.write_text(good)
    assert json.loads(path.read_text())["runs"].keys() == {"one"}


def test_who_waits_for_the_file_in_vain_says_so(process, path, monkeypatch):
    from filelock import FileLock

    monkeypatch.setattr(module, "_PATIENCE_SEC", 0.0)
    with FileLock(f"{path}.lock"), pytest.raises(BusyError, match="another process has held its lock"):
        process().take_part(1)
    with pytest.raises(RunError, match="there is no folder"):
        Ledger(path.parent / "none" / "l.json", None, Account(PLAN, "one", "s"), str).hear(1)


def test_the_digest_is_of_the_data_and_not_of_how_they_are_used():
    some = np.arange(25) < 10
    graph = replace(make_graph(), train=some)
    cut = [client_graphs(graph, ClientsConfig(count=2, hops=hops), seed) for hops, seed in ((1, 3), (2, 4))]
    assert data_digest(cut[0]) == data_digest(cut[1]) == data_digest([graph])
    assert data_digest([replace(graph, train=~some)]) == data_digest([graph])
    other = [replace(graph, labels=1 - graph.labels), replace(graph, features=graph.features + np.float32(1))]
    assert len({data_digest([each]) for each in (graph, *other)} | {data_digest(other)}) == 4
