"""The audit's bound against what rounds on shares are off by: it holds, and is not so loose that faults pass."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import load_config
from orchestrator.coordinator.audit import float64_aggregate
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import SCALAR_BITS
from orchestrator.server import aggregation
from tests.server.test_aggregation import decode, round_on_shares, undithered


def play(q, deltas, clip_norm=None, *overrides):
    """A round of the default rule with random scores: |released - float64| of each coordinate, and the bound."""
    clip = [] if clip_norm is None else [f"privacy.clip_norm={clip_norm}"]
    config = load_config(overrides=[f"clients.count={q}", f"federation.cohort={q}", *clip, *overrides])
    plan, name = plan_of(config), config.engine.program
    parameters, rng, model = plan.rule, np.random.default_rng(q), np.zeros(deltas.shape[1])
    uploads = [
        LocalUpdate(delta, float(np.linalg.norm(delta)), {"balance": rng.random(), "fairness": 2 * rng.random()})
        for delta in deltas
    ]
    released = decode(
        round_on_shares(parameters, model, uploads, clip_norm, plan.vectors, program=name)[0], plan.vectors
    )
    error = np.abs(released - float64_aggregate(model, parameters, clip_norm, uploads))
    return error, undithered(plan.error_bound(q, float(np.abs(deltas).max())), plan.vectors)


@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize("q", [300, 1000])
def test_the_bound_is_at_most_100_times_what_the_worst_updates_meet(q, clip_norm):
    """With unit vectors for updates the errors are those of the factors, and updates of the worst signs add them up."""
    error, bound = play(q, np.eye(q), clip_norm)
    assert error.sum() <= bound <= 100 * error.sum()


@pytest.mark.parametrize(("q", "fault"), [(30, 1e-6), (300, 1e-5), (1000, 2e-5)])
def test_a_fault_in_one_factor_exceeds_the_bound(monkeypatch, q, fault):
    deltas = np.random.default_rng(q).choice([-1.0, 1.0], size=(q, 20))
    error, bound = play(q, deltas)
    assert error.max() <= bound < fault
    honest = aggregation.secret_factors

    async def faulty(ops, parameters, scalars):
        factors = await honest(ops, parameters, scalars)
        if ops.owner == 1:
            factors.values[q // 2] += round(fault * 2**SCALAR_BITS)
        return factors

    monkeypatch.setattr(aggregation, "secret_factors", faulty)
    error, bound = play(q, deltas)
    assert error.max() > bound


@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_the_bound_of_faithful_allows_for_what_elements_lose(clip_norm):
    """Updates that are so small, in a format that is so fine, that little else is rounded."""
    deltas = np.random.default_rng(0).uniform(-1.0, 1.0, size=(30, 50)) * 2.0**-20
    overrides = ["sharing={update_bits: 30, weight_bits: 26, integer_bits: 6}"]
    (_, assisted), (error, bound) = (
        play(30, deltas, clip_norm, *overrides, f"engine.program={name}") for name in ("assisted", "faithful")
    )
    assert assisted < error.max() <= bound
