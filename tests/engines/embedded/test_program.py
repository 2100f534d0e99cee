"""The round on both servers' shares, against float64; and what each server gets to see."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from mpc_programs.lockstep import run_pair
from mpc_programs.rules import RoundParameters
from orchestrator.engines.embedded import openings
from orchestrator.engines.embedded.arithmetic import SharedArithmetic
from orchestrator.engines.embedded.preprocessing import Batch, Tally, deal
from orchestrator.engines.embedded.program import PROGRAMS, absorb, aggregate, demand, score_names, separate_count
from orchestrator.engines.plaintext import PlainUpload, float64_aggregate
from orchestrator.sharing.fixed_point import COUNT_BITS, SCALAR_BITS, VectorFormat
from orchestrator.sharing.message import Header
from orchestrator.sharing.ring import unpack_bits
from orchestrator.sharing.shares import BitShare, VectorShare
from orchestrator.sharing.upload import share_update, unpack_upload

FORMAT = VectorFormat(25, 32, 6)


def round_on_shares(parameters, model, uploads, clip_norm=None, vectors=FORMAT, sources=None, program="assisted"):
    """Both servers' shares of the new model, the rounds and the bytes sent by each."""
    parts = []
    for slot, upload in enumerate(uploads):
        scores = [upload.scores[name] for name in score_names(parameters) if name != "ratio"]
        scores += [] if clip_norm is None else [upload.norm / clip_norm]
        headers = [Header(bytes(16), 1, slot, slot, server) for server in (0, 1)]
        packed = share_update(vectors.encode_update(upload.delta), scores, headers, program)
        parts.append([unpack_upload(packed[k], headers[k], len(model), len(scores), program) for k in (0, 1)])
    if sources is None:
        needed = demand(parameters, len(model), program)
        sources = [Batch.from_dealer(needed, k, message) for k, message in enumerate(deal(needed))]
    encoded = vectors.encode_model(model)
    start = [VectorShare(encoded, vectors.model_bits, 0), VectorShare(np.zeros_like(encoded), vectors.model_bits, 1)]
    if program == "assisted":
        for part in parts:
            start, part[:] = zip(*(absorb(share, part[k]) for k, share in enumerate(start)), strict=True)
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
            PlainUpload(delta, float(np.linalg.norm(delta)), {"balance": rng.random(), "fairness": 2 * rng.random()})
        )
    return uploads


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
        uploads = [PlainUpload(upload.delta, upload.norm, {}) for upload in uploads]
    shares, rounds, _ = round_on_shares(parameters, model, uploads, clip_norm, program=program)
    result = decode(shares)
    expected = float64_aggregate(model, parameters, clip_norm, uploads)
    largest = max(np.abs(upload.delta).max() for upload in uploads)
    assert np.abs(result - expected).max() <= FORMAT.error_bound(q, largest)
    assert FORMAT.error_bound(q, largest) < 2.0**-20
    assert rounds <= 64


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
    assert np.abs(result - expected).max() <= vectors.error_bound(q, top)


def test_a_clipped_update_moves_the_model_by_at_most_the_clip_norm():
    d, clip_norm = 50, 0.25
    parameters = RoundParameters("fedavg", 1, ratio_max=FORMAT.limit / clip_norm)
    for norm in (0.0, 0.1, 0.25, 0.2500001, 10.0, 63.9):
        delta = np.zeros(d)
        delta[7] = norm
        result = decode(round_on_shares(parameters, np.zeros(d), [PlainUpload(delta, norm, {})], clip_norm)[0])
        assert np.linalg.norm(result) <= clip_norm + FORMAT.error_bound(1, norm)
        assert result[7] == pytest.approx(-min(norm, clip_norm), abs=FORMAT.error_bound(1, norm))


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


def run_many(monkeypatch, runs, sources=None, program="assisted"):
    from orchestrator.engines.embedded import arithmetic
    from orchestrator.engines.embedded import program as module

    # A wide score range and clipping, so that every kind of protocol takes part; inputs that would show if unmasked.
    parameters = RoundParameters("f2gnn", 2, fairness_max=100.0, ratio_max=4.0)
    uploads = [PlainUpload(np.full(3, 0.5), 0.8660254, {"balance": 1.0, "fairness": 2.0})] * 2
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
        shares, *_ = round_on_shares(parameters, np.zeros(3), uploads, 1.0, sources=made, program=program)
        outputs.append([share.values for share in shares])
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


def test_each_servers_share_of_the_count_is_uniform_and_only_the_sum_is_the_count():
    shares = ([], [])
    for _ in range(2000):
        parts = []
        for slot, within in enumerate((True, True, False)):
            headers = [Header(bytes(16), 1, slot, slot, server) for server in (0, 1)]
            bit = np.ldexp(float(within), COUNT_BITS - SCALAR_BITS)
            packed = share_update(np.zeros(1, np.uint64), [0.5, bit], headers)
            parts.append([unpack_upload(packed[k], headers[k], 1, 2) for k in (0, 1)])
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
    seen = run_many(monkeypatch, 30, sources=lambda: [Tally(), Tally()])
    assert min(p for _, p in p_values(seen)) < 1e-12


def test_uploads_to_one_server_are_uniform():
    """The explicit parts: the masked update, the product and the scores' shares, for fixed plaintext."""
    columns = {"masked": [], "products": [], "scalars": []}
    headers = [Header(bytes(16), 1, 0, 0, server) for server in (0, 1)]
    update = FORMAT.encode_update(np.full(8, 0.25))
    for _ in range(1500):
        upload = unpack_upload(share_update(update, [1.0], headers)[1], headers[1], 8, 1)
        for name, values in columns.items():
            values.append(np.ravel(getattr(upload if name == "scalars" else upload.update, name)))
    results = dict(p_values({(name, 1): values for name, values in columns.items()}))
    assert min(results.values()) > 1e-5 / len(results)
