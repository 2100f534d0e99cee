"""Test-only access to what no server can see: both sides of a protocol in one process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mpc_programs.arithmetic import softmax_error_ulp
from mpc_programs.lockstep import run, run_pair
from mpc_programs.rules import RoundParameters
from orchestrator.agreement.round_plan import Noise, RoundPlan
from orchestrator.mpc.fixed_point import SCALAR_BITS, VectorFormat, clip_error, decode_scalars, encode_scalars
from orchestrator.mpc.offline.correlations import Batch, Tally, deal
from orchestrator.mpc.prg import Prg
from orchestrator.mpc.ring import MASK128, pack_bits, unpack_bits
from orchestrator.mpc.shared_arithmetic import SharedArithmetic
from orchestrator.mpc.shares import BitShare, ScalarShare


def share(values) -> tuple[ScalarShare, ScalarShare]:
    """Both servers' shares of real numbers at the scalar scale."""
    return share_units(encode_scalars(np.atleast_1d(np.asarray(values, dtype=float))))


def share_units(values) -> tuple[ScalarShare, ScalarShare]:
    """Both servers' shares of integers in units of 2^-SCALAR_BITS."""
    first = Prg().ring128(len(values))
    second = [value - own & MASK128 for value, own in zip(values, first, strict=True)]
    return ScalarShare(first, SCALAR_BITS, 0), ScalarShare(second, SCALAR_BITS, 1)


def share_bits(values) -> tuple[BitShare, BitShare]:
    values = np.asarray(values, dtype=np.uint8)
    first = Prg().bits(len(values))
    return tuple(BitShare(pack_bits(part), len(values), k) for k, part in enumerate((first, values ^ first)))


def add128(first, second) -> list[int]:
    """What two additive shares of scalars hold, in [0, 2^128)."""
    return [one + two & MASK128 for one, two in zip(first, second, strict=True)]


def check_triples(first, second):
    """Both servers' shares of triples: c = a b."""
    a, b, c = (add128(*parts) for parts in zip(first, second, strict=True))
    assert [x * y & MASK128 for x, y in zip(a, b, strict=True)] == c


def check_bit_triples(first, second):
    """Both servers' shares of bit triples: c = a & b."""
    a, b, c = (one ^ two for one, two in zip(first, second, strict=True))
    assert a & b == c


def check_random_bits(first, second):
    """Both servers' shares of daBits: the same bit both ways."""
    numbers = add128(first[1], second[1])
    assert numbers == unpack_bits(first[0] ^ second[0], len(numbers)).tolist()


def reveal(shares):
    """The secret behind two shares: float64 numbers or bits."""
    first, second = shares
    if isinstance(first, BitShare):
        return unpack_bits(first.bits ^ second.bits, first.count)
    return decode_scalars(add128(first.values, second.values), first.scale_bits)


def compute(protocol, *inputs):
    """Run `protocol(ops, *inputs)` on shares; inputs are pairs of shares. Returns the revealed result and the rounds.

    The correlations are exactly those that a dry run on zeros counts.
    """
    tally = Tally()
    run(protocol(SharedArithmetic(0, tally), *(pair[0] for pair in inputs)), lambda payload: payload)
    messages = deal(tally.taken)
    sides = [
        protocol(SharedArithmetic(k, Batch.from_dealer(tally.taken, k, messages[k])), *(pair[k] for pair in inputs))
        for k in (0, 1)
    ]
    results, rounds, _ = run_pair(*sides)
    return reveal(results), rounds


_FORMAT = VectorFormat(25, 32, 6)
_PLAN = ("clip_norm", "noise_stddev", "count_stddev", "program", "protocol", "min_cohort")


def f2gnn_bound(vectors: VectorFormat, cohort: int, largest_coordinate: float, gain: float = 1.0) -> float:
    """On a released coordinate's error after a round of F2GNN with clipping."""
    factors = softmax_error_ulp(cohort, gain) * 2.0**-SCALAR_BITS + clip_error(cohort)
    return vectors.error_bound(cohort, largest_coordinate, factors)


def round_plan(
    parameters: RoundParameters,
    vectors: VectorFormat = _FORMAT,
    *,
    noise_stddev: float = 0.0,
    count_stddev: float | None = None,
    **fields,
) -> RoundPlan:
    """A plan whose noise is given as each server's absolute standard deviation."""
    plan = RoundPlan(parameters, vectors, adaptive=count_stddev is not None, **fields)
    if not noise_stddev:
        return plan
    noise = Noise(noise_stddev / plan.sensitivity, accountant=None, count_multiplier=count_stddev)
    return replace(plan, noise=noise)


def engine_of(kind, parameters: RoundParameters, vectors: VectorFormat = _FORMAT, **options):
    """An engine of this kind, of the plan that its options describe."""
    fields = {name: options.pop(name) for name in _PLAN if name in options}
    names = {"MpSpdzEngine": "mpspdz", "PlaintextEngine": "plaintext"}
    return kind(round_plan(parameters, vectors, engine=names.get(kind.__name__, "embedded"), **fields), **options)
