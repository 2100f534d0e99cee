"""Pseudo-random streams for shares, masks and noise: AES-128 in counter mode, keyed from the operating system.

A stream is a function of its 16-byte seed alone, so a seed can stand for a share of any length. Every seed is used
for one purpose and one round; `fresh_seed` draws it from the CSPRNG of the operating system.
"""

from __future__ import annotations

import secrets

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from orchestrator.mpc.ring import from_bytes128

__all__ = ["SEED_BYTES", "Prg", "fresh_seed"]

SEED_BYTES = 16


def fresh_seed() -> bytes:
    """16 bytes from the operating system's CSPRNG."""
    return secrets.token_bytes(SEED_BYTES)


class Prg:
    """The key stream of one seed, read from front to back. Two readers of a seed must read in the same order."""

    def __init__(self, seed: bytes | None = None) -> None:
        """Args: seed: 16 bytes; None draws a fresh one."""
        seed = fresh_seed() if seed is None else seed
        if len(seed) != SEED_BYTES:
            raise ValueError(f"expected a seed of {SEED_BYTES} bytes, got {len(seed)}")
        # From zero, without a nonce: a seed makes one stream and is not used again.
        self._stream = Cipher(algorithms.AES128(seed), modes.CTR(bytes(16))).encryptor()

    def bytes(self, count: int) -> bytes:
        return self._stream.update(bytes(count))

    def uint64(self, count: int) -> np.ndarray:
        """Uniform in Z_2^64; uint64, shape (count,)."""
        return np.frombuffer(self.bytes(8 * count), dtype="<u8")

    def ring128(self, count: int) -> list[int]:
        """Uniform in Z_2^128."""
        return from_bytes128(self.bytes(16 * count))

    def bits(self, count: int) -> np.ndarray:
        """Uniform bits; uint8 of 0 or 1, shape (count,)."""
        packed = np.frombuffer(self.bytes((count + 7) // 8), dtype=np.uint8)
        return np.unpackbits(packed, count=count, bitorder="little")
