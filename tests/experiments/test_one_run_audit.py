"""The audit in one run: below what is stated where noise is as stated, and against it where size or bands are not."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator.agreement.from_settings import plan_of
from orchestrator.coordinator.plaintext import PlaintextEngine
from orchestrator.experiments.one_run_audit import (
    _BLANK,
    OBSERVERS,
    audit_one_run,
    hear,
    play,
    sequence_of,
)
from orchestrator.experiments.privacy_audit import middle

QUIET = Path(__file__).with_name("quiet_server.py")
UNBANDED = Path(__file__).with_name("unbanded_server.py")
DELTA = 1e-6
CONFIDENCE = 0.999


@pytest.fixture
def settings(tiny, tmp_path):
    """``settings("clients.count=30", ...)``: with noise, clients in turn, a turn each; four bands."""
    noise = f"privacy={{clip_norm: 0.5, noise_multiplier: 1, delta: {DELTA}, sensitivity: bounded_weights}}"
    shape = ("method={name: fedavg, stateful: false}", "clients.count=80", "engine.preprocessing=dealer")
    turns = "federation={cohort: 20, rounds: 4, sampling: cyclic}"
    return lambda *overrides: tiny(tmp_path, noise, *shape, turns, *overrides)


def run_of(sequence, factor=1.0, bands=None):
    """A server's view of a sequence, in real numbers: what arrives is as the sensitivity allows."""
    plan, rng = sequence.plan, np.random.default_rng(5)
    bands = sequence.bands if bands is None else bands
    fresh = factor * plan.terms.noise_stddev * rng.standard_normal((sequence.rounds, sequence.length))
    seen = np.zeros_like(fresh)
    for t in range(sequence.rounds):
        back = sum((bands[j] * seen[t - j] for j in range(1, min(t + 1, len(bands)))), np.zeros(sequence.length))
        seen[t] = fresh[t] - back
    present = rng.random((sequence.groups, sequence.canaries)) < 0.5
    half = plan.sensitivity / 2
    for t in range(sequence.rounds):
        group = t % sequence.groups
        seen[t, sequence.columns(group)] += np.where(present[group], half, -half)
    return seen, present


def heard(plan, sequence, seen, present):
    release = plan.privacy.release("server")
    accountant = plan.privacy.new_accountant().compose(release, sequence.turns)
    epsilon = plan.privacy.stated(accountant, sequence.turns)
    return hear(sequence, seen, present, "server", epsilon, release.noise_multiplier, DELTA, 0.95)


@pytest.mark.parametrize("rounds", [4, 40])
def test_it_stays_below_what_is_stated_and_sees_most_of_it_with_many_canaries(settings, rounds):
    plan = plan_of(settings(f"federation.rounds={rounds}", f"privacy.noise_multiplier={(rounds / 4) ** 0.5}"))
    sequence = sequence_of(plan, rounds, 8000)
    assert sequence.turns == rounds / 4 and len(sequence.bands) == 4
    found = heard(plan, sequence, *run_of(sequence))
    assert 1.5 < found.found < found.epsilon == pytest.approx(4.89, abs=0.05) and not found.refuted
    assert found.stddev == pytest.approx(1, abs=0.02) and abs(found.correlation) < 0.02


def test_half_the_noise_contradicts_the_statement_by_the_guesses_alone(settings):
    plan = plan_of(settings("federation.rounds=4"))
    sequence = sequence_of(plan, 4, 40_000)
    found = heard(plan, sequence, *run_of(sequence, 0.5))
    assert found.found > found.epsilon and found.refuted
    assert found.stddev == pytest.approx(0.5, abs=0.01) and found.surprise > found.expected


def test_no_noise_contradicts_it_with_few_canaries(settings):
    plan = plan_of(settings("privacy.bands=1"))
    found = heard(plan, sequence_of(plan, 4, 1000), *run_of(sequence_of(plan, 4, 1000), 0.0))
    assert found.guesses.right == found.guesses.made == found.guesses.canaries and found.found > found.epsilon


@pytest.mark.parametrize("change", ["dropped", "wrong", "reused"])
def test_other_bands_are_heard_though_they_hide_as_much(settings, change):
    """Noise without its bands hides more, not less: no attack on a client can tell, and the model is worse for it."""
    plan = plan_of(settings())
    sequence = sequence_of(plan, 4, 4000)
    bands = sequence.bands.copy()
    if change == "dropped":
        bands = np.ones(1)
    elif change == "wrong":
        bands[2] *= 0.8
    seen, present = run_of(sequence, bands=bands)
    if change == "reused":  # every second round has the noise of the one before
        seen[1::2, -_BLANK:] = seen[::2, -_BLANK:]
    found = heard(plan, sequence, seen, present)
    assert found.surprise > found.expected and found.refuted and abs(found.correlation) > 0.02
    assert change == "reused" or found.found < found.epsilon


@pytest.mark.parametrize("changes", [(), ("federation.sampling=poisson",), ("method.name=f2gnn", "clients.count=40")])
def test_a_canary_moves_the_released_sum_as_far_as_the_sensitivity_allows(settings, changes):
    plan = plan_of(settings(*changes))
    sequence = sequence_of(plan, 4, 40)
    quiet = replace(sequence.plan, noise=replace(sequence.plan.noise, multiplier=0.0))
    seen, present = play(PlaintextEngine(quiet), sequence)
    poisson = quiet.sampling == "poisson"
    for t in range(sequence.rounds):
        columns, bits = sequence.columns(t % sequence.groups), present[t % sequence.groups]
        moved = seen[t, columns] - middle(quiet)
        assert (np.sign(moved) == np.where(bits, 1, -1)).all()
        scale = 0.5 * sequence.plan.sensitivity
        assert np.abs(moved) == pytest.approx(scale, rel=0.02 if not poisson else 0.05)
        assert not seen[t, -_BLANK:].any()


def commands(script, argument, *servers):
    return {f"server {k}": [sys.executable, str(script), str(argument)] for k in servers}


def test_live_servers_keep_to_what_is_stated(settings):
    config = settings("engine.name=embedded")
    found = audit_one_run(plan_of(config), config.engine, 4, 200, CONFIDENCE)
    assert found.keys() == OBSERVERS.keys() and not any(heard.refuted for heard in found.values())
    for heard in found.values():
        assert heard.guesses.canaries == 240 and heard.found < heard.epsilon
        assert heard.stddev == pytest.approx(1, abs=0.1) and abs(heard.correlation) < 0.2


@pytest.mark.parametrize(
    ("script", "argument"), [(UNBANDED, "none"), (UNBANDED, "0.6"), (QUIET, "0.5")], ids=["dropped", "wrong", "half"]
)
def test_a_live_server_with_other_bands_or_other_noise_is_heard(settings, script, argument):
    config = settings("engine.name=embedded")
    found = audit_one_run(plan_of(config), config.engine, 4, 600, CONFIDENCE, commands(script, argument, 1))
    # server 0 hears it, which subtracts its own; server 1 hears server 0's, which is as stated
    assert found["server 0"].refuted and not found["server 1"].refuted
