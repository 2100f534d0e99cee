"""The rings: Z_2^128 for scalars, Z_2^64 for vectors, Z_2 for bits; and how their elements are held.

Scalars are Python integers in lists. Between two exchanges a server handles from three to some hundred of them: a NumPy
object array costs more for so few and no less for thousands, and 128 bits in machine words would take dozens of calls
into NumPy for one product. 128 bits leave room to truncate locally. Bits are one Python integer for a whole vector,
bit i of it being element i, so that an exclusive or or a mask is one operation however many there are. Vectors are
uint64 arrays, whose arithmetic wraps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import iter_unpack

import numpy as np

__all__ = ["MASK128", "from_bytes128", "pack_bits", "reduce64", "signed128", "to_bytes128", "truncate", "unpack_bits"]

MASK128 = (1 << 128) - 1
_MASK64 = (1 << 64) - 1


def to_bytes128(values: Iterable[int]) -> bytes:
    """Little-endian, 16 bytes an element."""
    return b"".join([value.to_bytes(16, "little") for value in values])


def from_bytes128(data: bytes | memoryview) -> list[int]:
    """Inverse of `to_bytes128`."""
    read = int.from_bytes
    return [read(element, "little") for (element,) in iter_unpack("16s", data)]


def signed128(values: Iterable[int]) -> list[int]:
    """Representatives in [-2^127, 2^127)."""
    return [value - (value >> 127 << 128) for value in values]


def reduce64(values: Iterable[int]) -> np.ndarray:
    """Shares modulo 2^128 as shares of the same value modulo 2^64; uint64."""
    return np.array([value & _MASK64 for value in values], dtype=np.uint64)


def pack_bits(bits: np.ndarray) -> int:
    """Bits as one integer; bits: uint8 of 0 or 1, shape (n,)."""
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def unpack_bits(packed: int, count: int) -> np.ndarray:
    """Inverse of `pack_bits`; uint8, shape (count,)."""
    data = np.frombuffer(packed.to_bytes((count + 7) // 8, "little"), dtype=np.uint8)
    return np.unpackbits(data, count=count, bitorder="little")


def truncate(share: Sequence[int], bits: int, owner: int, ring_bits: int = 128) -> list[int]:
    """One server's share of x / 2^bits from its share of x, without interaction.

    Input: any representatives modulo N = 2^ring_bits of uniform shares of x, |x| <= N / 2, bits < ring_bits.
    Error: of the N sharings of x all but |x|, to the number, give the floor or the ceiling of x / 2^bits, so less than
    one unit off; the other |x| are off by N / 2^bits besides, which is altogether wrong. For |x| < 2^74, as in all
    rules, that happens with probability below 2^-54; docs/protocol.md says how often in a round. Apart from it the mean
    is x / 2^bits, unlike with two floors.
    Rounds, bytes, leakage: none. Source: SecureML (Mohassel and Zhang, 2017), theorem 1.
    """
    mask = (1 << ring_bits) - 1
    if owner == 0:
        return [(value & mask) >> bits for value in share]
    return [-((-value & mask) >> bits) & mask for value in share]
