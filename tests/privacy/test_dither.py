"""Dither is uniform whatever it is added to; each server adds its own to all that it releases, and none twice."""

import numpy as np
import pytest
from scipy.stats import chisquare

from mpc_programs.rules import RoundParameters
from orchestrator.coordinator.embedded import EmbeddedEngine
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.privacy.dither import dither_ring64
from orchestrator.wire.envelope import Keypair
from orchestrator.wire.message import Place
from tests.support import engine_of

FORMAT = VectorFormat(update_bits=25, weight_bits=32, integer_bits=6)
COUNT = 20_000


def is_dither(values, bits):
    """Uniform on [-2^(bits - 1), 2^(bits - 1)), in the highest bits and in the lowest."""
    half = 1 << (bits - 1)
    within = -half <= values.min() and values.max() < half
    high, low = (values + half) >> (bits - 4), values & 15
    return within and all(chisquare(np.bincount(part, minlength=16)).pvalue > 1e-6 for part in (high, low))


@pytest.mark.parametrize("bits", [4, 20, 32])
def test_dither_is_uniform_in_its_range(bits):
    assert is_dither(dither_ring64(COUNT, bits).view(np.int64), bits)


def test_one_bit_is_the_least_and_32_the_most():
    assert set(dither_ring64(100, 1).view(np.int64).tolist()) == {-1, 0}
    assert dither_ring64(0, 32).shape == (0,)
    for bits in (0, 33):
        with pytest.raises(ValueError, match="Expected 1 <= bits <= 32"):
            dither_ring64(1, bits)


@pytest.mark.parametrize("exact", [0, 1, -7, 2**31, 123_456_789_012_345, -(2**50) + 3])
def test_what_is_released_is_the_exact_sum_rounded_to_a_grid_whose_offset_says_nothing(exact):
    step = 1 << 32
    released = exact + dither_ring64(COUNT, 32).view(np.int64)
    offset = released % step
    for part in (offset >> 28, offset & 15):
        assert chisquare(np.bincount(part, minlength=16)).pvalue > 1e-6
    # The grid's points around the sum: the nearest one is what is released, and a tie goes down.
    points = (exact // step + np.arange(-1, 3)[:, None]) * step + offset
    distance = abs(points - exact)
    nearest = np.where((distance == distance.min(axis=0)), points, np.iinfo(np.int64).max).min(axis=0)
    assert (released == nearest).all()


def test_each_call_draws_a_fresh_one():
    assert (dither_ring64(100, 32) == dither_ring64(100, 32)).sum() <= 1


def test_each_server_dithers_the_common_model_in_every_round():
    """In a round without clients a server's share is its share of the model and what it adds."""
    shares = []
    with engine_of(EmbeddedEngine, RoundParameters("fedavg", 1), FORMAT, timeout_sec=20.0) as engine:
        engine.start(np.zeros(COUNT))
        collect = engine._collect

        def watch(*wanted):
            replies = collect(*wanted)
            shares.append([np.frombuffer(replies[f"server {k}"]["share"], dtype="<i8") for k in (0, 1)])
            return replies

        engine._collect = watch
        for number in (1, 2):
            engine.prepare(number, 0)
            engine.aggregate(number, [])
    first, second = np.array(shares)
    added = [*first, *(second - first)]
    assert all(is_dither(values, FORMAT.weight_bits) for values in added)
    assert abs(np.corrcoef(added)[np.triu_indices(4, 1)]).max() < 5 / COUNT**0.5


def test_every_clients_own_model_is_dithered_for_itself():
    """Clients with the same update: what their models differ by is dither, of both servers' in each."""
    rule, keypairs = RoundParameters("fedpub", 3, embedding=2), [Keypair() for _ in range(3)]
    models = []
    with engine_of(EmbeddedEngine, rule, FORMAT, timeout_sec=20.0) as engine:
        engine.start(np.zeros(COUNT))
        for number in (1, 2):
            for slot, keypair in enumerate(keypairs):
                update = LocalUpdate(np.zeros(COUNT), 0.0, {"embedding": np.array([1.0, 0.0])})
                sealed = engine.encoder(update, Place(number, slot, slot), keypair.public_key)
                engine.submit(number, slot, slot, sealed)
            answers = engine.aggregate(number, range(3)).answers
            for slot, (answer, keypair) in enumerate(zip(answers.values(), keypairs, strict=True)):
                models.append(engine.decoder(answer, keypair, Place(number, slot, slot)))
    added = np.array(models)
    assert np.abs(added).max() <= FORMAT.dither_bound
    assert np.abs(added.std(axis=1) / (FORMAT.dither_bound / 6**0.5) - 1).max() < 0.03  # the sum of two uniform ones
    assert abs(np.corrcoef(added)[np.triu_indices(6, 1)]).max() < 5 / COUNT**0.5
