"""The one place where a secret-shared value becomes known: `open_scalars`, `open_bits`, `open_ring64` and `release`.

Each call states why the value may be seen. Between the servers only masked values are opened (uniform, whatever the
inputs are: the mask is a fresh shared random value); `release` reconstructs a result: a public one in the coordinator,
a client's own in that client's process. `grep -rn "reason="` finds every opening of a run.
"""

from __future__ import annotations

from operator import add

import numpy as np

from mpc_programs.lockstep import exchange
from orchestrator.mpc.ring import from_bytes128, to_bytes128
from orchestrator.mpc.shares import BitShare, ScalarShare, VectorShare

__all__ = ["open_bits", "open_ring64", "open_scalars", "release"]


async def open_scalars(masked: ScalarShare, *, reason: str) -> list[int]:
    """Open masked scalars; in [0, 2^129), not yet reduced. One round, 16 bytes an element from each server."""
    received = from_bytes128(await exchange(to_bytes128(masked.values)))
    return list(map(add, masked.values, received))


async def open_bits(masked: BitShare, *, reason: str) -> int:
    """Open masked bits; one integer, as in `BitShare`. One round, one bit an element (padded to bytes) from each."""
    received = await exchange(masked.bits.to_bytes((masked.count + 7) // 8, "little"))
    return (masked.bits ^ int.from_bytes(received, "little")) & (1 << masked.count) - 1


async def open_ring64(masked: VectorShare, *, reason: str) -> np.ndarray:
    """Open masked elements of Z_2^64; uint64. One round, 8 bytes an element from each server."""
    received = np.frombuffer(await exchange(masked.values.astype("<u8").tobytes()), dtype="<u8")
    return masked.values + received


def release(first: VectorShare, second: VectorShare, *, reason: str) -> np.ndarray:
    """Reconstruct a result where it is meant to be known, from both servers' (noisy) shares; uint64, shape (d,)."""
    if (first.owner, second.owner) != (0, 1) or first.scale_bits != second.scale_bits:
        raise TypeError("a release needs the share of server 0, then that of server 1, at one scale")
    return first.values + second.values
