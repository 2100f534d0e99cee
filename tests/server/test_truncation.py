"""Every truncation of whole rounds: how large the numbers are that are cut, and so how often one is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from mpc_programs.rules import RoundParameters
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc import shared_arithmetic
from orchestrator.mpc.offline.correlations import Tally
from orchestrator.mpc.ring import signed128, truncate
from orchestrator.mpc.shared_arithmetic import SharedArithmetic
from orchestrator.server import aggregation
from tests.server.test_aggregation import FORMAT, make_personal, round_on_shares
from tests.support import add128, share

LIMIT = 2**74
"""What docs/protocol.md says of every |x| but those of `faithful`."""


class Record:
    """What both servers truncate, in the order in which they do; where no bits are cut nothing can go wrong."""

    def __init__(self, monkeypatch):
        self.shares = ([], [])
        for module in (shared_arithmetic, aggregation):
            monkeypatch.setattr(module, "truncate", self.truncate)

    def truncate(self, values, bits, owner):
        if bits:
            self.shares[owner].extend(values)
        return truncate(values, bits, owner)

    def sizes(self):
        """|x| of each truncation."""
        return [abs(x) for x in signed128(add128(*self.shares))]


def recorded_round(monkeypatch, parameters, uploads, clip_norm=None, name="assisted"):
    aggregation.demand(parameters, 2, name)  # before recording: it runs the program on zeros
    with monkeypatch.context() as patch:
        record = Record(patch)
        round_on_shares(parameters, np.zeros(2), uploads, clip_norm, program=name)
    return record.sizes()


def probability(sizes):
    """That one of them at least is wrong, at most: each is with |x| / 2^128."""
    return sum(sizes) / 2**128


def make_uploads(q, width, kind, norm=0.5):
    rng = np.random.default_rng(q)
    balance, fairness = {
        "spread": (rng.random(q), width * rng.random(q)),
        "largest": (np.ones(q), np.full(q, width)),
        "least": (np.zeros(q), np.zeros(q)),
        "apart": (np.arange(q) == 0, width * (np.arange(q) == q - 1)),
    }[kind]
    scores = [{"balance": float(b), "fairness": float(f)} for b, f in zip(balance, fairness, strict=True)]
    return [LocalUpdate(np.full(2, norm / 2**0.5), norm, score) for score in scores]


RULES = [
    {"lam": 8.0},
    {"lam": 64.0, "tau": 0.1},
    {"lam": 64.0, "tau": 0.1, "fairness_max": 1e5},
    {"lam": 0.0, "tau": 100.0},
    {"lam": 8.0, "fairness_max": 4.0, "expected": 10},
]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("q", [1, 3, 30, 300])
def test_whatever_a_round_truncates_is_below_the_stated_size(monkeypatch, q, rule):
    """Scores at the ends of their ranges, and the largest clip ratios; so are the number and the sum as stated."""
    for kind in ("spread", "largest", "least", "apart") if q < 300 else ("spread", "largest"):
        for clip_norm in (2.0**-14, 0.5, 4.0):
            parameters = RoundParameters("f2gnn", q, **rule, ratio_max=FORMAT.limit / clip_norm)
            uploads = make_uploads(q, parameters.fairness_max, kind)
            sizes = recorded_round(monkeypatch, parameters, uploads, clip_norm)
            assert max(sizes) < LIMIT
            assert len(sizes) <= 64 * (q + 1)
            assert probability(sizes) < (q + 8) * 2.0**-56


@pytest.mark.parametrize(("q", "exponent"), [(3, -57), (30, -54), (1000, -49)])
def test_a_round_of_the_presets_is_wrong_as_rarely_as_stated(monkeypatch, q, exponent):
    parameters = RoundParameters("f2gnn", q, lam=8.0, ratio_max=FORMAT.limit)
    sizes = recorded_round(monkeypatch, parameters, make_uploads(q, 2.0, "spread"), 1.0)
    assert max(sizes) < LIMIT and 2.0 ** (exponent - 1) < probability(sizes) < 2.0**exponent


@pytest.mark.parametrize("name", ["scalar-first", "faithful"])
def test_other_programs_truncate_no_more_than_elements_besides(monkeypatch, name):
    parameters = RoundParameters("f2gnn", 3, lam=8.0, ratio_max=FORMAT.limit)
    for kind in ("spread", "apart"):
        sizes = recorded_round(monkeypatch, parameters, make_uploads(3, 2.0, kind), 1.0, name)
        assert max(sizes) < LIMIT
        assert len(sizes) <= 64 * 4 + (0 if name == "scalar-first" else 3 * 3 * 2)


def test_elements_of_updates_are_the_largest_that_faithful_truncates(monkeypatch):
    uploads = make_uploads(1, 2.0, "spread", 0.99 * FORMAT.limit)
    sizes = recorded_round(monkeypatch, RoundParameters("f2gnn", 1), uploads, name="faithful")
    assert 2 ** (63 + FORMAT.integer_bits) < max(sizes) < 2 ** (64 + FORMAT.integer_bits)


@pytest.mark.parametrize("tau", [1.0, 3.0, 12.0])
@pytest.mark.parametrize("q", [2, 10, 30])
def test_a_personal_round_truncates_nothing_larger(monkeypatch, q, tau):
    parameters = RoundParameters("fedpub", q, embedding=8, similarity=tau)
    sizes = recorded_round(monkeypatch, parameters, make_personal(q, 2, q))
    assert max(sizes) < LIMIT
    assert len(sizes) <= 32 * q**2 and probability(sizes) < q**2 * 2.0**-60


def test_a_record_holds_what_was_cut(monkeypatch):
    """The recorder itself: a constant is added after truncation, a small factor gets nine more bits at most."""
    record, (first, second) = Record(monkeypatch), share([1.0, -3.0])
    for k, x in enumerate((first, second)):
        SharedArithmetic(k, Tally()).combine([(x, 2.0**-20)], 1000.0)
    assert record.sizes() == [2 ** (64 + 9 - 20), 3 * 2 ** (64 + 9 - 20)]
