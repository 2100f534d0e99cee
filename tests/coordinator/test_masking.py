"""The engine of one server and masks: FedAvg's mean as in plaintext, dropouts, and what it refuses by name."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.agreement.round_plan import Terms
from orchestrator.config import Config
from orchestrator.coordinator.factory import create_engine
from orchestrator.coordinator.masking import MaskingEngine
from orchestrator.errors import CohortError, ConfigError
from orchestrator.experiments.costs import DROPOUTS, Contender, bench, contenders, with_cohort
from orchestrator.methods.base import LocalUpdate
from tests.training_runs import run

FEDAVG = {"method": {"name": "fedavg"}, "engine": {"name": "masking"}}
MODEL = np.linspace(-1, 1, 30)


def updates(cohort):
    rng = np.random.default_rng(0)
    return [LocalUpdate(delta, float(np.linalg.norm(delta)), {}) for delta in rng.normal(size=(cohort, len(MODEL)))]


def played(present, cohort=6):
    with create_engine(Config(federation={"cohort": cohort, "min_cohort": 1}, **FEDAVG)) as engine:
        engine.start(MODEL)
        engine.prepare(1, cohort)
        for slot in present:
            engine.submit(1, slot, slot, updates(cohort)[slot])
        return engine.aggregate(1, range(cohort))


@pytest.mark.parametrize("present", [range(6), [0, 1, 3, 4, 5], [1, 2, 3, 4, 5]])
def test_the_model_moves_by_the_mean_of_those_who_stayed(present):
    result = played(present)
    expected = MODEL - np.mean([updates(6)[slot].delta for slot in present], axis=0)
    np.testing.assert_allclose(result.parameters, expected, atol=2.0**-24)
    assert set(result.left_out) == set(range(6)) - set(present)
    assert result.cost.rounds == 4 and result.cost.upload_bytes > 0 and result.cost.online_seconds > 0


def test_below_two_thirds_nothing_is_released():
    with pytest.raises(CohortError, match="4 of 6 clients remain, fewer than"):
        played(range(4))


def test_a_damaged_update_costs_its_client_its_part():
    with create_engine(Config(federation={"cohort": 4, "min_cohort": 1}, **FEDAVG)) as engine:
        engine.start(MODEL)
        engine.prepare(1, 4)
        for slot, update in enumerate(updates(3)):
            engine.submit(1, slot, slot, update)
        engine.submit(1, 3, 3, LocalUpdate(np.full(len(MODEL), np.inf), np.inf, {}))
        assert "NaN or infinity" in engine.aggregate(1, range(4)).left_out[3]


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"method": {"name": "f2gnn"}}, r"method\.name = f2gnn weighs clients by what they keep secret"),
        ({"privacy": {"clip_norm": 1.0}}, "one server sees no norm, so it cannot clip"),
        ({"privacy": {"clip_norm": 1.0, "noise_multiplier": 1.0}}, "noise that it drew it would know"),
        ({"method": {"name": "privfairfl"}}, "sums besides the model, of method.name = privfairfl"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(sections, message):
    with pytest.raises(ConfigError, match=f"engine.name = masking: .*{message}"):
        create_engine(Config(**(FEDAVG | sections)))


def test_other_terms_than_the_plans_are_refused():
    engine = create_engine(Config(**FEDAVG))
    assert isinstance(engine, MaskingEngine)
    with pytest.raises(ConfigError, match="neither clips nor adds noise"):
        engine.prepare(1, 3, Terms(clip_norm=1.0))


@pytest.mark.usefixtures("forkserver")
def test_a_run_is_that_of_plaintext_within_the_bound(tiny, tmp_path):
    models = {}
    for name in ("plaintext", "masking"):
        _, results = run(tiny(tmp_path, "method.name=fedavg", f"engine.name={name}"), audit=True)
        assert all(r.difference <= r.bound for r in results if name == "masking")
        models[name] = results[-1].parameters
    np.testing.assert_allclose(models["masking"], models["plaintext"], atol=1e-4)


def test_bench_measures_it_with_and_without_dropouts():
    config = with_cohort(Config(method={"name": "fedavg"}), 5)
    stay, drop = (bench(config, contender, 500, 2) for contender in contenders("masking"))
    assert stay.max_error < 1e-6 and drop.max_error < 1e-6
    assert (stay.rounds, drop.rounds, drop.program) == (4, 4, DROPOUTS)
    assert drop.upload_bytes_per_client < stay.upload_bytes_per_client  # a mean over all, of whom one sends no vector
    with pytest.raises(ConfigError, match="f2gnn"):
        bench(with_cohort(Config(), 5), Contender("masking", DROPOUTS, ""), 500, 1)
