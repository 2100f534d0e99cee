"""Exact released sums give their summands away to lattice reduction; dithered ones do not; and what dither leaves.

Models are those that real server processes release, attacked as whoever receives them would: from the model before and
after and the attackers' own updates. The control runs the same attack on servers that add no dither.
"""

import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from mpc_programs.rules import RoundParameters
from orchestrator.coordinator.audit import float64_aggregate, float64_personal
from orchestrator.coordinator.embedded import EmbeddedEngine
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.privacy.dither import dither_ring64
from orchestrator.wire.envelope import Keypair
from orchestrator.wire.message import Place
from tests.privacy.lattice_attack import exact, residual, rounded
from tests.support import engine_of

FORMAT = VectorFormat(update_bits=25, weight_bits=32, integer_bits=6)
EXACT = {f"server {k}": [sys.executable, str(Path(__file__).with_name("exact_server.py"))] for k in (0, 1)}


@dataclass(frozen=True)
class Case:
    """The first `colluders` of q clients against the others; updates have so many bits in d coordinates."""

    rule: str
    q: int
    colluders: int
    bits: int = 18
    d: int = 32

    def __str__(self):
        return f"{self.rule}, {self.colluders} of {self.q}, {self.bits} bits"


CASES = [
    Case("f2gnn", 3, 1),
    Case("f2gnn", 3, 0, bits=8),
    Case("f2gnn", 4, 2),
    Case("fedpub", 3, 1),
    Case("fedpub", 5, 2, d=48),
]


def make_updates(case):
    """Integers (q, d) of about so many bits, half of each common to all: clients train from one model."""
    rng = np.random.default_rng(0)
    parts = rng.normal(size=case.d) + rng.normal(size=(case.q, case.d))
    return np.rint(parts * 2.0 ** (case.bits - 3)).astype(int)


@cache
def play(case, dither=True):
    """A round on servers; what the colluders hold (sums in steps of 2^-57), all updates, and the colluders' weights."""
    rng, updates = np.random.default_rng(1), make_updates(case)
    parameters = RoundParameters(case.rule, case.q, embedding=4 if case.rule == "fedpub" else 0)
    start, keypairs, uploads = np.zeros(case.d), [Keypair() for _ in updates], []
    with engine_of(EmbeddedEngine, parameters, FORMAT, timeout_sec=20.0, commands=None if dither else EXACT) as engine:
        engine.start(start)
        for slot, update in enumerate(updates):
            direction = rng.normal(size=4)
            scores = {"balance": rng.random(), "fairness": 2 * rng.random()}
            if parameters.personal:
                scores = {"embedding": direction / np.linalg.norm(direction)}
            upload = LocalUpdate(np.ldexp(update, -25), 1.0, scores)
            place = (1, slot, slot)
            key = keypairs[slot].public_key if parameters.personal else b""
            engine.submit(*place, engine.encoder(upload, Place(*place), key))
            uploads.append(upload)
        result = engine.aggregate(1, range(case.q))
        if parameters.personal:
            own = [(result.answers[slot], keypairs[slot], Place(1, slot, slot)) for slot in range(case.colluders)]
            released = [engine.decoder(*each) for each in own]
            weights = float64_personal(start, parameters, uploads)[0][: case.colluders]
        else:
            released = [result.parameters]
            one_at_a_time = [[replace(u, delta=np.array([float(u is v)])) for u in uploads] for v in uploads]
            weights = -np.array([[float64_aggregate(np.zeros(1), parameters, None, us)[0] for us in one_at_a_time]])
    # The model before was zero and sums are below 2^53 steps: float64 holds them exactly.
    return [np.rint(-model * 2.0**57).astype(int).tolist() for model in released], updates, weights


def split(case, updates):
    """Of the colluders and of the others."""
    return updates[: case.colluders].tolist(), updates[case.colluders :].tolist()


def orthogonal(finding, vectors):
    """How many of the vectors of the attack's first step are what it needs."""
    return sum(not any(np.dot(np.array(u, object), np.array(v, object)) for v in vectors) for u in finding.orthogonal)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_exact_sums_give_every_update_and_weight_of_the_others_away(case):
    sums, updates, weights = play(case, dither=False)
    known, secret = split(case, updates)
    finding = exact(sums, known, case.q)
    assert orthogonal(finding, secret) == case.d - case.q
    assert set(finding.updates) == set(map(tuple, secret))
    order = [secret.index(list(update)) for update in finding.updates]
    np.testing.assert_allclose(finding.weights, weights[:, case.colluders :][:, order], atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_dithered_sums_do_not(case):
    """Neither to the attack as it is, nor looking for a rounded sum, in whatever units; none of its steps succeeds.

    Not even nearly: the span that it finds explains the others' updates no better than the released sums and the
    attackers' own updates do by themselves, as any vectors at all would.
    """
    sums, updates, _ = play(case)
    known, secret = split(case, updates)
    shifts = (0, 8, 16, 24, 28, 30, 32, 34, 36)
    for finding in [exact(sums, known, case.q), *(rounded(sums, known, case.q, shift) for shift in shifts)]:
        assert orthogonal(finding, secret) == 0
        assert not set(finding.updates) & set(map(tuple, secret))
        for update in secret:
            assert residual(update, finding.span) > 0.5 * residual(update, [*sums, *known])


def dithered(sums, bits=FORMAT.weight_bits):
    """Exact sums, integers, as two servers would release them with dithers of so many bits."""
    dithers = [dither_ring64(sums.size, bits).view(np.int64).reshape(sums.shape) for _ in range(2)]
    return sums + dithers[0] + dithers[1]


SMALL = 3
"""A dither of so few bits ends the attack on exact sums, and not the one on rounded sums."""


def test_the_search_for_rounded_sums_finds_what_a_dither_of_3_bits_hides_from_the_exact_one():
    """Else its failure above would say nothing."""
    case = Case("f2gnn", 3, 1, d=48)
    sums, updates, _ = play(case, dither=False)
    known, secret = split(case, updates)
    coarse = dithered(np.array(sums), SMALL).tolist()
    assert not set(exact(coarse, known, case.q).updates) & set(map(tuple, secret))
    assert set(rounded(coarse, known, case.q, SMALL).updates) == set(map(tuple, secret))


def test_other_updates_explain_a_dithered_sum_as_well_even_to_whoever_knows_the_weights():
    """Moving two members' updates by (m', -m), s m' close to s' m, moves the sum by less than the dither can show.

    No algorithm can tell what several answers explain. Of the exact sum there is one answer.
    """
    rng = np.random.default_rng(2)
    first, second = rng.integers(-(2**18), 2**18, size=(2, 1000))
    s, other = 1_610_612_741, 1_476_395_023  # 0.375 and 0.344 of 2^32
    shifts = np.arange(2**14, 2**15)
    changes = s * shifts - other * np.rint(s * shifts / other).astype(int)
    m = shifts[np.argsort(abs(changes))[:1000]]
    change = s * m - other * np.rint(s * m / other).astype(int)
    total = s * first + other * second
    released, moved = dithered(total), total + change
    assert (change != 0).all() and abs(change).max() < 2.0**-4 * 2**FORMAT.weight_bits
    # The density of two dithers is a triangle: how much likelier the truth is than the other answer, on average.
    likelihood = np.array([2**32 - abs(released - answer) for answer in (total, moved)], dtype=float)
    assert (likelihood[1] > 0).mean() > 0.99
    assert np.median(likelihood[1] / likelihood[0]) == pytest.approx(1, abs=0.1)


# What dither does not give (docs/privacy.md)


def test_all_but_one_colluders_have_the_last_ones_update_up_to_the_rounding():
    """Under FedAvg, whose weights are known; 2^-25 is the step of an update."""
    updates = np.random.default_rng(3).integers(-(2**18), 2**18, size=(3, 1000))
    weight = 2**32 // 3
    released = dithered(weight * updates.sum(axis=0))
    found = released / weight - updates[:2].sum(axis=0)
    assert np.abs(found - updates[2]).max() <= 3.01


def test_updates_of_two_values_show_in_a_rounded_sum():
    """One step of Adam from fresh moments moves every parameter by plus or minus the learning rate."""
    rng, step = np.random.default_rng(4), round(1e-3 * 2**25)
    updates = step * rng.choice((-1, 1), size=(3, 2000))
    weights = np.rint(np.array([0.3347, 0.3307, 0.3346]) * 2**32).astype(int)
    left = dithered(weights @ updates) - weights[2] * updates[2]  # a member finds its own weight by trying
    high = abs(left) > abs(left).max() / 2
    total, gap = np.median(abs(left[high])), np.median(abs(left[~high]))
    found = np.where(high, np.sign(left), [[1], [-1]] * np.sign(left)).astype(int)
    assert (step * found == updates[:2]).all()
    np.testing.assert_allclose(np.array([total + gap, total - gap]) / 2 / step, weights[:2], rtol=1e-3)


def test_half_of_a_cohort_of_fedpub_spans_the_other_halfs_updates():
    """As many sums as there are unknown updates: what is left to find is how these are mixed, a matrix of c by c."""
    rng = np.random.default_rng(5)
    updates = rng.integers(-(2**18), 2**18, size=(4, 1000))
    weights = np.array([[0.4, 0.2, 0.3, 0.1], [0.2, 0.5, 0.1, 0.2]])
    sums = dithered(np.rint(weights * 2**32).astype(int) @ updates)
    for update in updates[2:]:
        assert residual(update, [*sums, *updates[:2]]) < 1e-4 < 0.1 < residual(update, [sums[0], *updates[:2]])
