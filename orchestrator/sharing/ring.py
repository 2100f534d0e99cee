"""The two rings: Z_2^128 for scalars, Z_2^64 for vectors.

Scalars are Python integers in NumPy object arrays: a round handles tens to thousands of them, where an integer of
128 bits costs less than NumPy's overhead, and 128 bits leave room to truncate locally (design note: an operation on
values below 2^74 goes wrong with probability below 2^-53). Vectors are uint64 arrays, whose arithmetic wraps.
"""

from __future__ import annotations

import numpy as np

__all__ = ["MASK128", "from_bytes128", "reduce64", "signed128", "to_bytes128", "truncate128"]

MASK128 = (1 << 128) - 1
_MASK64 = (1 << 64) - 1


def to_bytes128(values: np.ndarray) -> bytes:
    """Little-endian, 16 bytes an element."""
    return b"".join([int(value).to_bytes(16, "little") for value in values])


def from_bytes128(data: bytes) -> np.ndarray:
    """Inverse of `to_bytes128`; object, shape (len(data) / 16,)."""
    read = int.from_bytes
    values = np.empty(len(data) // 16, dtype=object)
    values[:] = [read(data[i : i + 16], "little") for i in range(0, len(data), 16)]
    return values


def signed128(values: np.ndarray) -> np.ndarray:
    """Representatives in [-2^127, 2^127)."""
    return np.array([int(v) - (1 << 128) if int(v) >> 127 else int(v) for v in values], dtype=object)


def reduce64(values: np.ndarray) -> np.ndarray:
    """Shares modulo 2^128 as shares of the same value modulo 2^64; uint64."""
    return np.array([int(value) & _MASK64 for value in values], dtype=np.uint64)


def truncate128(share: np.ndarray, bits: int, owner: int) -> np.ndarray:
    """One server's share of x / 2^bits from its share of x, without interaction.

    Inputs: |x| < 2^74. Output: floor or ceiling of x / 2^bits; unbiased, unlike the floor on both sides.
    Error: at most one unit, except with probability |x| / 2^127 < 2^-53, when the result is wrong altogether.
    Rounds, bytes, leakage: none. Source: SecureML (Mohassel and Zhang, 2017), theorem 1.
    """
    if owner == 0:
        return share >> bits
    return -((-share & MASK128) >> bits) & MASK128
