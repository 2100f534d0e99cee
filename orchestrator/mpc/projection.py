"""Random rows that are multiplied with long vectors modulo 2^64: short witnesses of what a long vector is.

A row has independent elements -1, 0 and 1 with probabilities 1/4, 1/2 and 1/4. Both servers expand the same rows from
one seed that no client knows. Multiplication is linear, so each server multiplies its own share, alone.

Exact: numbers are split into halves of 32 bits, whose sums over a block stay below 2^53, so that float64's matrix
product, the processor's fastest, is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from orchestrator.mpc.prg import Prg

__all__ = ["Rows"]

_BLOCK = 1 << 13
_KEPT = 1 << 23
"""Elements up to which rows are kept expanded, 64 MB; longer ones are expanded anew for every product."""


class Rows:
    """`count` rows of `length` elements, from a seed of 16 bytes."""

    def __init__(self, seed: bytes, count: int, length: int) -> None:
        self._seed, self._count, self._length = seed, count, length
        self._kept = list(self._expanded()) if count * length <= _KEPT else None

    def times(self, vectors: Sequence[np.ndarray]) -> np.ndarray:
        """Each row times each vector; uint64 in Z_2^64, shape (len(vectors), count). Args: vectors: each (length,)."""
        total = np.zeros((self._count, len(vectors)), dtype=np.uint64)
        for k, block in enumerate(self._kept if self._kept is not None else self._expanded()):
            part = np.stack([vector[k * _BLOCK : (k + 1) * _BLOCK] for vector in vectors], axis=1)
            for half, place in ((part & np.uint64(0xFFFFFFFF), 0), (part >> np.uint64(32), 32)):
                values = half.astype(np.float64)
                products = (block @ values - values.sum(axis=0)).astype(np.int64).view(np.uint64)
                total += products << np.uint64(place)
        return np.ascontiguousarray(total.T)

    def _expanded(self) -> Iterator[np.ndarray]:
        """Blocks of the rows plus one, so of 0, 1 and 2; float64, shape (count, up to 8192)."""
        prg = Prg(self._seed)
        for start in range(0, self._length, _BLOCK):
            width = min(_BLOCK, self._length - start)
            first, second = (prg.bits(self._count * width).reshape(self._count, width) for _ in range(2))
            yield (first + second).astype(np.float64)
