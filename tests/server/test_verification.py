"""What the servers accept and refuse: honest updates of every shape, and every lie that we could think of."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import binom

from mpc_programs.lockstep import run_pair
from mpc_programs.rules import RoundParameters, score_widths
from mpc_programs.verification import (
    ABOVE,
    BELOW,
    KAPPA,
    LARGEST_BOUND,
    LARGEST_LENGTH,
    LEAST_BOUND,
    PRODUCT_ROWS,
    ROWS,
    largest_sum,
    shift,
)
from orchestrator.mpc.fixed_point import COUNT_BITS, SCALAR_BITS
from orchestrator.mpc.offline.correlations import Batch, Tally, deal
from orchestrator.mpc.prg import Prg
from orchestrator.mpc.projection import Rows
from orchestrator.mpc.ring import pack_bits
from orchestrator.mpc.shared_arithmetic import SharedArithmetic
from orchestrator.mpc.shares import VectorShare
from orchestrator.server import base, checking, verification
from orchestrator.server.embedded import EmbeddedServer
from orchestrator.server.verification import NORM, PRODUCT, Witness, verification_demand, verify
from orchestrator.wire.update import Correlated
from orchestrator.wire.upload import Upload
from tests.support import add128

BOUND = 2.0**25


def split(values):
    """Both servers' shares, as an honest client or a liar makes them."""
    first = Prg().uint64(len(values))
    return first, values - first


def witnesses(rows, update, product, mask, bits=(0, 0)):
    """Both servers' witnesses of one upload."""
    parts = zip(split(update), split(product), split(np.array([mask], np.uint64)), bits, strict=True)
    return [Witness(*rows.times([share, claimed]), own[0], bit) for share, claimed, own, bit in parts]


def verdicts(claims, bound=BOUND, widths=(), sources=None, counted=False):
    """What both servers find; claims: both servers' witnesses of each upload."""
    # Correlations of zeros are correlations; masking, which they do not, is tested where whole rounds are.
    sources = sources or (Tally(), Tally())
    sides = [
        verify(SharedArithmetic(k, sources[k]), bound, widths, counted, [claim[k] for claim in claims]) for k in (0, 1)
    ]
    (first, second), rounds, sent = run_pair(*sides)
    assert first[0] == second[0]
    scores = [add128(*both) for both in zip(first[1], second[1], strict=True)]
    return first[0], scores, rounds, sent


def honest(rows, update):
    mask = Prg().uint64(1)[0]
    return witnesses(rows, update, mask * update, mask)


def integers(values):
    return np.trunc(np.asarray(values)).astype(np.int64).view(np.uint64)


def fresh_rows(d):
    return Rows(np.random.default_rng().bytes(16), ROWS, d)


SHAPES = {
    "at the bound": lambda rng, d: rng.normal(size=d),
    "zero": lambda rng, d: np.zeros(d),
    "tiny": lambda rng, d: rng.normal(size=d) * 1e-9,
    "sparse": lambda rng, d: rng.normal(size=d) * (rng.random(d) < 0.02),
    "one coordinate": lambda rng, d: np.eye(1, d, rng.integers(d))[0] * rng.choice([-1, 1]),
    "equal": lambda rng, d: np.ones(d),
}


@pytest.mark.parametrize("d", [1, 3, 700])
@pytest.mark.parametrize("bound", [LEAST_BOUND, BOUND, 2.0**31])
def test_no_honest_update_is_refused(bound, d):
    rng, claims = np.random.default_rng(d), []
    for shape in SHAPES.values():
        for _ in range(12):
            values = shape(rng, d)
            largest = np.linalg.norm(values)
            scale = bound / largest if largest > 1e-3 else 1.0
            claims.append(honest(fresh_rows(d), integers(values * scale * (1 - 1e-12))))
    assert verdicts(claims, bound)[0] == [None] * len(claims)


@pytest.mark.parametrize("d", [1, 3, 700])
@pytest.mark.parametrize("bound", [LEAST_BOUND, BOUND])
def test_every_update_longer_than_kappa_bounds_is_refused(bound, d):
    rng, claims = np.random.default_rng(d), []
    for name, shape in SHAPES.items():
        if name in ("zero", "tiny"):
            continue
        for longer in (1.001, 2.0, 20.0, 2.0**15, 2.0**30):
            values = shape(rng, d)
            if largest := np.linalg.norm(values):
                claims.append(honest(fresh_rows(d), integers(values / largest * KAPPA * bound * longer)))
    assert set(verdicts(claims, bound)[0]) == {NORM}


@pytest.mark.parametrize("value", [2**63, 2**63 - 1, 2**62, 2**63 + 1, -(2**62), 2**59 + 5, 2**40])
@pytest.mark.parametrize("everywhere", [False, True])
def test_an_update_that_wraps_around_is_refused(value, everywhere):
    """Rows of plus and minus one alone would pass pairs of 2^63."""
    update = np.zeros(64, np.uint64)
    update[: 64 if everywhere else 2] = np.uint64(value % 2**64)
    assert verdicts([honest(fresh_rows(64), update) for _ in range(20)])[0] == [NORM] * 20


def lies_about_a_product(rng):
    d = 40
    update = integers(rng.normal(size=d) * 1e5)
    one = np.zeros(d, np.uint64)
    one[7] = 1
    for error in (one, one << np.uint64(63), np.ones(d, np.uint64), rng.integers(0, 2**63, d).astype(np.uint64)):
        yield update, error, np.uint64(rng.integers(0, 2**63))
    yield update, one, np.uint64(0)
    yield np.zeros(d, np.uint64), one, np.uint64(1)


def test_a_product_that_is_off_by_anything_is_refused():
    rng = np.random.default_rng(5)
    claims = [
        witnesses(fresh_rows(len(update)), update, mask * update + error, mask)
        for _ in range(4)
        for update, error, mask in lies_about_a_product(rng)
    ]
    assert set(verdicts(claims)[0]) == {PRODUCT}


def test_two_liars_whose_errors_cancel_are_both_refused_and_the_honest_one_between_is_not():
    rows, rng = fresh_rows(50), np.random.default_rng(1)
    update, error, mask = integers(rng.normal(size=50) * 1e5), integers(rng.normal(size=50) * 1e9), np.uint64(77)
    first = witnesses(rows, update, mask * update + error, mask)
    second = witnesses(rows, update, mask * update - error, mask)
    long = integers(np.ones(50) * BOUND)
    claims = [first, honest(rows, update), second, honest(rows, long), honest(rows, -long)]
    assert verdicts(claims)[0] == [PRODUCT, None, PRODUCT, NORM, NORM]


def test_what_passed_the_rows_of_one_round_is_refused_in_the_next():
    """Who knows a round's rows passes them with any length: so they are fresh, and of a key that clients lack."""
    d, rows = 400, fresh_rows(400)
    matrix = np.vstack(list(rows._expanded())) - 1.0
    basis = np.linalg.svd(matrix)[2][ROWS:]  # whatever is orthogonal to every row
    update = integers(np.rint(basis[0] * 2**45))
    claims = [witnesses(rows, update, update, 1), *(honest(fresh_rows(d), update) for _ in range(10))]
    assert verdicts(claims)[0] == [None, *[NORM] * 10]


@pytest.mark.parametrize("d", [1, 8192, 8193, 20_000])
def test_rows_are_multiplied_exactly_and_have_the_elements_that_the_proof_counts_on(d):
    seed, rng = bytes(range(16)), np.random.default_rng(d)
    rows = Rows(seed, 5, d)
    matrix = np.concatenate([block - 1.0 for block in rows._expanded()], axis=1).astype(np.int64)
    vectors = rng.integers(0, 2**64, (3, d), dtype=np.uint64)
    expected = [
        [sum(int(r) * int(v) for r, v in zip(row, vector, strict=True)) % 2**64 for row in matrix] for vector in vectors
    ]
    assert rows.times(list(vectors)).tolist() == expected
    unkept = Rows(seed, 5, d)
    unkept._kept = None
    assert unkept.times(list(vectors)).tolist() == expected
    if d == 20_000:
        for value, share in ((-1, 0.25), (0, 0.5), (1, 0.25)):
            assert abs((matrix == value).mean() - share) < 0.01
        assert np.abs(np.corrcoef(matrix) - np.eye(5)).max() < 0.05


widths = st.lists(st.integers(1, 40), min_size=1, max_size=4)


@given(widths, st.booleans(), st.data())
def test_any_bits_are_scores_in_their_ranges(widths, counted, data):
    rows, total = fresh_rows(2), sum(widths)
    drawn = [data.draw(st.lists(st.integers(0, 1), min_size=total, max_size=total)) for _ in range(2)]
    claims = []
    for bits in drawn:
        own = Prg().bits(total)
        other = own ^ np.array(bits, np.uint8)
        zero = np.zeros(2, np.uint64)
        claims.append(witnesses(rows, zero, zero, 0, (pack_bits(own), pack_bits(other))))
    found = verdicts(claims, widths=tuple(widths), counted=counted)[1]
    for bits, scores in zip(drawn, found, strict=True):
        start = 0
        for k, (width, score) in enumerate(zip(widths, scores, strict=True), start=1):
            value = sum(bit << j for j, bit in enumerate(bits[start : start + width]))
            assert score == value << (COUNT_BITS if counted and k == len(widths) else 0)
            start += width


def test_real_correlations_do_as_well_and_ten_exchanges_are_enough_for_any_number():
    update = integers(np.random.default_rng(3).normal(size=30) * 1e5)
    for count in (1, 5):
        demand = verification_demand(count, (32, 33))
        batches = [Batch.from_dealer(demand, k, message) for k, message in enumerate(deal(demand))]
        claims = [honest(fresh_rows(30), update) for _ in range(count - 1)]
        claims.append(honest(fresh_rows(30), integers(np.full(30, BOUND))))
        found, _, rounds, sent = verdicts(claims, widths=(32, 33), sources=batches)
        assert found == [None] * (count - 1) + [NORM]
        assert rounds == 10 and sent <= 2_900 * count


def test_the_figures_are_those_of_the_proof():
    """Chernoff's bound from either side, docs/protocol.md: E e^(uY^2) <= (1 - 2u)^-1/2, and for -u a supremum."""

    def exponent(ratio):  # both tails of a chi-square distribution have this one
        return ROWS / 2 * (ratio - 1 - math.log(ratio)) / math.log(2)

    assert exponent(ABOVE**2) > 40
    # The lower tail is that of Gaussian rows as long as no vector's e^(-uY^2) has a larger mean; here is every u's.
    best = minimize_scalar(lambda u: u / BELOW**2 - math.log1p(2 * u) / 2, bounds=(0.01, 5), method="bounded")
    assert exponent(1 / BELOW**2) > 42 and -ROWS * best.fun / math.log(2) > 42
    gaussian = 1 / math.sqrt(1 + 2 * best.x)
    for m in range(1, 400):  # vectors of m equal elements, in closed form: Hoelder's bound at p = 1/m
        j = np.arange(2 * m + 1)
        mean = float((binom(2 * m, j) * 4.0**-m * np.exp(-2 * best.x / m * (j - m) ** 2)).sum())
        assert mean <= gaussian * (1 + 1e-9)
    finest = BELOW * (ABOVE * math.sqrt(ROWS / 2) + 2 * math.sqrt(ROWS) * 2.0**-8) / math.sqrt(ROWS / 2)
    assert finest <= KAPPA
    for bits in range(13, 35):
        for bound in (2.0**bits, 1.999 * 2.0**bits):
            unit = 2.0 ** shift(bound)
            assert unit <= bound / 2**8 and math.sqrt(largest_sum(bound)) * unit <= (ABOVE * 8 + 0.1) * bound
            assert math.sqrt(largest_sum(bound)) >= ABOVE * 8 * bound / unit + math.sqrt(ROWS) - 1e-6
            assert ROWS * (2 ** (64 - shift(bound)) + 1) ** 2 < 2**127
    assert PRODUCT_ROWS >= 64 and SCALAR_BITS == 32 and 25 * LARGEST_BOUND * LARGEST_LENGTH < 2**63


def test_every_row_counts_in_the_norm():
    zero = np.zeros(ROWS, np.uint64)
    for long, verdict in ((12.3, NORM), (11.9, None)):
        claims = []
        for k in range(ROWS):
            own = zero.copy()
            own[k] = int(long * BOUND)
            claims.append([Witness(part, zero, np.uint64(0), 0) for part in (own, zero)])
        assert verdicts(claims)[0] == [verdict] * ROWS


def test_a_score_has_the_bits_of_its_range_and_no_more():
    assert score_widths(RoundParameters("f2gnn", 4, fairness_max=2.0)) == (32, 33)
    for highest in (1.5, 2.0**-40):
        with pytest.raises(ValueError, match="no number of so many bits"):
            score_widths(RoundParameters("f2gnn", 4, fairness_max=highest))


def test_rows_are_of_both_servers_keys_and_of_one_round(monkeypatch):
    """Whoever knows one server's part, or another round's rows, knows nothing of these."""
    monkeypatch.setattr(base.Server, "setup", lambda *_: None)
    monkeypatch.setattr(checking, "provider_of", lambda *_: None)
    monkeypatch.setattr(checking, "Pool", lambda *_: SimpleNamespace(close=None))
    share = np.arange(300, dtype=np.uint64)

    def witness(own, theirs, number, index=0):
        monkeypatch.setattr(checking.secrets, "token_bytes", lambda _: own)
        server = object.__new__(EmbeddedServer)
        server._closing = []
        server.index, server._peer = index, SimpleNamespace(exchange=lambda _: theirs)
        server.setup(None, server._peer, None)
        server._announced = SimpleNamespace(parameters=RoundParameters("f2gnn", 4, bound=1.0))
        server._model = VectorShare(np.zeros(300, np.uint64), 57, index)
        server._round = number
        return server._witnessed(Upload([], Correlated(share, share[:1], share[None]))).witness[0].tobytes()

    a, b, c = (bytes([k] * 16) for k in (1, 2, 3))
    for number in (1, 2):
        assert witness(a, b, number, 0) == witness(b, a, number, 1)
    assert len({witness(a, b, 1), witness(a, b, 2), witness(c, b, 1), witness(a, c, 1)}) == 4


def test_nothing_is_opened_without_a_mask_and_no_mask_is_used_twice(monkeypatch):
    """The same witnesses, with the next correlations of one batch: other openings in every element."""
    opened, open_ring64 = [], verification.open_ring64

    async def watch(masked, *, reason):
        opened.append(await open_ring64(masked, reason=reason))
        return opened[-1]

    claim = honest(fresh_rows(30), integers(np.arange(30) * 1e4))
    demand = verification_demand(2, (32,))
    monkeypatch.setattr(verification, "open_ring64", watch)
    batches = [Batch.from_dealer(demand, k, message) for k, message in enumerate(deal(demand))]
    for _ in range(2):
        assert verdicts([claim], widths=(32,), sources=batches)[0] == [None]
    assert len(opened) == 4 and (opened[0] != opened[2]).all() and len(opened[0]) == 1 + PRODUCT_ROWS
    for batch in batches:  # of a stock for two, two have taken all
        with pytest.raises(RuntimeError, match="more triples than were prepared"):
            batch.triples(1)
