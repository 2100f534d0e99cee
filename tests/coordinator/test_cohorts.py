"""Who takes part in a round, and that engines and servers are told the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from orchestrator.config import FederationConfig
from orchestrator.coordinator.cohorts import sample_cohort
from orchestrator.coordinator.plaintext import PlaintextEngine
from orchestrator.coordinator.round_plan import RoundPlan
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.graphs import load_graph
from tests.training_runs import run

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("engine.name=embedded",), ["cohort of 3 without differential privacy: each member can learn much"]),
        (("engine.name=mpspdz", "federation.cohort=1"), ["cohort of 1 without differential privacy"]),
        (("engine.name=embedded", "federation.cohort=4"), []),
        (("engine.name=embedded", "privacy={clip_norm: 1, noise_multiplier: 1}"), []),
        (("engine.name=plaintext",), []),
    ],
)
def test_a_run_on_shares_whose_cohort_hides_nobody_says_so_once(tiny, tmp_path, overrides, said):
    config, lines = tiny(tmp_path, *overrides), []
    engine = PlaintextEngine(RoundPlan.of(config))  # for what is said: any
    train(config, RunFolder.create(config), announce=lines.append, engine=engine)
    assert len(lines) == len(said) and all(map(str.startswith, lines, said))


@given(st.integers(1, 40), st.data(), st.integers(0, 2**40), st.integers(1, 10**6))
def test_a_distinct_cohort_is_distinct_reproducible_and_in_range(clients, data, seed, round):
    federation = FederationConfig(cohort=data.draw(st.integers(1, clients)))
    cohort = sample_cohort(federation, clients, seed, round)
    assert len(cohort) == len(set(cohort)) == federation.cohort and set(cohort) <= set(range(clients))
    assert cohort == sample_cohort(federation, clients, seed, round)
    assert all(type(client) is int for client in cohort)


@pytest.mark.parametrize("sampling", ["distinct", "with_replacement"])
def test_cohorts_are_uniform_in_every_slot(sampling):
    federation = FederationConfig(cohort=3, sampling=sampling)
    cohorts = np.array([sample_cohort(federation, 10, 31, round) for round in range(1, 3001)])
    for slot in range(3):
        assert chisquare(np.bincount(cohorts[:, slot], minlength=10)).pvalue > 1e-4
    pairs = np.bincount(cohorts[:, 0] * 10 + cohorts[:, 1], minlength=100).reshape(10, 10)
    possible = ~np.eye(10, dtype=bool) if sampling == "distinct" else np.ones((10, 10), dtype=bool)
    assert chisquare(pairs[possible]).pvalue > 1e-4
    assert (pairs.diagonal().sum() == 0) == (sampling == "distinct")


def test_poisson_cohorts_hold_each_client_independently_with_the_sampling_rate():
    federation = FederationConfig(cohort=3, sampling="poisson")
    taken = np.zeros((4000, 12), dtype=bool)
    for round in range(len(taken)):
        cohort = sample_cohort(federation, 12, 31, round + 1)
        assert cohort == sorted(set(cohort)) == sample_cohort(federation, 12, 31, round + 1)
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
    folder, results = run(config, engine=Spy(RoundPlan.of(config)), graph=load_graph(config.data, config.seed))
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
    drawn = {tuple(sample_cohort(federation, 1000, seed, round)) for seed in (1, 2) for round in range(1, 50)}
    assert len(drawn) == 2 * 49


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
    run(config, engine=Spy(RoundPlan.of(config)), graph=graph)
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
