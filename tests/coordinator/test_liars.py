"""Real servers and clients that know all that is public and lie about it: each is left out and named, rounds go on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpc_programs.rules import RoundParameters
from mpc_programs.verification import KAPPA
from orchestrator.config import load_config
from orchestrator.coordinator import two_servers
from orchestrator.coordinator.embedded import EmbeddedEngine
from orchestrator.coordinator.round_plan import RoundPlan, Terms
from orchestrator.errors import CohortError, ConfigError
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.privacy.sensitivity import l2_sensitivity
from orchestrator.wire.message import HEADER_BYTES, Place
from orchestrator.wire.orders import Settle
from orchestrator.wire.upload import share_update
from tests.coordinator.test_left_out import COHORT, FORMAT, Running, for_another, resealed, torn
from tests.support import engine_of

PARAMETERS = RoundParameters("f2gnn", len(COHORT), bound=1.0)


@pytest.fixture(scope="module", params=["ot", "dealer"])
def running(request):
    options = {"clip_norm": 1.0, "timeout_sec": 30.0, "preprocessing": request.param}
    with engine_of(EmbeddedEngine, PARAMETERS, FORMAT, **options) as engine:
        yield Running(engine)


def packed(self, number, slot, client, update):
    headers = [Place(number, slot, client).header(self.engine.encoder.run, server) for server in (0, 1)]
    scores = [0.5] * self.engine.layout.scores
    return [bytearray(part) for part in share_update(update, scores, headers, self.engine.layout)]


def a_product_off_by(error):
    """The released model would be moved by it, whatever clip, norm and weight say."""

    def make(self, number, slot, client, good):
        parts = packed(self, number, slot, client, np.zeros(len(self.model), np.uint64))
        start = HEADER_BYTES
        for name, length in self.engine.layout.fields(1).items():
            if name == "products":
                products = np.frombuffer(bytes(parts[1][start : start + length]), dtype="<u8")
                parts[1][start : start + length] = (products + error(len(products))).astype("<u8").tobytes()
            start += length
        return resealed(self, map(bytes, parts))

    return make


def an_update(values):
    def make(self, number, slot, client, good):
        update = values(len(self.model)).astype(np.int64).view(np.uint64)
        return resealed(self, map(bytes, packed(self, number, slot, client, update)))

    return make


def one(d, value):
    return np.where(np.arange(d) == 3, value, 0)


LIES = {
    "a target in place of the product": (a_product_off_by(lambda d: np.full(d, 1 << 56, np.uint64)), "product"),
    "a product wrong by one unit": (a_product_off_by(lambda d: one(d, 1).astype(np.uint64)), "product"),
    "a product wrong by 2^63": (a_product_off_by(lambda d: one(d, 1).astype(np.uint64) << np.uint64(63)), "product"),
    "an update of norm 60": (an_update(lambda d: np.full(d, 60 * 2**25 / d**0.5)), "norm"),
    "spread over all coordinates, three times too long": (an_update(lambda d: np.full(d, 3 * 2**25 / d**0.5)), "norm"),
    "one coordinate, three times too long": (an_update(lambda d: one(d, 3 * 2**25)), "norm"),
    "near 2^63": (an_update(lambda d: one(d, 2**63 - 1)), "norm"),
    "pairs of 2^63": (an_update(lambda d: np.where(np.arange(d) < 2, -(2**63), 0)), "norm"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_liar_is_left_out_named_and_the_round_goes_on(running, lie):
    make, why = LIES[lie]
    result = running.round({1: make})
    assert result.left_out == {1: f"refused: {why}"}


def test_liars_whose_errors_cancel_and_others_that_fail_are_told_apart(running):
    up, down = (a_product_off_by(lambda d, s=sign: np.full(d, s % 2**64, np.uint64)) for sign in (5, -5))
    assert running.round({0: up, 3: down}).left_out == {0: "refused: product", 3: "refused: product"}
    found = running.round({0: torn, 2: LIES["near 2^63"][0], 3: None}).left_out
    assert found[0].startswith("the halves") and found[2] == "refused: norm" and found[3] == "nothing arrived"


@pytest.mark.parametrize("scores", [(2.094324821, 9.0), (1e300, 1e-300), (0.0, 2.0**30)])
def test_scores_out_of_their_ranges_cannot_be_said(running, scores):
    """A balance of 2.094324821 made the division diverge, and honest updates count -34 times: any bits are in range."""

    def make(self, number, slot, client, good):
        update = np.zeros(len(self.model), np.uint64)
        parts = packed(self, number, slot, client, update)
        words = np.random.default_rng(int(scores[1]) % 2**32).bytes(9)  # 32 and 33 bits, and 7 that nobody reads
        parts[1][-9:] = words
        return resealed(self, map(bytes, parts))

    number = next(running._numbers)
    running.engine.prepare(number, 4)
    plain = [replace(upload, delta=0.01 * upload.delta, norm=0.01 * upload.norm) for upload in running.plain(number)]
    before = running.model
    for slot, client in enumerate(COHORT):
        good = running.seal(number, slot, client, plain[slot])
        running.engine.submit(number, slot, client, make(running, number, slot, client, good) if slot == 1 else good)
    result = running.engine.aggregate(number, list(COHORT))
    moved = np.linalg.norm(result.parameters - before)
    assert not result.left_out and moved <= 1.01 * max(upload.norm for upload in plain)
    running.model = result.parameters


def test_without_the_check_the_same_lie_becomes_the_model():
    """What is checked is what there was to check: trusted clients' servers release the liar's target."""
    parameters = RoundParameters("f2gnn", len(COHORT), ratio_max=64.0)
    with engine_of(EmbeddedEngine, parameters, FORMAT, clip_norm=1.0, timeout_sec=30.0) as engine:
        running = Running(engine)
        number = next(running._numbers)
        engine.prepare(number, 4)
        for slot, client in enumerate(COHORT):
            good = running.seal(number, slot, client, running.plain(number)[slot])
            if slot == 1:
                lie = a_product_off_by(lambda d: np.full(d, 1 << 60, np.uint64))
                good = lie(running, number, slot, client, good)
            engine.submit(number, slot, client, good)
        moved = engine.aggregate(number, list(COHORT)).parameters - running.model
    assert np.linalg.norm(moved) > 20  # clipped at 1, that is


def test_uploads_are_checked_as_they_arrive_in_large_rounds(monkeypatch):
    """In several settlements, from one stock of correlations; whoever lies in the third is found there."""
    monkeypatch.setattr(two_servers, "_WAITING_BYTES", 0)
    with engine_of(EmbeddedEngine, PARAMETERS, FORMAT, clip_norm=1.0, timeout_sec=30.0) as engine:
        running, orders, send = Running(engine), [], engine._send
        monkeypatch.setattr(engine, "_send", lambda order, *to: (orders.append(order), send(order, *to)))
        running.round({2: LIES["an update of norm 60"][0]})
        assert [len(order.places) for order in orders if isinstance(order, Settle)] == [1] * 4


def test_a_round_that_too_few_remain_for_says_who_lied():
    with engine_of(EmbeddedEngine, PARAMETERS, FORMAT, clip_norm=1.0, timeout_sec=30.0, min_cohort=4) as engine:
        running = Running(engine)
        with pytest.raises(CohortError, match="refused: norm; 3 of 4 clients remain"):
            running.round({1: LIES["near 2^63"][0]})
        running.round({})


def test_bound_and_bits_follow_an_adaptive_clip_norm_and_its_count(running):
    running.round({}, terms=Terms(1.7, 0.0, 0.0))
    counted = running.round({2: LIES["an update of norm 60"][0]}, terms=None)
    assert counted.within is None


def test_a_client_replays_nothing(running):
    found = running.round({1: for_another(number=lambda n: n - 1)}).left_out
    assert "another round" in found[1]


@given(st.floats(1e-3, 60.0), st.integers(0, 2**32))
def test_an_honest_client_shortens_its_update_to_the_bound_itself(longest, seed):
    vectors, rng = VectorFormat(25, 32, 6), np.random.default_rng(seed)
    delta = rng.normal(size=20)
    delta *= 63.9 * rng.random() / np.linalg.norm(delta)
    encoded = vectors.encode_update(delta)
    shortened = vectors.shorten_update(encoded, longest)
    exact = delta * min(1.0, longest / vectors.norm(encoded))
    assert vectors.norm(shortened) <= longest
    assert np.abs(vectors.decode_update(shortened) - exact).max() <= 2.0**-24 * (1 + 1e-6)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["engine.name=mpspdz"], "nothing is checked with engine.name = mpspdz"),
        (["engine.program=faithful"], "nothing is checked with engine.program = faithful"),
        (["privacy.clip_norm=1e-4"], "privacy.clip_norm = 0.0001 has too few steps"),
    ],
)
def test_what_cannot_be_checked_is_refused_by_name(overrides, said):
    with pytest.raises(ConfigError, match=said):
        RoundPlan.of(load_config(overrides=["federation.clients=untrusted", *overrides]))


def test_a_model_too_large_for_the_proof_is_refused():
    vectors = VectorFormat(48, 8, 6)
    options = {"clip_norm": 60.0, "timeout_sec": 30.0}
    engine = engine_of(EmbeddedEngine, replace(PARAMETERS, bound=60.0), vectors, **options)
    with engine, pytest.raises(ConfigError, match=r"for 40 parameters with sharing.update_bits = 48"):
        engine.start(np.zeros(40))


def test_the_bound_is_the_clip_norm_or_what_the_format_holds_and_noise_counts_on_liars_of_kappa():
    plain, noisy = "privacy.clip_norm=null", "privacy={clip_norm: 2, noise_multiplier: 1, sensitivity: bounded_weights}"
    untrusted = ["federation.clients=untrusted", "evaluation.exact_beside_noise=true"]
    assert RoundPlan.of(load_config(overrides=[*untrusted, plain])).rule.bound == 64.0
    for method, coupled in (("fedavg", False), ("f2gnn", True)):
        checked, trusted = (
            RoundPlan.of(load_config(overrides=[*others, noisy, f"method.name={method}"]))
            for others in (untrusted, untrusted[1:])
        )
        assert checked.rule.bound == 2.0 and checked.rule.ratio_max is None
        ratio = checked.sensitivity / trusted.sensitivity
        assert ratio == pytest.approx(KAPPA if coupled else 1.0, rel=1e-2)
    assert l2_sensitivity(checked.rule, 2.0, checked.vectors, "worst_case", "fixed") >= 2 * 2.0 * KAPPA
