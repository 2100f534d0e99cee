"""Dither: what each server adds to its share of a released vector, so that the sum is released rounded, not exactly.

An exact weighted sum has low-order bits in which lattice reduction reads its summands
(`tests/privacy/test_exact_sum_attack.py`). Each server therefore adds an independent uniform integer of `weight_bits`
bits, in steps of 2^-model_bits, to every element, fresh for every vector and round, from AES keyed by the operating
system. Nobody subtracts it again: non-subtractive dither (Schuchman, 1964; Gray and Stockham, 1993).

Formal guarantees, for an element whose exact sum is S, with one server's U; what the other one adds is post-processing:

* L = (S + U) mod 2^weight_bits is uniform and independent of S, and S + U is the one element of L + 2^weight_bits Z in
  [S - 2^(weight_bits - 1), S + 2^(weight_bits - 1)): the release is S rounded to the nearest point of a grid of step
  2^-update_bits, whose offset L says nothing. A server that knows its own dither still faces the other's.
* Both together move an element by at most `VectorFormat.dither_bound` = 2^-update_bits.

What follows from it, and what it does not give, is in docs/privacy.md: it is no differential privacy.
"""

from __future__ import annotations

import numpy as np

from orchestrator.mpc.prg import Prg

__all__ = ["dither_ring64"]


def dither_ring64(count: int, bits: int) -> np.ndarray:
    """Uniform integers in [-2^(bits - 1), 2^(bits - 1)) in Z_2^64; uint64, shape (count,). Args: bits: 1 to 32."""
    if not 1 <= bits <= 32:
        raise ValueError(f"Expected 1 <= bits <= 32, got bits={bits}.")
    words = np.frombuffer(Prg().bytes(4 * count), dtype="<u4") >> np.uint32(32 - bits)
    return words.astype(np.uint64) - np.uint64(1 << (bits - 1))
