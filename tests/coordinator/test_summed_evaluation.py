"""Tables that are summed on shares, the noise that covers them, and what stands beside an epsilon else."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from orchestrator.agreement.evaluation_sum import exact_metrics
from orchestrator.agreement.from_settings import plan_of
from orchestrator.client.host import Contribute
from orchestrator.config import load_config
from orchestrator.coordinator.client_pool import ClientPool
from orchestrator.coordinator.factory import create_engine
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.sums import Summation
from orchestrator.coordinator.training import train
from orchestrator.errors import ConfigError, RunError
from orchestrator.privacy.budget import Budget
from orchestrator.privacy.plan import NoisySum, PrivacyPlan
from orchestrator.reports.run import privacy_report
from tests.training_runs import Crash, CrashingFolder, crash_after, run

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")

EACH = (
    "clients.hops=3",
    "evaluation.where=clients",
    "method={name: fedavg, stateful: false}",
    "federation={rounds: 2, cohort: 4}",
)
SUMMED = (*EACH, "evaluation.tables=summed", "evaluation.exact_beside_noise=false")
NOISY = "privacy={clip_norm: 0.5, noise_multiplier: 2, delta: 1e-3, accountant: rdp}"


@pytest.mark.parametrize("engine", ["plaintext", "embedded"])
def test_summed_tables_give_the_unions_figures_and_the_coordinator_sees_no_table(tiny, tmp_path, monkeypatch, engine):
    apart, _ = run(tiny(tmp_path, *EACH))
    orders, send = [], ClientPool._send
    monkeypatch.setattr(ClientPool, "_send", lambda *a: (orders.append(a[2]), send(*a)))
    together, _ = run(tiny(tmp_path, *SUMMED, f"engine={{name: {engine}, preprocessing: dealer}}"))
    assert {type(order).__name__ for order in orders} <= {"Train", "Contribute", "Save"}
    assert sorted(c for o in orders if isinstance(o, Contribute) and o.round == 2 for _, c in o.places) == [*range(6)]
    for one, other in zip(apart.records(), together.records(), strict=True):
        for mask in ("val", "test"):
            for gap in ("delta_sp", "delta_eo"):
                # Models on shares differ by 1e-7; of 120 nodes none changes its class by that.
                assert one[mask][gap] == other[mask][gap] is not None
                assert {k: one[mask]["gaps"][gap][k] for k in other[mask]["gaps"][gap]} == other[mask]["gaps"][gap]
            assert {**other[mask]["counts"], "clients": 6} == {**one[mask]["counts"], "clients": 6}
            assert other[mask]["delta_sp_mean"] is None is other[mask]["delta_sp_worst"]
            assert 0 < other[mask]["auc"] < 1 and 0 <= other[f"{mask}_auc_error"] < 0.5
        assert other["clients_evaluated"] == pytest.approx(6, abs=1e-2) and other["evaluation_noise"] == 0
    assert all(row["sums_upload_bytes_per_client"] > 0 for row in together.costs())
    assert "sums_upload_bytes_per_client" not in apart.costs()[0]


def test_of_personal_models_too_but_for_auc(tiny, tmp_path):
    own = ("method.name=fedpub", "model.name=gcn-classifier", "federation.rounds=1")
    one, other = (
        run(tiny(tmp_path, *tables, *own))[0].records()[0]["val"] for tables in (EACH[:2], SUMMED[:2] + SUMMED[4:])
    )
    assert one["delta_sp"] == other["delta_sp"] is not None
    assert other["auc"] is None and other["undefined"]["auc"] == "nobody ranks nodes of different clients' models"


# With noise

PLAN = PrivacyPlan("fixed", 6, 4, 2.0, 1e-3, "rdp")


def evaluated(folder: RunFolder) -> list[int]:
    return [row["round"] for row in folder.records() if row["evaluation_noise"] is not None]


@pytest.mark.parametrize(
    ("settings", "noisy", "rounds"),
    [
        ((), NoisySum("evaluation", 2.0, 0), [5]),
        (("evaluation={every: 2, noise_multiplier: 7}",), NoisySum("evaluation", 7.0, 2), [2, 4, 5]),
    ],
)
def test_noisy_tables_are_charged_when_they_are_released_and_covered(tiny, tmp_path, settings, noisy, rounds):
    config = tiny(tmp_path, *SUMMED, NOISY, *settings, "federation.rounds=5")
    folder, results = run(config)
    assert evaluated(folder) == rounds and noisy.releases(5) == len(rounds)
    expected, released = [], PLAN.new_accountant()
    for number in range(1, 6):
        released.compose(PLAN.release())
        released.compose(PLAN.sum_release(noisy), number in rounds)
        expected.append(PLAN.stated(released, number, sum(done <= number for done in rounds)))
    assert [result.epsilon for result in results] == expected
    report = privacy_report(folder, config)
    assert report["metrics"] == "covered" and report["epsilon"] == replace(PLAN, sums=(noisy,)).epsilon(5)
    assert report["sums"] == [
        {"name": "evaluation", "noise_multiplier": noisy.noise_multiplier, "released": len(rounds)}
    ]
    for view in ("client", "server"):
        assert report["views"][view] > PLAN.epsilon(1, view)
    assert folder.records()[-1]["evaluation_noise"] == pytest.approx(noisy.noise_multiplier * 2000 * 2**0.5, rel=1e-4)


def test_a_budget_keeps_back_what_the_last_evaluation_costs(tiny, tmp_path):
    noisy = NoisySum("evaluation", 2.0, 0)
    one, two = (replace(PLAN, sums=(noisy,)).epsilon(rounds) for rounds in (2, 3))
    limit = (one + two) / 2
    assert PLAN.epsilon(3) < limit  # the rounds alone would fit
    noise = NOISY.replace("}", f", epsilon_budget: {limit}}}")
    folder, results = run(tiny(tmp_path, *SUMMED, noise, "federation.rounds=9"))
    assert evaluated(folder) == [2] and results[-1].epsilon == one <= limit


def test_tables_are_paid_for_before_they_are_added_up(tiny, tmp_path, monkeypatch):
    config, paid, total = tiny(tmp_path, *SUMMED, NOISY, "evaluation.every=1"), [], Summation.total
    folder = RunFolder.create(config)

    def released(*arguments):
        paid.append(folder.load_privacy()["sums"]["evaluation"])
        return total(*arguments)

    monkeypatch.setattr(Summation, "total", released)
    train(config, folder)
    assert paid == [1, 2]


def test_a_resumed_run_pays_for_what_it_repeats_and_for_nothing_else(tiny, tmp_path):
    config = tiny(tmp_path, *SUMMED, NOISY, "evaluation.every=1", "federation.rounds=5")
    folder = RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, folder, observe=partial(crash_after, 3))
    train(config, folder, resume=True)
    assert folder.load_privacy()["sums"] == {"evaluation": 5} and evaluated(folder) == [1, 2, 3, 4, 5]
    repeated = RunFolder.create(config)
    with pytest.raises(Crash):
        train(config, CrashingFolder(repeated.path))  # round 4 is released, evaluated, and not kept
    train(config, repeated, resume=True)
    assert repeated.load_privacy()["sums"] == {"evaluation": 6}


# What stands beside an epsilon else

REFUSED = (
    "its exact metrics are not covered by the epsilon of a run with noise; set evaluation.where = clients and "
    "evaluation.tables = summed for metrics with noise, evaluation.where = nowhere for none, or, in a simulation only, "
    "evaluation.exact_beside_noise = true"
)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ((), "evaluation.where = whole_graph"),
        (("evaluation.where=clients",), "evaluation.tables = each"),
        (
            ("evaluation={where: clients, tables: summed, noise_multiplier: 0}",),
            "evaluation.noise_multiplier = 0",
        ),
    ],
)
def test_exact_metrics_beside_an_epsilon_are_refused_in_one_line(settings, named, tiny, tmp_path):
    config = tiny(tmp_path, NOISY, *settings, "evaluation.exact_beside_noise=false")
    for refuse in (lambda: create_engine(config), lambda: run(config)):
        with pytest.raises(ConfigError) as caught:
            refuse()
        assert str(caught.value) == f"{named}: {REFUSED}"
    simulated = config.changed(evaluation={"exact_beside_noise": True})
    create_engine(simulated)
    assert exact_metrics(simulated) == named
    create_engine(config.changed(privacy={"accountant": None}))  # states no epsilon beside which they could stand


def test_features_that_are_scaled_over_everybodys_data_are_no_premise_of_an_epsilon(tiny, tmp_path):
    config = tiny(tmp_path, NOISY, "evaluation={where: nowhere, exact_beside_noise: false}", "data.scaling=pooled")
    for refuse in (lambda: create_engine(config), lambda: run(config)):
        with pytest.raises(ConfigError, match=r"data\.scaling = pooled: .*; set data\.scaling = by_client or none"):
            refuse()
    create_engine(config.changed(data={"scaling": "by_client"}))
    create_engine(config.changed(evaluation={"exact_beside_noise": True}))
    create_engine(config.changed(privacy={"accountant": None}))


def test_a_simulation_says_that_epsilon_does_not_cover_its_metrics(tiny, tmp_path):
    config = tiny(tmp_path, NOISY, "federation.rounds=1")
    folder, _ = run(config)
    assert privacy_report(folder, config)["metrics"] == "exact"


def test_without_evaluation_nothing_is_recorded_of_the_nodes(tiny, tmp_path):
    config = tiny(tmp_path, NOISY, "evaluation={where: nowhere, exact_beside_noise: false}")
    folder, _ = run(config)
    for row in folder.records():
        for mask in ("val", "test"):
            assert row[mask] == {
                "accuracy": None,
                "gaps": {},
                "counts": {},
                "undefined": {"accuracy": "evaluation.where = nowhere"},
            }
    assert privacy_report(folder, config)["metrics"] == "none"
    assert json.loads(json.dumps(privacy_report(folder, config)["sums"])) == []


@pytest.mark.parametrize("setting", ["every", "noise_multiplier"])
def test_what_is_of_summed_tables_needs_them(setting):
    """Noise that was asked for and is nowhere would be worse than a refusal."""
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=[f"evaluation.{setting}=2"])
    assert str(caught.value) == f"evaluation.{setting} is of summed tables: set evaluation.tables = summed"


@pytest.mark.parametrize("wrong", ["evaluation.where=whole_graph", "evaluation={where: clients, model: trained}"])
def test_only_released_models_on_clients_nodes_are_summed(wrong):
    with pytest.raises(ConfigError, match=r"evaluation\.tables = summed needs evaluation\.where = clients and evalua"):
        load_config(overrides=["evaluation.tables=summed", wrong])


def test_without_a_plan_that_counts_it_a_sum_cannot_be_charged(tiny, tmp_path):
    plan = plan_of(tiny(tmp_path, *SUMMED, NOISY)).privacy
    assert plan is not None
    assert np.isclose(plan.epsilon(0), 0)
    with pytest.raises(RunError, match="the sum 'other' cannot be released: no epsilon counts it"):
        Budget(plan).charge_sum("other")
