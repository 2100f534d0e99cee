"""MP-SPDZ's files of shares, `Persistence/Transactions-P<i>.data`: a header that names the ring, then shares.

Header, little-endian: the length of the rest as 64 bits, `Z2^<bits>` in ASCII, the bits of the ring as 32 bits. A share
takes bits / 8 bytes, little-endian. One party's file holds that party's shares alone; reading them in a program costs
no communication.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

__all__ = ["header", "integers", "read_shares", "words", "write_shares"]

_LENGTH = struct.Struct("<Q")
_BITS = struct.Struct("<i")


def header(ring_bits: int) -> bytes:
    """What a file of shares in Z_2^ring_bits begins with."""
    domain = f"Z2^{ring_bits}".encode() + _BITS.pack(ring_bits)
    return _LENGTH.pack(len(domain)) + domain


def words(values: Sequence[int], ring_bits: int) -> np.ndarray:
    """Integers modulo 2^ring_bits as uint64, shape (n, ring_bits / 64), low word first."""
    size, mask = ring_bits // 8, (1 << ring_bits) - 1
    data = b"".join([(value & mask).to_bytes(size, "little") for value in values])
    return np.frombuffer(data, dtype="<u8").reshape(-1, ring_bits // 64)


def integers(shares: np.ndarray) -> list[int]:
    """Inverse of `words`, as integers in [0, 2^ring_bits)."""
    data, size = np.ascontiguousarray(shares, dtype="<u8").tobytes(), 8 * shares.shape[1]
    return [int.from_bytes(data[k : k + size], "little") for k in range(0, len(data), size)]


def write_shares(path: Path, shares: np.ndarray) -> None:
    """Write a file that a program reads with `read_from_file(0)`.

    Args:
        shares: uint64 words, low word first, shape (n, ring_bits / 64).

    Raises:
        OSError: naming the file, e.g. on a full disk.
    """
    data = np.ascontiguousarray(shares, dtype="<u8")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(header(64 * data.shape[1]) + data.tobytes())
    except OSError as error:  # a failed write does not say where
        raise OSError(error.errno, error.strerror, str(path)) from None


def read_shares(path: Path, ring_bits: int, start: int, count: int) -> np.ndarray:
    """Shares start .. start + count of a file; uint64 words, shape (count, ring_bits / 64).

    Raises:
        ValueError: naming the file, where it is missing, of another ring or too short.
    """
    expected = header(ring_bits)
    try:
        with path.open("rb") as file:
            found = file.read(len(expected))
            if found != expected:
                raise ValueError(f"{path}: {_domain(found)}, expected shares in Z_2^{ring_bits}")
            file.seek(start * (ring_bits // 8), 1)
            data = file.read(count * (ring_bits // 8))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    if len(data) != count * (ring_bits // 8):
        have = start + len(data) // (ring_bits // 8)
        raise ValueError(f"{path}: ends after {have} shares, expected {start + count}")
    return np.frombuffer(data, dtype="<u8").reshape(count, ring_bits // 64)


def _domain(found: bytes) -> str:
    """What a file's first bytes say about it."""
    if len(found) < _LENGTH.size:
        return "is empty or truncated"
    (length,) = _LENGTH.unpack_from(found)
    name = found[_LENGTH.size : _LENGTH.size + length - _BITS.size]
    if not name.startswith(b"Z2^") or not name[3:].isdigit():
        return "is no file of shares in a ring"
    return f"holds shares in Z_{name[1:].decode()}"
