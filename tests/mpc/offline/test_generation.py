import numpy as np
import pytest

from mpc_programs.lockstep import run_pair
from orchestrator.mpc.offline import generation
from orchestrator.mpc.offline.correlations import Demand
from orchestrator.mpc.offline.generation import generate
from orchestrator.mpc.offline.oblivious_transfer import OtExtension
from orchestrator.mpc.ring import unpack_bits
from tests.support import check_bit_triples, check_random_bits, check_triples


@pytest.fixture(scope="module")
def extensions():
    return run_pair(OtExtension.create(), OtExtension.create())[0]


def batches(extensions, demand):
    return run_pair(*(generate(extensions[k], k, demand) for k in (0, 1)))


@pytest.mark.parametrize(
    "demand", [Demand(0, 0, 0), Demand(1, 0, 0), Demand(0, 7, 0), Demand(0, 0, 1), Demand(300, 5000, 33)], ids=str
)
def test_correlations_hold(extensions, demand):
    (first, second), rounds, sent = batches(extensions, demand)
    assert rounds == 2
    t, b, r = demand.triples, demand.bit_triples, demand.bits
    assert sent <= 4096 * t + 16 * (b + 8) + 32 * ((r + 1) // 2)
    check_triples(first.triples(t), second.triples(t))
    check_bit_triples(first.bit_triples(b), second.bit_triples(b))
    check_random_bits(first.bits(r), second.bits(r))


def test_every_share_is_uniform(extensions):
    n = 2000
    (first, second), _, _ = batches(extensions, Demand(n // 4, n, n))
    columns = []
    for batch in (first, second):
        columns += [np.array([value >> 127 for value in column]) for column in batch.triples(n // 4)]
        columns += [unpack_bits(column, n) for column in batch.bit_triples(n)]
        bits, sums = batch.bits(n)
        columns += [unpack_bits(bits, n), np.array([value >> 127 for value in sums])]
    for column in columns:
        assert abs(column.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(column))


def test_the_factors_are_random_too(extensions):
    """The secret bits behind a bit triple and a daBit are fair coins, and batches differ."""
    n = 4000
    (first, second), _, _ = batches(extensions, Demand(2, n, n))
    a, b, _ = (x ^ y for x, y in zip(first.bit_triples(n), second.bit_triples(n), strict=True))
    bits = first.bits(n)[0] ^ second.bits(n)[0]
    for column in (a, b, bits, a ^ b):
        assert abs(column.bit_count() / n - 0.5) < 5 * 0.5 / np.sqrt(n)
    again = batches(extensions, Demand(2, 0, 0))[0][0].triples(2)
    assert not set(again[0]) & set(first.triples(2)[0])


def test_scaled_vectors(extensions):
    demand = Demand(1, 1, 1, 3, 200)
    (first, second), rounds, sent = batches(extensions, demand)
    assert rounds == 2 + 2 * 3
    assert sent <= 3 * (512 * 200 + 1024) + 4096 + 200
    (f0, m0, w0), (f1, m1, w1) = (side.vectors(3, 200) for side in (first, second))
    assert ((f0 + f1)[:, None] * (m0 + m1) == w0 + w1).all()
    assert len(set(f0 + f1)) == 3


def test_large_batches_are_made_in_slices(extensions, monkeypatch):
    monkeypatch.setattr(generation, "_SLICE", 7)
    (first, second), rounds, _ = batches(extensions, Demand(20, 9, 5))
    assert rounds == 6
    check_triples(first.triples(20), second.triples(20))
    check_bit_triples(first.bit_triples(9), second.bit_triples(9))
    check_random_bits(first.bits(5), second.bits(5))
