"""What the servers send each other while they make correlations is uniform, whatever their secret parts are."""

import numpy as np
import pytest
from scipy.stats import chisquare

from mpc_programs.lockstep import run_pair
from orchestrator.mpc.offline import generation
from orchestrator.mpc.offline.correlations import Demand
from orchestrator.mpc.offline.generation import generate
from orchestrator.mpc.offline.oblivious_transfer import OtExtension
from orchestrator.mpc.prg import Prg

DEMAND = Demand(triples=2, bit_triples=16, bits=4, vectors=1, length=3)


class Fixed(Prg):
    """Where a server draws its own secret factors and bits: always the same, and such that they would show.

    Seeded generators, which stretch the blocks of transfers, stay as they are.
    """

    def __init__(self, seed=None):
        super().__init__(*([seed] if seed is not None else []))
        self._fixed = seed is None

    def uint64(self, count):
        return np.full(count, 3, np.uint64) if self._fixed else super().uint64(count)

    def bits(self, count):
        return np.ones(count, np.uint8) if self._fixed else super().bits(count)


def listen(protocol, payloads):
    """The same protocol; what it sends is noted, by its place in the protocol."""
    received, place = None, 0
    while True:
        try:
            payload = protocol.send(received)
        except StopIteration as done:
            return done.value
        payloads.setdefault(place, []).append(payload)
        received = yield payload
        place += 1


def record(monkeypatch, transfers, runs):
    """The payloads of both servers over many runs, by server and place."""
    monkeypatch.setattr(generation, "Prg", Fixed)
    sent = ({}, {})
    for _ in range(runs):
        run_pair(*(listen(generate(transfers[k], k, DEMAND), sent[k]) for k in (0, 1)))
    return {(k, place): payloads for k in (0, 1) for place, payloads in sent[k].items()}


def least_p_value(recorded):
    """Over every message: all its bytes together, and its first and its last byte alone."""
    results = []
    for payloads in recorded.values():
        data = np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(len(payloads), -1)
        for part in (data.ravel(), data[:, 0], data[:, -1]):
            bins = 256 if len(part) > 2000 else 8
            results.append(chisquare(np.bincount(part >> (8 - int(np.log2(bins))), minlength=bins)).pvalue)
    return min(results) * len(results)


@pytest.fixture(scope="module")
def transfers():
    return run_pair(OtExtension.create(), OtExtension.create())[0]


def test_messages_of_preprocessing_are_uniform(monkeypatch, transfers):
    recorded = record(monkeypatch, transfers, 300)
    assert len(recorded) == 2 * 4  # the choices of the transfers, and the corrections, of the scalars and of a vector
    assert least_p_value(recorded) > 1e-5


def test_that_test_notices_blocks_that_mask_nothing(monkeypatch, transfers):
    """Transfers of zeros: what is sent is what they should have hidden."""
    blank = []
    for side in transfers:

        async def extend(choices, original=side.extend):
            return tuple(np.zeros_like(part) for part in await original(choices))

        blank.append(type("Blank", (), {"extend": staticmethod(extend)})())
    assert least_p_value(record(monkeypatch, blank, 20)) < 1e-12
