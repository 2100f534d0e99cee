"""Rounds on real parties against float64 and the embedded engine, and what they cost."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from mpc_programs.rules import RoundParameters
from orchestrator.config import load_config
from orchestrator.coordinator.audit import float64_aggregate
from orchestrator.coordinator.embedded import EmbeddedEngine
from orchestrator.coordinator.mpspdz import MpSpdzEngine
from orchestrator.experiments.comparison import compare
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.wire.message import Place
from tests.coordinator.test_liars import LIES
from tests.support import engine_of, round_plan

FORMAT = VectorFormat(25, 32, 6)
LENGTH = 40
FAR = 1e5


def parameters(q, rule="f2gnn", **options):
    return RoundParameters(rule, q, **{"lam": 8.0, "ratio_max": FORMAT.limit, **options})


def cohorts(rule, d=LENGTH):
    """Random updates and scores, then extreme ones: norms of 0, at C and near the limit; equal and far scores."""
    rng, q = np.random.default_rng(rule.cohort), rule.cohort
    norms = [2.0 ** rng.uniform(-4, 5, q), np.resize([0.0, 1.0, 63.9], q), np.full(q, 0.25)]
    balances = [rng.random(q), np.full(q, 0.5), np.resize([0.0, 1.0], q)]
    fairness = [rng.random(q), np.full(q, 1.0), np.resize([0.0, 1.0], q)]
    for lengths, b, f in zip(norms, balances, fairness, strict=True):
        deltas = rng.normal(size=(q, d))
        deltas *= (lengths / np.linalg.norm(deltas, axis=1))[:, None]
        yield [
            LocalUpdate(
                delta, float(np.linalg.norm(delta)), {"balance": float(x), "fairness": float(y * rule.fairness_max)}
            )
            for delta, x, y in zip(deltas, b, f, strict=True)
        ]


def play(engine, number, uploads):
    for slot, upload in enumerate(uploads):
        engine.submit(number, slot, slot, engine.encoder(upload, Place(number, slot, slot)))
    return engine.aggregate(number, range(len(uploads)))


CASES = [
    ("semi2k", "assisted", parameters(1)),
    ("semi2k", "assisted", parameters(30)),
    ("semi2k", "assisted", parameters(3, fairness_max=FAR)),
    ("dealer-ring", "assisted", parameters(3)),
    ("dealer-ring", "assisted", parameters(10, fairness_max=FAR)),
    ("dealer-ring", "assisted", parameters(3, ratio_max=None)),
    ("semi2k", "assisted", parameters(3, rule="fedavg")),
    ("semi2k", "scalar-first", parameters(3)),
    ("dealer-ring", "scalar-first", parameters(10)),
    ("semi2k", "faithful", parameters(3)),
    ("dealer-ring", "faithful", parameters(1)),
    ("dealer-ring", "faithful", parameters(30)),
    ("dealer-ring", "faithful", parameters(3, ratio_max=None)),
]


@pytest.mark.parametrize(("protocol", "program", "rule"), CASES, ids=lambda case: getattr(case, "cohort", case))
def test_float64_embedded_and_mpspdz_agree_within_their_bounds(installation, cache, protocol, program, rule):
    clip_norm = None if rule.ratio_max is None else 1.0
    model = np.random.default_rng(0).normal(size=LENGTH)
    common = {"clip_norm": clip_norm, "program": program, "timeout_sec": 60.0}
    with (
        engine_of(
            MpSpdzEngine, rule, FORMAT, protocol=protocol, home=installation.home, cache=cache, **common
        ) as witness,
        engine_of(EmbeddedEngine, rule, FORMAT, preprocessing="dealer", **common) as embedded,
    ):
        witness.start(model)
        embedded.start(model)
        bound = own_bound = 0.0  # each engine keeps its own model, so errors add up
        for number, uploads in enumerate(cohorts(rule), start=1):
            largest = max(float(np.abs(upload.delta).max()) for upload in uploads)
            bound += witness.plan.error_bound(rule.cohort, largest)
            own_bound += embedded.plan.error_bound(rule.cohort, largest)
            exact = float64_aggregate(model, rule, clip_norm, uploads)
            first, second = (play(engine, number, uploads).parameters for engine in (witness, embedded))
            assert np.abs(first - exact).max() <= bound
            assert np.abs(first - second).max() <= bound + own_bound
            model = exact


@pytest.mark.parametrize(
    ("protocol", "program"), [("semi2k", "assisted"), ("dealer-ring", "assisted"), ("semi2k", "scalar-first")]
)
def test_a_round_goes_on_without_a_client_and_the_next_one_with_all(installation, cache, protocol, program):
    """For fewer clients another program is compiled; the dealer, if any, runs it too."""
    rule, model = parameters(4), np.random.default_rng(0).normal(size=LENGTH)
    common = {"clip_norm": 1.0, "program": program, "timeout_sec": 60.0}
    its = {"protocol": protocol, "home": installation.home, "cache": cache}
    with engine_of(MpSpdzEngine, rule, FORMAT, **its, **common) as engine:
        engine.start(model)
        for number, uploads in enumerate(cohorts(rule), start=1):
            engine.prepare(number, 4)
            for slot, upload in enumerate(uploads):
                first, second = engine.encoder(upload, Place(number, slot, slot))
                bad = (number, slot) == (2, 1)
                engine.submit(number, slot, slot, (first, second[:-1] + bytes([second[-1] ^ 1]) if bad else second))
            result, left = engine.aggregate(number, range(4)), [1] if number == 2 else []
            assert list(result.left_out) == left
            rest = [upload for slot, upload in enumerate(uploads) if slot not in left]
            exact = float64_aggregate(model, rule, 1.0, rest)
            largest = max(float(np.abs(upload.delta).max()) for upload in rest)
            assert np.abs(result.parameters - exact).max() <= engine.plan.error_bound(len(rest), largest)
            model = result.parameters


def test_untrusted_clients_are_checked_before_a_party_is_started(installation, cache):
    """Whoever lies about a product or a norm is left out; the parties weigh the others' updates as these are."""
    rule, model = RoundParameters("f2gnn", 4, lam=8.0, bound=1.0), np.zeros(LENGTH)
    its = {"protocol": "semi2k", "home": installation.home, "cache": cache}
    with engine_of(MpSpdzEngine, rule, FORMAT, clip_norm=1.0, timeout_sec=60.0, **its) as engine:
        engine.start(model)
        for number, (uploads, lies) in enumerate(zip(cohorts(rule), ({}, LIES, LIES), strict=True), start=1):
            engine.prepare(number, 4)
            liar, why = list(lies.values())[number] if lies else (None, "")
            running = SimpleNamespace(engine=engine, model=model)
            for slot, upload in enumerate(uploads):
                good = engine.encoder(upload, Place(number, slot, slot))
                engine.submit(
                    number, slot, slot, liar(running, number, slot, slot, good) if liar and slot == 2 else good
                )
            result = engine.aggregate(number, range(4))
            assert result.left_out == ({2: f"refused: {why}"} if lies else {})
            assert result.cost.preprocessing_bytes[0] > 64 * 4096 * 4
            rest = [upload for slot, upload in enumerate(uploads) if slot not in result.left_out]
            exact = float64_aggregate(model, rule, 1.0, rest)
            largest = max(float(np.abs(upload.delta).max()) for upload in rest)
            assert np.abs(result.parameters - exact).max() <= engine.plan.error_bound(len(rest), largest)
            model = result.parameters


def test_bounds_are_those_of_the_embedded_engine_but_for_faithful():
    rule = parameters(3)

    def bound(engine, program):
        return replace(round_plan(rule, FORMAT, program=program), engine=engine).error_bound(3, 0.5)

    for program in ("assisted", "scalar-first"):
        assert bound("mpspdz", program) == bound("embedded", program)
    assert 1e-4 < bound("mpspdz", "faithful") < 1e-3


@pytest.mark.parametrize("protocol", ["semi2k", "dealer-ring"])
def test_assisted_costs_little_and_the_same_for_every_model_size(installation, cache, protocol):
    rule, costs = parameters(3), {}
    for d in (1_000, 100_000):
        with engine_of(
            MpSpdzEngine,
            rule,
            FORMAT,
            protocol=protocol,
            home=installation.home,
            cache=cache,
            clip_norm=1.0,
            timeout_sec=60.0,
        ) as engine:
            engine.start(np.zeros(d))
            costs[d] = play(engine, 1, next(iter(cohorts(rule, d)))).cost
    small, large = costs.values()
    assert small.online_bytes == large.online_bytes and max(small.online_bytes) <= 60_000
    assert max(*small.preprocessing_bytes, *large.preprocessing_bytes) <= 3_500_000
    assert small.rounds == large.rounds
    assert small.startup_seconds > 0 and small.preprocessing_seconds > 0


@pytest.mark.usefixtures("forkserver", "one_thread")
def test_twenty_rounds_of_nba_give_the_embedded_engines_curve(installation, real_data, tmp_path, monkeypatch, cache):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    overrides = [
        f"data.dir='{real_data('nba')}'",
        f"run.dir='{tmp_path}'",
        "federation.rounds=20",
        f"engine.mpspdz_home='{installation.home}'",
    ]
    result = compare(load_config(["nba"], overrides=overrides), ("embedded", "mpspdz"))
    assert result.worst_share_of_bound <= 1
    assert result.largest["auc"] < 1e-3 and result.largest["accuracy"] < 0.03
