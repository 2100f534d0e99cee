"""Who takes part in a round, and that engines and servers are told the same."""

from __future__ import annotations

import stat
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from orchestrator.agreement.from_settings import plan_of
from orchestrator.client.host import Clients
from orchestrator.config import FederationConfig
from orchestrator.coordinator import population
from orchestrator.coordinator.client_pool import ClientPool
from orchestrator.coordinator.cohorts import clients_config, sample_cohort
from orchestrator.coordinator.factory import create_engine
from orchestrator.coordinator.plaintext import PlaintextEngine
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.errors import RunError
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.privacy.plan import PrivacyPlan
from orchestrator.reports.run import privacy_report
from orchestrator.seeding import derived_seed
from tests.training_runs import Crash, CrashingFolder, run

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("engine.name=embedded",), ["cohort of 3 without differential privacy: each member can learn much"]),
        (("engine.name=mpspdz", "federation.cohort=1"), ["cohort of 1 without differential privacy"]),
        (("engine.name=embedded", "federation.cohort=4"), []),
        (("engine.name=embedded", "privacy={clip_norm: 1, noise_multiplier: 1}", "method.stateful=false"), []),
        (
            ("engine.name=embedded", "privacy={clip_norm: 1, noise_multiplier: 1}"),
            ["clients keep state, so that epsilon"],
        ),
        (("engine.name=plaintext",), []),
    ],
)
def test_a_run_on_shares_whose_cohort_hides_nobody_says_so_once(tiny, tmp_path, overrides, said):
    config, lines = tiny(tmp_path, *overrides), []
    engine = PlaintextEngine(plan_of(config))  # for what is said: any
    train(config, RunFolder.create(config), announce=lines.append, engine=engine)
    assert len(lines) == len(said) and all(map(str.startswith, lines, said))


KEY = bytes(range(16))


@given(
    st.integers(1, 40), st.data(), st.integers(0, 2**40) | st.binary(min_size=16, max_size=16), st.integers(1, 10**6)
)
def test_a_distinct_cohort_is_distinct_reproducible_and_in_range(clients, data, seed, round):
    federation = FederationConfig(cohort=data.draw(st.integers(1, clients)))
    cohort = sample_cohort(federation, clients, seed, round)
    assert len(cohort) == len(set(cohort)) == federation.cohort and set(cohort) <= set(range(clients))
    assert cohort == sample_cohort(federation, clients, seed, round)
    assert all(type(client) is int for client in cohort)


@given(st.integers(1, 20), st.data(), st.integers(1, 60), st.sampled_from([31, KEY]))
def test_in_cyclic_cohorts_turns_lie_as_far_apart_as_can_be_and_nobody_has_more_than_its_share(
    clients, data, rounds, seed
):
    federation = FederationConfig(cohort=data.draw(st.integers(1, clients)), sampling="cyclic")
    plan = PrivacyPlan("cyclic", clients, federation.cohort, 1.0, 1e-5)
    turns: dict[int, list[int]] = {client: [] for client in range(clients)}
    for round in range(1, rounds + 1):
        cohort = sample_cohort(federation, clients, seed, round)
        assert len(cohort) == len(set(cohort)) == federation.cohort
        for client in cohort:
            turns[client].append(round)
    for taken in turns.values():
        assert plan.turns(rounds) - 1 <= len(taken) <= plan.turns(rounds)
        assert all(after - before >= clients // federation.cohort for before, after in pairwise(taken))


@pytest.mark.parametrize("seed", [31, KEY])
@pytest.mark.parametrize("sampling", ["distinct", "with_replacement"])
def test_cohorts_are_uniform_in_every_slot(sampling, seed):
    federation = FederationConfig(cohort=3, sampling=sampling)
    cohorts = np.array([sample_cohort(federation, 10, seed, round) for round in range(1, 3001)])
    for slot in range(3):
        assert chisquare(np.bincount(cohorts[:, slot], minlength=10)).pvalue > 1e-4
    pairs = np.bincount(cohorts[:, 0] * 10 + cohorts[:, 1], minlength=100).reshape(10, 10)
    possible = ~np.eye(10, dtype=bool) if sampling == "distinct" else np.ones((10, 10), dtype=bool)
    assert chisquare(pairs[possible]).pvalue > 1e-4
    assert (pairs.diagonal().sum() == 0) == (sampling == "distinct")


@pytest.mark.parametrize("seed", [31, KEY])
def test_poisson_cohorts_hold_each_client_independently_with_the_sampling_rate(seed):
    federation = FederationConfig(cohort=3, sampling="poisson")
    taken = np.zeros((4000, 12), dtype=bool)
    for round in range(len(taken)):
        cohort = sample_cohort(federation, 12, seed, round + 1)
        assert cohort == sorted(set(cohort)) == sample_cohort(federation, 12, seed, round + 1)
        taken[round, cohort] = True
    assert chisquare(taken.sum(axis=0)).pvalue > 1e-4
    sizes = np.bincount(taken.sum(axis=1), minlength=13)
    expected = len(taken) * binom.pmf(np.arange(13), 12, 0.25)
    assert chisquare([*sizes[:7], sizes[7:].sum()], [*expected[:7], expected[7:].sum()]).pvalue > 1e-4
    assert sizes[0] > 0  # empty rounds exist
    assert np.abs(np.corrcoef(taken.T) - np.eye(12)).max() < 5 / len(taken) ** 0.5


def test_engines_are_told_the_size_of_every_poisson_cohort_and_an_empty_one_is_a_round(tiny, tmp_path):
    events: list[tuple] = []

    class Spy(PlaintextEngine):
        def prepare(self, round, size, terms=None):
            events.append(("prepare", round, size))
            super().prepare(round, size, terms)

        def aggregate(self, round, cohort):
            events.append(("aggregate", round, len(cohort)))
            return super().aggregate(round, cohort)

    config = tiny(tmp_path, "federation={sampling: poisson, cohort: 1, rounds: 12}")
    folder, results = run(config, engine=Spy(plan_of(config)), graph=load_graph(config.data, config.seed))
    sizes = [len(sample_cohort(config.federation, 6, config.seed, round)) for round in range(1, 13)]
    assert 0 in sizes and len(set(sizes)) > 2
    assert [len(result.cohort) for result in results] == sizes
    assert events == [(kind, k + 1, size) for k, size in enumerate(sizes) for kind in ("prepare", "aggregate")]
    assert [row["round"] for row in folder.records()] == [*range(1, 13)]
    before = [None, *(result.parameters for result in results)]
    for k, size in enumerate(sizes):
        assert size or k == 0 or np.array_equal(results[k].parameters, before[k])


@pytest.mark.parametrize("rule", ["f2gnn", "fedavg"])
@pytest.mark.parametrize("sensitivity", ["worst_case", "bounded_weights"])
def test_poisson_cohorts_of_every_size_are_audited_on_shares(tiny, tmp_path, rule, sensitivity):
    federation = "federation={sampling: poisson, cohort: 1, rounds: 8}"
    privacy = f"privacy={{clip_norm: 0.05, sensitivity: {sensitivity}}}"
    config = tiny(tmp_path, federation, f"method.name={rule}", privacy, "engine.name=embedded")
    _, results = run(config, audit=True)
    sizes = [len(result.cohort) for result in results]
    assert {0, 1, 3} == set(sizes)
    for result, size in zip(results, sizes, strict=True):
        if size:
            assert result.difference <= result.bound < 1e-5 and result.cost.upload_bytes > 0
        else:
            assert (result.difference, result.cost.upload_bytes, result.cost.preprocessing_seconds) == (None, 0, 0.0)
            assert result.cost.rounds == 1  # the servers agree that there is nobody


def test_other_rounds_and_seeds_draw_other_cohorts():
    federation = FederationConfig(cohort=3)
    seeds = (1, 2, KEY, bytes(16))
    drawn = {tuple(sample_cohort(federation, 1000, seed, round)) for seed in seeds for round in range(1, 50)}
    assert len(drawn) == 4 * 49


def test_the_cohort_is_known_before_anything_is_uploaded(tiny, tmp_path):
    events: list[tuple] = []

    class Spy(PlaintextEngine):
        def prepare(self, round, size, terms=None):
            events.append(("prepare", round, size))
            super().prepare(round, size, terms)

        def submit(self, round, slot, client, upload):
            events.append(("submit", round, slot, client))
            super().submit(round, slot, client, upload)

        def aggregate(self, round, cohort):
            events.append(("aggregate", round, tuple(cohort)))
            return super().aggregate(round, cohort)

        def close(self):
            events.append(("close",))

    config = tiny(tmp_path)
    graph = load_graph(config.data, config.seed)
    run(config, engine=Spy(plan_of(config)), graph=graph)
    cohorts = {round: sample_cohort(config.federation, 6, config.seed, round) for round in (1, 2)}
    for round, cohort in cohorts.items():
        submitted = {(event[2], event[3]) for event in events if event[:2] == ("submit", round)}
        assert submitted == set(enumerate(cohort))
        assert ("aggregate", round, tuple(cohort)) in events
    assert [event for event in events if event[0] != "submit"] == [
        ("prepare", 1, 3),
        ("aggregate", 1, tuple(cohorts[1])),
        ("prepare", 2, 3),
        ("aggregate", 2, tuple(cohorts[2])),
        ("close",),
    ]


@pytest.mark.parametrize("sampling", ["distinct", "with_replacement", "poisson"])
def test_records_say_who_took_part(tiny, tmp_path, sampling):
    folder, results = run(tiny(tmp_path, f"federation.sampling={sampling}", "engine.client_processes=1"))
    assert [row["cohort"] for row in folder.records()] == [result.cohort for result in results]
    assert "cohort" not in (folder.path / "metrics.csv").read_text()


def test_with_noise_records_do_not_say_who_took_part(tiny, tmp_path):
    """An outsider's epsilon counts on nobody knowing, and records are what people pass on."""
    folder, _ = run(tiny(tmp_path, "privacy={clip_norm: 0.5, noise_multiplier: 2, delta: 1e-3}"))
    assert all("cohort" not in row for row in folder.records()) and folder.records()


NOISY = "privacy={clip_norm: 0.5, noise_multiplier: 2, delta: 1e-3}"


def test_with_noise_cohorts_follow_from_a_key_that_no_setting_tells(tiny, tmp_path):
    """For whoever knows the cohorts the epsilon of an outsider is false, and seeds stand in presets."""
    config, cohorts = tiny(tmp_path, NOISY, "federation.rounds=8", "engine.client_processes=1"), []
    for _ in range(2):
        folder, results = run(config)
        cohorts.append([result.cohort for result in results])
        file = folder.path / "checkpoint" / "secret.key"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and len(file.read_bytes()) == 16
        key = folder.cohort_seed(config)
        assert cohorts[-1] == [sample_cohort(config.federation, 6, key, round) for round in range(1, 9)]
        told = [path for path in folder.path.rglob("*") if path.is_file() and path != file]
        assert told and all(key not in path.read_bytes() and key.hex() not in path.read_text("latin1") for path in told)
    cohorts.append([sample_cohort(config.federation, 6, config.seed, round) for round in range(1, 9)])
    assert cohorts[0] != cohorts[1] != cohorts[2] != cohorts[0]
    plain = tiny(tmp_path)
    folder, results = run(plain)
    assert folder.cohort_seed(plain) == plain.seed and not (folder.path / "checkpoint" / "secret.key").exists()


def test_with_noise_clients_have_seeds_of_their_own_that_do_not_tell_the_runs(tiny, tmp_path, monkeypatch):
    told = []

    class Spy(ClientPool):
        def __init__(self, graphs, config, **options):
            told.append(config)
            super().__init__(graphs, config, **options)

    monkeypatch.setattr(population, "ClientPool", Spy)
    config, plain = tiny(tmp_path, NOISY, "federation.rounds=1"), tiny(tmp_path, "federation.rounds=1")
    folder, _ = run(config)
    run(plain)
    assert told[0] == clients_config(config, folder.cohort_seed(config)) and told[1] == plain
    assert told[0].seed != config.seed != clients_config(config, KEY).seed != told[0].seed
    graphs = client_graphs(load_graph(config.data, config.seed), config.clients, config.seed)
    seeds = [Clients(graphs, told[0])[c].config.seed for c in (0, 1, 0)]
    assert seeds[0] == seeds[2] != seeds[1] and not {config.seed, told[0].seed} & {*seeds}
    assert seeds[0] != derived_seed(config.seed, "client", 0)
    assert Clients(graphs, plain)[0].config.seed == plain.seed


def test_with_noise_a_repeated_round_has_the_same_cohort_and_the_same_training(tiny, tmp_path):
    """It was charged as a second result of one sample, not as a second sample."""
    config, drawn, folder = tiny(tmp_path, NOISY, "federation.rounds=5"), {}, None
    folder = RunFolder.create(config)
    for resume in (False, True):
        engine = create_engine(config)
        aggregate, submit, sent = engine.aggregate, engine.submit, {}

        def watch(number, cohort, aggregate=aggregate, sent=sent):
            drawn.setdefault(number, []).append((cohort, sent.pop(number)))
            return aggregate(number, cohort)

        def take(number, slot, client, upload, submit=submit, sent=sent):
            sent.setdefault(number, {})[slot] = upload.delta
            submit(number, slot, client, upload)

        engine.aggregate, engine.submit = watch, take
        try:
            train(
                config, RunFolder(folder.path) if resume else CrashingFolder(folder.path), resume=resume, engine=engine
            )
        except Crash:
            assert not resume
    assert {number: len(times) for number, times in drawn.items()} == {1: 1, 2: 1, 3: 1, 4: 2, 5: 1}
    (first, before), (second, after) = drawn[4]
    assert first == second and before.keys() == after.keys()
    for slot in before:
        np.testing.assert_array_equal(before[slot], after[slot])


@pytest.mark.parametrize(("damage", "said"), [(None, "nobody else knows who took part"), (b"short", "found 5")])
def test_a_run_with_noise_is_not_resumed_without_its_key(tiny, tmp_path, damage, said):
    config = tiny(tmp_path, NOISY, "federation.rounds=1")
    folder, _ = run(config)
    key = folder.path / "checkpoint" / "secret.key"
    key.unlink() if damage is None else key.write_bytes(damage)
    for ask in (partial(train, config, folder, resume=True), partial(privacy_report, folder, config)):
        with pytest.raises(RunError, match=said) as caught:
            ask()
        assert str(caught.value).startswith(str(key)) and "\n" not in str(caught.value)


def test_a_charge_belongs_to_the_cohorts_and_the_rule_that_it_was_made_for(tiny, tmp_path):
    """Another key would recount in how many rounds a client was drawn, and what a server knows."""
    config = tiny(tmp_path, NOISY, "federation.rounds=1")
    folder, _ = run(config)
    with pytest.raises(RunError, match="counted for other settings"):
        privacy_report(folder, config.changed(method={"name": "fedavg"}))
    (folder.path / "checkpoint" / "secret.key").write_bytes(KEY)
    with pytest.raises(RunError, match="counted for other settings"):
        privacy_report(folder, config)
