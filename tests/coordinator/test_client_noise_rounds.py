"""Rounds in which clients add the noise: its scale with each engine, with clients that drop out, and a whole run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import Config
from orchestrator.coordinator.factory import create_engine
from orchestrator.errors import CohortError, ConfigError
from orchestrator.methods.base import LocalUpdate
from orchestrator.reports.run import privacy_report
from orchestrator.wire.message import Place
from tests.training_runs import run

COHORT, LEAST, D = 5, 4, 6000
PRIVACY = {"clip_norm": 1.0, "noise_multiplier": 2.0, "noise": "clients", "sensitivity": "bounded_weights"}


def config(engine, **sections):
    return Config(
        method={"name": "fedavg"},
        engine={"name": engine},
        clients={"count": 20},
        federation={"cohort": COHORT, "min_cohort": LEAST},
        evaluation={"exact_beside_noise": True},
        **{"privacy": PRIVACY, **sections},
    )


def play(engine, number, present, update=None):
    """What one round takes from the model; the clients' updates are zero unless one is given for all."""
    engine.prepare(number, COHORT)
    delta = np.zeros(D) if update is None else update
    for slot in present:
        upload = engine.encoder(LocalUpdate(delta, float(np.linalg.norm(delta)), {}), Place(number, slot, slot))
        engine.submit(number, slot, slot, upload)
    return engine.aggregate(number, range(COHORT)).parameters


@pytest.mark.parametrize("name", ["plaintext", "embedded", "masking"])
def test_whoever_takes_part_adds_a_part_of_the_noise(name):
    """With all five there is more than sigma, with four sigma, and with three nothing; 7 % would show."""
    engine, models = create_engine(config(name)), [np.zeros(D)]
    plan = engine.plan
    with engine:
        engine.start(models[0])
        for number, present in enumerate((range(COHORT), range(1, COHORT)), start=1):
            models.append(play(engine, number, present))
        with pytest.raises(CohortError, match="3 of 5 clients remain, fewer than"):
            play(engine, 3, range(3))
    all_five, four = np.diff(models, axis=0)
    # A mean of the four, in which one client moves by half of the clip bound; under masks a sum, divided by who came.
    expected = {5: 2.0 * 0.5 * math.sqrt(5 / 4), 4: 2.0 * 0.5}
    if name == "masking":
        expected[5] *= 4 / 5
    for noise, clients in ((all_five, 5), (four, 4)):
        assert abs(noise.std() / expected[clients] - 1) < 5 / math.sqrt(2 * D)
        assert abs(noise.mean()) < 5 * expected[clients] / math.sqrt(D)
    assert abs(np.corrcoef(all_five, four)[0, 1]) < 5 / math.sqrt(D)
    assert plan.terms.noise_stddev == 0.0


@pytest.mark.parametrize(("name", "where"), [("embedded", "client.sealing"), ("masking", "client.noisy")])
def test_the_sum_of_noises_is_released_to_the_last_bit_with_what_is_clipped(name, where, monkeypatch):
    """Noise that is known can be taken away again; what remains is the clipped mean, as without noise."""
    drawn, rng = [], np.random.default_rng(5)

    def known(count, stddev, bits):
        drawn.append(np.rint(rng.normal(size=count) * math.ldexp(stddev, bits)).astype(np.int64))
        return drawn[-1].view(np.uint64)

    monkeypatch.setattr(f"orchestrator.{where}.noise_ring64", known)
    engine, update = create_engine(config(name)), rng.normal(size=D)
    vectors = engine.plan.vectors
    with engine:
        engine.start(np.zeros(D))
        released = play(engine, 1, range(COHORT), update)
    noise = np.ldexp(sum(own.astype(object) for own in drawn).astype(np.float64), -vectors.model_bits)
    if name == "masking":  # of a sum, which is divided once it is known
        noise = noise / COHORT
    expected = -update / np.linalg.norm(update) - noise
    bound = engine.plan.error_bound(COHORT, float(np.abs(update).max())) + 2.0**-24
    assert len(drawn) == COHORT and np.abs(released - expected).max() < bound


def test_under_masks_clients_clip_themselves():
    engine, update = create_engine(config("masking")), np.full(D, 0.5)  # of norm 38
    with engine:
        encoder = engine.encoder
        quiet = encoder(LocalUpdate(update, 0.0, {}), Place(1, 0, 0))
        steps = quiet.view(np.int64).astype(np.float64)
        projected = np.ldexp(steps.sum() / math.sqrt(D), -engine.plan.vectors.model_bits)  # of the noise one element
        assert abs(projected - 1.0) < 6 * engine.plan.terms.client_stddev
        assert projected < 10
        engine.start(np.zeros(D))
        engine.prepare(1, COHORT)
        for slot in range(COHORT):
            engine.submit(1, slot, slot, quiet if slot else LocalUpdate(update, 0.0, {}))
        assert engine.aggregate(1, range(COHORT)).left_out == {0: "its upload is no noisy update of this model"}


def test_a_masked_sum_that_does_not_fit_the_ring_is_refused():
    with pytest.raises(ConfigError, match=r"the sum of 5 updates and their noise may reach .*: raise sharing"):
        create_engine(config("masking", privacy={**PRIVACY, "noise_multiplier": 0.7}, sharing={"integer_bits": 4}))


@pytest.mark.usefixtures("forkserver", "one_thread")
@pytest.mark.parametrize("name", ["plaintext", "masking"])
def test_a_run_states_what_everybody_sees(tiny, tmp_path, name):
    noise = "privacy={clip_norm: 0.5, noise_multiplier: 2, delta: 1e-3, noise: clients, honest_clients: 2}"
    own = tiny(tmp_path, "method.name=fedavg", f"engine.name={name}", noise)
    folder, results = run(own)
    plan = plan_of(own).privacy
    report = privacy_report(folder, own)
    assert [result.epsilon for result in results] == [plan.epsilon(1), plan.epsilon(2)]
    assert (report["noise"], report["honest_clients"], report["server_stddev"]) == ("clients", 2, 0.0)
    assert report["client_stddev"] == pytest.approx(2 * 2 * 0.5 / 2**0.5, rel=1e-4)  # worst case, and a masked sum
    views = report["views"]
    assert views["server"] == plan.epsilon(report["participations"], "server")
    assert views["outsider"] < views["client"] and report["simulated"]
