"""Real servers and clients that know all that is public and lie about it: each is left out and named, rounds go on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpc_programs.rules import RoundParameters
from mpc_programs.verification import KAPPA, LARGEST_BOUND, LEAST_BOUND
from orchestrator.agreement.from_settings import plan_of
from orchestrator.agreement.round_plan import Terms
from orchestrator.agreement.sum_plan import sum_plan
from orchestrator.config import load_config
from orchestrator.coordinator import two_servers
from orchestrator.coordinator.audit import audit
from orchestrator.coordinator.embedded import EmbeddedEngine
from orchestrator.errors import CohortError, ConfigError, DisagreementError
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import VectorFormat, clip_error
from orchestrator.privacy.sensitivity import l2_sensitivity
from orchestrator.secure_sum import SecureSum
from orchestrator.wire.message import HEADER_BYTES, Place
from orchestrator.wire.orders import Settle
from orchestrator.wire.upload import Layout, share_update, unpack_upload
from tests.coordinator.test_left_out import COHORT, FORMAT, MODEL, Running, for_another, resealed, torn
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
    counted = running.round({}, terms=Terms(1.7, 0.0, 0.0))
    plain = running.plain(next(running._numbers) - 1)
    assert counted.within == sum(upload.norm <= 1.7 for upload in plain)
    assert running.round({2: LIES["an update of norm 60"][0]}, terms=None).within is None
    with pytest.raises(ConfigError, match="a clip bound that can be checked"):
        running.engine.prepare(99, 4, Terms(None))


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
        (["engine={name: mpspdz, protocol: dealer-ring}"], "nothing is checked with engine.protocol = dealer-ring"),
        (["engine.name=masking", "method.name=fedavg"], "nothing is checked with engine.name = masking"),
        (["engine.program=faithful"], "nothing is checked with engine.program = faithful"),
        (["privacy.clip_norm=1e-4"], "privacy.clip_norm = 0.0001 cannot be checked"),
        (["privacy.clip_norm=null"], "set privacy.clip_norm, which the servers check"),
        (["method.score_max=1e-10"], r"a score in \[0, 1.16415e-10\] is no number of so many bits"),
    ],
)
def test_what_cannot_be_checked_is_refused_by_name(overrides, said):
    with pytest.raises(ConfigError, match=said):
        plan_of(load_config(overrides=["federation.clients=untrusted", "privacy.clip_norm=1", *overrides]))


def test_a_model_too_large_for_the_proof_is_refused():
    engine = engine_of(EmbeddedEngine, PARAMETERS, FORMAT, clip_norm=1.0, timeout_sec=30.0)
    with engine, pytest.raises(ConfigError, match=r"nothing is proven for 16777217 parameters"):
        engine.start(np.broadcast_to(0.0, 2**24 + 1))


def test_an_adaptive_bound_stays_where_the_proof_holds():
    adaptive = "privacy={clip: quantile, clip_norm: 1}"
    plan = plan_of(load_config(overrides=["federation.clients=untrusted", adaptive, "sharing.update_bits=16"]))
    low, high = plan.clip_limits()
    assert low * 2**16 >= LEAST_BOUND and high * 2**16 <= LARGEST_BOUND
    vectors = VectorFormat(16, 32, 6)
    with engine_of(EmbeddedEngine, PARAMETERS, vectors, clip_norm=1.0, timeout_sec=30.0) as engine:
        engine.start(MODEL)
        engine.prepare(1, 4, Terms(2.0**-12))
        with pytest.raises(DisagreementError, match=r"announced a bound of 0.000244141, which nothing checks"):
            engine.aggregate(1, list(COHORT))


def test_the_audits_bound_holds_where_all_round_towards_zero():
    """Updates of one sign, all shortened: each coordinate is off by up to a step, and all the same way."""
    config = load_config(
        overrides=["federation={clients: untrusted, cohort: 3}", "privacy.clip_norm=0.5", "method.name=fedavg"]
    )
    plan = plan_of(config)
    rng, d = np.random.default_rng(0), 3000
    plain = [LocalUpdate(np.abs(rng.normal(size=d)) * 0.05, 0.0, {}) for _ in range(3)]
    plain = [replace(u, norm=plan.vectors.norm(plan.vectors.encode_update(u.delta))) for u in plain]
    with EmbeddedEngine(plan, startup_timeout_sec=30.0, timeout_sec=30.0) as engine:
        engine.start(np.zeros(d))
        for slot, upload in enumerate(plain):
            engine.submit(1, slot, slot, engine.encoder(upload, Place(1, slot, slot)))
        released = engine.aggregate(1, [0, 1, 2]).parameters
    difference, bound = audit(plan, 1, np.zeros(d), [released], plain)
    usual = replace(plan, parameters=replace(plan.rule, bound=None)).error_bound(3, max(u.delta.max() for u in plain))
    assert usual < difference <= bound


def test_a_sums_clients_are_checked_where_the_runs_are():
    described = SecureSum("s", 1.0, lambda sizes: 3, 0.0)
    for clients in ("trusted", "untrusted"):
        run = plan_of(load_config(overrides=[f"federation.clients={clients}", "privacy.clip_norm=1"]))
        rule = sum_plan(described, 10, run).rule
        assert (rule.bound, rule.ratio_max is None) == ((1.0, True) if clients == "untrusted" else (None, False))


def test_bits_that_nobody_reads_are_none():
    layout = Layout("assisted", 2, 2, widths=(32, 33))
    headers = [Place(1, 0, 0).header(bytes(16), server) for server in (0, 1)]
    second = bytearray(share_update(np.zeros(2, np.uint64), [0.5, 0.5], headers, layout)[1])
    second[-1] = 0xFF
    assert unpack_upload(bytes(second), headers[1], layout).bits < 1 << 65


def test_the_bound_is_the_clip_norm_and_noise_counts_on_liars_of_kappa():
    noisy = "privacy={clip_norm: 2, noise_multiplier: 1, sensitivity: bounded_weights}"
    untrusted = ["federation.clients=untrusted", "evaluation.exact_beside_noise=true"]
    for method, coupled in (("fedavg", False), ("f2gnn", True)):
        checked, trusted = (
            plan_of(load_config(overrides=[*others, noisy, f"method.name={method}"]))
            for others in (untrusted, untrusted[1:])
        )
        assert checked.rule.bound == 2.0 and checked.rule.ratio_max is None
        ratio = checked.sensitivity / trusted.sensitivity
        assert ratio == pytest.approx(KAPPA if coupled else 1.0, rel=1e-2)
    assert l2_sensitivity(checked.rule, 2.0, checked.vectors, "worst_case", "fixed") >= 2 * 2.0 * KAPPA
    assert checked.privacy.failing(7) - trusted.privacy.failing(7) == pytest.approx(7 * 10 * 2.0**-42, rel=1e-3)
    mean = RoundParameters("fedavg", 10, bound=1.0)
    for least in (9, 5, 2):  # one client drops out, and the others, whose mean it leaves, are liars
        assert l2_sensitivity(mean, 1.0, FORMAT, "bounded_weights", "fixed", least_cohort=least) >= (1 + KAPPA) / (
            least + 1
        )
    narrow = VectorFormat(25, 32, 1)  # holds 2, and a liar's update is up to 5.4
    found = l2_sensitivity(replace(mean, bound=2.0), 2.0, narrow, "worst_case", "fixed")
    assert found >= 2 * 2.0 + 2 * 2.0 * KAPPA * clip_error(10)
