"""The round on both servers' shares, against float64; and what each server gets to see."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from mpc_programs.lockstep import run_pair
from mpc_programs.programs import PROGRAMS
from mpc_programs.rules import RULES, RoundParameters
from orchestrator.coordinator.audit import float64_aggregate, float64_personal
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc import openings
from orchestrator.mpc.fixed_point import COUNT_BITS, SCALAR_BITS, VectorFormat
from orchestrator.mpc.offline.correlations import Batch, Demand, Tally, deal
from orchestrator.mpc.ring import unpack_bits
from orchestrator.mpc.shared_arithmetic import SharedArithmetic
from orchestrator.mpc.shares import BitShare, VectorShare
from orchestrator.server.aggregation import absorb, aggregate, demand, only, separate_count
from orchestrator.wire.envelope import Keypair
from orchestrator.wire.message import Header
from orchestrator.wire.upload import Layout, share_update, unpack_upload
from tests.support import f2gnn_bound, share

FORMAT = VectorFormat(25, 32, 6)


def round_on_shares(parameters, model, uploads, clip_norm=None, vectors=FORMAT, sources=None, program="assisted"):
    """Both servers' shares of the new model, or of all clients' own ones, the rounds and the bytes sent by each."""
    parts, n = [], parameters.models
    layout = Layout.of_round(parameters, program, len(model), counted=False)
    key = Keypair().public_key if parameters.personal else b""
    for slot, upload in enumerate(uploads):
        scores = [float(x) for name in RULES[parameters.rule].ranges(parameters) for x in np.ravel(upload.scores[name])]
        scores += [] if clip_norm is None else [upload.norm / clip_norm]
        headers = [Header(bytes(16), 1, slot, slot, server) for server in (0, 1)]
        packed = share_update(vectors.encode_update(upload.delta), scores, headers, layout, key)
        parts.append([unpack_upload(packed[k], headers[k], layout) for k in (0, 1)])
    if sources is None:
        needed = demand(parameters, len(model), program)
        sources = [Batch.from_dealer(needed, k, message) for k, message in enumerate(deal(needed))]
    encoded = vectors.encode_model(model)
    if parameters.personal:
        encoded = np.broadcast_to(encoded, (n, len(model)))
    start = [VectorShare(encoded, vectors.model_bits, 0), VectorShare(np.zeros_like(encoded), vectors.model_bits, 1)]
    for part in parts:
        start, part[:] = zip(*(absorb(share, part[k]) for k, share in enumerate(start)), strict=True)
        if program == "assisted":
            assert all(upload.update.products.size == 0 for upload in part)  # else a server would hold q^2 d elements
    sides = [
        aggregate(SharedArithmetic(k, sources[k]), parameters, vectors, [part[k] for part in parts], start[k], program)
        for k in (0, 1)
    ]
    shares, rounds, sent = run_pair(*sides)
    return shares, rounds, sent


def decode(shares, vectors=FORMAT):
    return vectors.decode_model(openings.release(*shares, reason="the result under test"))


def make_uploads(q, d, seed, largest=1.0):
    rng = np.random.default_rng(seed)
    uploads = []
    for _ in range(q):
        delta = rng.normal(size=d)
        delta *= rng.random() * largest / np.linalg.norm(delta)
        uploads.append(
            LocalUpdate(delta, float(np.linalg.norm(delta)), {"balance": rng.random(), "fairness": 2 * rng.random()})
        )
    return uploads


def undithered(bound, vectors=FORMAT):
    """Without the part of the bound that the servers add after what is tested here."""
    return bound - vectors.dither_bound


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize("rule", ["f2gnn", "fedavg"])
@pytest.mark.parametrize("q", [1, 2, 3, 5, 30])
def test_the_new_model_equals_float64_within_the_bound(q, rule, clip_norm, program):
    d = 200
    parameters = RoundParameters(rule, q, ratio_max=None if clip_norm is None else FORMAT.limit / clip_norm)
    model = np.random.default_rng(1).normal(size=d)
    uploads = make_uploads(q, d, seed=q)
    if rule == "fedavg":
        uploads = [LocalUpdate(upload.delta, upload.norm, {}) for upload in uploads]
    shares, rounds, _ = round_on_shares(parameters, model, uploads, clip_norm, program=program)
    result = decode(shares)
    expected = float64_aggregate(model, parameters, clip_norm, uploads)
    largest = max(np.abs(upload.delta).max() for upload in uploads)
    assert np.abs(result - expected).max() <= undithered(f2gnn_bound(FORMAT, q, largest))
    assert f2gnn_bound(FORMAT, q, largest) < 2.0**-20
    assert rounds <= 64


def make_personal(q, d, seed, m=8, largest=1.0):
    rng = np.random.default_rng(seed)
    uploads = []
    for _ in range(q):
        embedding = rng.normal(size=m)
        delta = rng.uniform(-largest, largest, size=d)
        scores = {"embedding": embedding / np.linalg.norm(embedding)}
        uploads.append(LocalUpdate(delta, float(np.linalg.norm(delta)), scores))
    return uploads


def personal_bound(parameters, largest, vectors=FORMAT):
    q = parameters.cohort
    bound = vectors.error_bound(q, largest, factors=parameters.similarities.error_ulp * 2.0**-SCALAR_BITS)
    return undithered(bound, vectors)


@pytest.mark.parametrize("tau", [1.0, 3.0, 10.0])
@pytest.mark.parametrize("q", [1, 2, 3, 5, 10, 30])
def test_every_clients_own_model_equals_float64_within_the_bound(q, tau):
    d = 60
    parameters = RoundParameters("fedpub", q, embedding=8, similarity=tau)
    model, uploads = np.random.default_rng(1).normal(size=d), make_personal(q, d, seed=q)
    shares, rounds, sent = round_on_shares(parameters, model, uploads)
    _, expected = float64_personal(model, parameters, uploads)
    bound = personal_bound(parameters, 1.0)
    assert shares[0].values.shape == (q, d)
    assert np.abs(decode(shares) - expected).max() <= bound < 4e-6
    assert rounds <= 24
    assert q > 1 or sent == 8  # one factor, opened under its mask


@settings(max_examples=15, deadline=None)
@given(
    st.integers(1, 4),
    st.sampled_from([(25, 32, 6), (20, 26, 17), (30, 20, 10)]),
    st.sampled_from(["random", "same", "opposite", "zero"]),
    st.integers(0, 2**32),
)
def test_own_models_in_any_valid_format_and_for_any_embeddings(q, bits, kind, seed):
    vectors = VectorFormat(*bits)
    parameters = RoundParameters("fedpub", q, embedding=3)
    uploads = make_personal(q, 20, seed, m=3)
    for k, upload in enumerate(uploads):
        signs = {"random": None, "same": 1.0, "opposite": (-1.0) ** k, "zero": 0.0}
        if signs[kind] is not None:
            upload.scores["embedding"] = signs[kind] * np.array([0.6, -0.8, 0.0])
    model = np.random.default_rng(seed).normal(size=20)
    result = decode(round_on_shares(parameters, model, uploads, vectors=vectors)[0], vectors)
    _, expected = float64_personal(model, parameters, uploads)
    assert np.abs(result - expected).max() <= personal_bound(parameters, 1.0, vectors)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(1, 4),
    st.sampled_from([(25, 32, 6), (20, 26, 17), (30, 20, 10), (1, 1, 40)]),
    st.floats(0.01, 50),
    st.integers(0, 2**32),
)
def test_any_valid_format(q, bits, largest, seed):
    vectors = VectorFormat(*bits)
    parameters = RoundParameters("f2gnn", q)
    model = np.random.default_rng(seed).normal(size=20)
    uploads = make_uploads(q, 20, seed, largest)
    result = decode(round_on_shares(parameters, model, uploads, vectors=vectors)[0], vectors)
    expected = float64_aggregate(model, parameters, None, uploads)
    top = max(np.abs(upload.delta).max() for upload in uploads)
    assert np.abs(result - expected).max() <= undithered(f2gnn_bound(vectors, q, top), vectors)


def test_a_clipped_update_moves_the_model_by_at_most_the_clip_norm():
    d, clip_norm = 50, 0.25
    parameters = RoundParameters("fedavg", 1, ratio_max=FORMAT.limit / clip_norm)
    for norm in (0.0, 0.1, 0.25, 0.2500001, 10.0, 63.9):
        delta = np.zeros(d)
        delta[7] = norm
        result = decode(round_on_shares(parameters, np.zeros(d), [LocalUpdate(delta, norm, {})], clip_norm)[0])
        bound = undithered(f2gnn_bound(FORMAT, 1, norm))
        assert np.linalg.norm(result) <= clip_norm + bound
        assert result[7] == pytest.approx(-min(norm, clip_norm), abs=bound)


def test_server_traffic_does_not_grow_with_the_model():
    parameters = RoundParameters("f2gnn", 3, ratio_max=FORMAT.limit)
    sent = [round_on_shares(parameters, np.zeros(d), make_uploads(3, d, 0), 1.0)[2] for d in (10, 10_000)]
    assert sent[0] == sent[1] < 16_000


class Recorder:
    """Collects what each server opens, by reason, over many runs of one round with fixed inputs."""

    def __init__(self, monkeypatch):
        self.seen = {}
        for name in ("open_scalars", "open_bits", "open_ring64"):
            monkeypatch.setattr(openings, name, self.wrap(getattr(openings, name)))

    def wrap(self, opening):
        async def recorded(masked, *, reason):
            def note(who, values):
                if isinstance(masked, BitShare):
                    values = unpack_bits(values, len(masked))
                self.seen.setdefault((reason, who), []).append(np.array(values))

            note(masked.owner, masked.bits if isinstance(masked, BitShare) else masked.values)
            opened = await opening(masked, reason=reason)
            if masked.owner == 0:  # both servers learn the same value
                note("opened", opened)
            return opened

        return recorded


def p_values(recorded):
    """Uniformity of the low byte, the high byte, or the bits of everything recorded under one reason and side."""
    for key, arrays in recorded.items():
        values = np.concatenate(arrays)
        if values.dtype == np.uint8:
            yield key, chisquare(np.bincount(values, minlength=2)).pvalue
        else:
            width = 56 if values.dtype == np.uint64 else 120
            for shift in (0, width // 2, width):
                low = np.array([int(value) >> shift & 255 for value in values])
                yield (*key, shift), chisquare(np.bincount(low, minlength=256)).pvalue


def f2gnn_round():
    """Wide scores and clipping, so that every kind of protocol takes part; inputs that would show if unmasked."""
    uploads = [LocalUpdate(np.full(3, 0.5), 0.8660254, {"balance": 1.0, "fairness": 2.0})] * 2
    return RoundParameters("f2gnn", 2, fairness_max=100.0, ratio_max=4.0), uploads, 1.0


def fedpub_round():
    embedding = {"embedding": np.array([0.6, 0.8])}
    return RoundParameters("fedpub", 2, embedding=2), [LocalUpdate(np.full(3, 0.5), 0.8660254, embedding)] * 2, None


def run_many(monkeypatch, runs, sources=None, program="assisted", inputs=f2gnn_round):
    from orchestrator.mpc import shared_arithmetic as arithmetic
    from orchestrator.server import aggregation as module

    parameters, uploads, clip_norm = inputs()
    needed = demand(parameters, 3, program)  # before recording: it runs the program on zeros
    recorder = Recorder(monkeypatch)
    monkeypatch.setattr(arithmetic, "open_scalars", openings.open_scalars)
    monkeypatch.setattr(arithmetic, "open_bits", openings.open_bits)
    monkeypatch.setattr(module, "open_ring64", openings.open_ring64)
    outputs = []
    for _ in range(runs):
        made = (
            sources() if sources else [Batch.from_dealer(needed, k, message) for k, message in enumerate(deal(needed))]
        )
        shares, *_ = round_on_shares(parameters, np.zeros(3), uploads, clip_norm, sources=made, program=program)
        outputs.append([share.values.ravel() for share in shares])
    for owner in (0, 1):
        recorder.seen["output share", owner] = [values[owner] for values in outputs]
    return recorder.seen


@pytest.mark.parametrize("program", PROGRAMS)
def test_everything_a_server_sends_or_learns_is_uniform(monkeypatch, program):
    seen = run_many(monkeypatch, 300, program=program)
    reasons = {reason for reason, _ in seen}
    # Three kinds of masked scalars and bits, the masked factors (which "faithful" does not need), the output shares.
    assert len(reasons) == (4 if program == "faithful" else 5)
    results = dict(p_values(seen))
    if program == "faithful":  # its sums have 32 fractional bits and are raised to the model's 57: the rest is 0
        results = {key: p for key, p in results.items() if key[0] != "output share" or key[-1] > 0}
    assert min(results.values()) > 1e-5 / len(results), min(results, key=results.get)


def test_everything_of_a_personal_round_is_uniform_also_how_the_factors_of_one_update_differ(monkeypatch):
    """A client's answers are the output shares, so that each alone says nothing."""
    seen = run_many(monkeypatch, 300, inputs=fedpub_round)
    factors = "factors masked by each client's own random elements"
    assert {reason for reason, _ in seen} == {"factors masked by a fresh triple", factors, "output share"}
    # Client 0's update has the same weight in both models: one mask for both weights would show that.
    seen["differences", "opened"] = [opened[:2] - opened[2:] for opened in seen[factors, "opened"]]
    results = dict(p_values(seen))
    assert min(results.values()) > 1e-5 / len(results), min(results, key=results.get)


def test_masked_embeddings_are_uniform(monkeypatch):
    from orchestrator.mpc import shared_arithmetic as arithmetic

    recorder = Recorder(monkeypatch)
    monkeypatch.setattr(arithmetic, "open_scalars", openings.open_scalars)
    needed = Demand(6, 0, 0)
    for _ in range(300):
        made = [Batch.from_dealer(needed, k, message) for k, message in enumerate(deal(needed))]
        first, second = share([1.0, -1.0, 0.0] * 2), share([1.0, 1.0, 0.0] * 2)
        run_pair(*(SharedArithmetic(k, made[k]).inner(first[k], second[k], 3) for k in (0, 1)))
    results = dict(p_values(recorder.seen))
    assert len(recorder.seen) == 3
    assert min(results.values()) > 1e-5 / len(results)


def test_each_servers_share_of_the_count_is_uniform_and_only_the_sum_is_the_count():
    shares, layout = ([], []), Layout("assisted", 1, 2)
    for _ in range(2000):
        parts = []
        for slot, within in enumerate((True, True, False)):
            headers = [Header(bytes(16), 1, slot, slot, server) for server in (0, 1)]
            bit = np.ldexp(float(within), COUNT_BITS - SCALAR_BITS)
            packed = share_update(np.zeros(1, np.uint64), [0.5, bit], headers, layout)
            parts.append([unpack_upload(packed[k], headers[k], layout) for k in (0, 1)])
        both = [separate_count([part[k] for part in parts], k) for k in (0, 1)]
        assert all(len(upload.scalars) == 1 for uploads, _ in both for upload in uploads)
        total = openings.release(both[0][1], both[1][1], reason="the result under test")
        assert total.view(np.int64)[0] == 2 * 2**COUNT_BITS
        for k in (0, 1):
            shares[k].append(both[k][1].values)
    results = dict(p_values({("count", k): values for k, values in enumerate(shares)}))
    assert min(results.values()) > 1e-5 / len(results)


def test_that_test_notices_a_broken_mask(monkeypatch):
    """With correlations that are all zero every opening shows the sharing's own randomness or the secret itself."""
    for inputs in (f2gnn_round, fedpub_round):
        seen = run_many(monkeypatch, 30, sources=lambda: [Tally(), Tally()], inputs=inputs)
        assert min(p for _, p in p_values(seen)) < 1e-12


def test_uploads_to_one_server_are_uniform():
    """The explicit parts: the update's share, the products' and the scores', for fixed plaintext."""
    columns = {"share": [], "products": [], "scalars": []}
    headers = [Header(bytes(16), 1, 0, 0, server) for server in (0, 1)]
    update, layout = FORMAT.encode_update(np.full(8, 0.25)), Layout("assisted", 8, 1)
    for _ in range(1500):
        upload = unpack_upload(share_update(update, [1.0], headers, layout)[1], headers[1], layout)
        for name, values in columns.items():
            values.append(np.ravel(getattr(upload if name == "scalars" else upload.update, name)))
    results = dict(p_values({(name, 1): values for name, values in columns.items()}))
    assert min(results.values()) > 1e-5 / len(results)


def test_an_absorbed_upload_keeps_no_message():
    """Else a server would hold 8 (n + 1) d bytes of every upload where 8 d are needed."""
    layout, key = Layout("assisted", 1000, 1, factors=3, answered=True), Keypair().public_key
    headers = [Header(bytes(16), 1, 0, 0, server) for server in (0, 1)]
    packed = share_update(np.zeros(1000, np.uint64), [1.0], headers, layout, key)
    for k in (0, 1):
        upload = unpack_upload(packed[k], headers[k], layout)
        start = VectorShare(np.zeros((3, 1000), np.uint64), FORMAT.model_bits, k)
        total, kept = absorb(start, upload)
        assert (total.values + upload.update.products == 0).all()
        for array in (kept.update.share, kept.update.factor_masks, kept.update.products):
            assert array.base is None or memoryview(array.base).nbytes <= array.nbytes
            assert not np.shares_memory(array, np.frombuffer(packed[k], np.uint8))
            assert not np.shares_memory(array, upload.update.products)


def test_an_upload_for_fewer_models_keeps_the_masks_of_these():
    layout, key = Layout("assisted", 4, 1, factors=5, answered=True), Keypair().public_key
    headers = [Header(bytes(16), 1, 0, 0, server) for server in (0, 1)]
    upload = unpack_upload(share_update(np.zeros(4, np.uint64), [1.0], headers, layout, key)[0], headers[0], layout)
    np.testing.assert_array_equal(only(upload, [0, 2, 3]).update.factor_masks, upload.update.factor_masks[[0, 2, 3]])
