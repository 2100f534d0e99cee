"""Test-only access to what no server can see: both sides of a protocol in one process."""

from __future__ import annotations

import numpy as np

from mpc_programs.lockstep import run, run_pair
from orchestrator.engines.embedded.arithmetic import SharedArithmetic
from orchestrator.engines.embedded.preprocessing import Batch, Tally, deal
from orchestrator.sharing.fixed_point import SCALAR_BITS, decode_scalars, encode_scalars
from orchestrator.sharing.prg import Prg
from orchestrator.sharing.ring import MASK128
from orchestrator.sharing.shares import BitShare, ScalarShare


def share(values) -> tuple[ScalarShare, ScalarShare]:
    """Both servers' shares of real numbers at the scalar scale."""
    encoded = encode_scalars(np.atleast_1d(np.asarray(values, dtype=float)))
    first = Prg().ring128(len(encoded))
    return ScalarShare(first, SCALAR_BITS, 0), ScalarShare(encoded - first & MASK128, SCALAR_BITS, 1)


def share_bits(values) -> tuple[BitShare, BitShare]:
    values = np.asarray(values, dtype=np.uint8)
    first = Prg().bits(len(values))
    return BitShare(first, 0), BitShare(values ^ first, 1)


def reveal(shares):
    """The secret behind two shares: float64 numbers or bits."""
    first, second = shares
    if isinstance(first, BitShare):
        return first.values ^ second.values
    return decode_scalars(first.values + second.values & MASK128, first.scale_bits)


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
