"""Oblivious transfer between the two servers: base transfers once, then as many as needed from symmetric cryptography.

Parties: server 0 and server 1. Adversary: semi-honest, corrupts at most one. In one transfer the sender ends with two
random blocks and the receiver with the one that its choice bit names; the sender does not learn the bit, the receiver
nothing of the other block. Channel: authenticated, by mutual TLS (`tls`).

Base transfers: Chou and Orlandi, "The Simplest Protocol for Oblivious Transfer" (LATINCRYPT 2015), in the prime-order
subgroup of Ed25519 (libsodium). Extension: Ishai, Kilian, Nissim, Petrank (CRYPTO 2003), semi-honest, with the blocks
hashed by TMMO over fixed-key AES (Guo, Katz, Wang, Yu: "Efficient and Secure Multiparty Computation from Fixed-Key
Block Ciphers", IEEE S&P 2020, section VII-C). Both servers run both roles at once, so a message serves two directions.
"""

from __future__ import annotations

import hashlib
import secrets

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from nacl import bindings as sodium

from mpc_programs.lockstep import exchange
from orchestrator.mpc.prg import SEED_BYTES, Prg

__all__ = ["BASE_TRANSFERS", "OtExtension", "base_transfers"]

BASE_TRANSFERS = 128
"""Computational security parameter: the number of base transfers and of bits in a block."""

_HASH_KEY = hashlib.sha256(b"safegnn ot hash").digest()[:16]  # public: the hash needs a permutation, not a secret


def _scalar() -> bytes:
    # Of twice as many bytes as the group's order has, so that the rest is uniform but for 2^-256.
    return sodium.crypto_core_ed25519_scalar_reduce(secrets.token_bytes(64))


async def base_transfers(choices: np.ndarray) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
    """128 transfers of 16-byte seeds in each direction.

    Args:
        choices: this server's bits as a receiver; uint8, shape (128,).

    Returns:
        The pairs that this server has as a sender, and the chosen seeds that it has as a receiver.

    Raises:
        ValueError: the peer sent a point outside the prime-order group.

    Rounds: 2. Bytes: 32 + 32 * 128 from each server. Leakage: none (gap Diffie-Hellman, random oracle).

    Time: the sequence of group operations does not depend on the choices. Both candidates for each point are computed,
    by libsodium's scalar multiplication and addition, and one is taken by a mask, without a branch or an index that is
    secret. What the interpreter and numpy do around them (memory, caches, collection of garbage) is not claimed to take
    constant time.
    """
    secret = _scalar()
    own = sodium.crypto_scalarmult_ed25519_base_noclamp(secret)
    theirs = _checked(await exchange(own))
    blinds = [_scalar() for _ in choices]
    plain = [sodium.crypto_scalarmult_ed25519_base_noclamp(blind) for blind in blinds]
    shifted = [sodium.crypto_core_ed25519_add(point, theirs) for point in plain]
    points = _select(choices, plain, shifted)
    received = await exchange(b"".join(points))
    pairs, chosen = [], []
    for i in range(len(choices)):
        point = _checked(received[32 * i : 32 * i + 32])
        shared = [
            sodium.crypto_scalarmult_ed25519_noclamp(secret, candidate)
            for candidate in (point, sodium.crypto_core_ed25519_sub(point, own))
        ]
        pairs.append((_key(i, own, point, shared[0]), _key(i, own, point, shared[1])))
        chosen.append(_key(i, theirs, points[i], sodium.crypto_scalarmult_ed25519_noclamp(blinds[i], theirs)))
    return pairs, chosen


def _select(choices: np.ndarray, first: list[bytes], second: list[bytes]) -> list[bytes]:
    """The second one where the choice is 1, else the first, by the same operations on every byte."""
    zeros, ones = (np.frombuffer(b"".join(points), np.uint8).reshape(len(points), -1) for points in (first, second))
    return [row.tobytes() for row in zeros ^ (zeros ^ ones) & _mask(choices)]


def _mask(bits: np.ndarray) -> np.ndarray:
    """Bytes of 255 for 1 and of 0 for 0; uint8, shape (n, 1)."""
    return np.negative(bits.astype(np.uint8))[:, None]


def _checked(point: bytes) -> bytes:
    if not sodium.crypto_core_ed25519_is_valid_point(point):
        raise ValueError("a point of the base transfers lies outside the group")
    return point


def _key(index: int, sender: bytes, receiver: bytes, shared: bytes) -> bytes:
    parts = (b"safegnn base ot", index.to_bytes(4, "little"), sender, receiver, shared)
    return hashlib.sha256(b"".join(parts)).digest()[:SEED_BYTES]


class OtExtension:
    """One server's two streams of random transfers, one as sender and one as receiver.

    Formal guarantee: no block is ever produced twice; the streams only move forward.
    """

    def __init__(self, secret: np.ndarray, chosen: list[bytes], pairs: list[tuple[bytes, bytes]]) -> None:
        """Args: secret: the choices of the base transfers; chosen, pairs: what `base_transfers` gave for them."""
        self._mask = _mask(secret)
        self._secret_block = np.packbits(secret, bitorder="little").view("<u8")
        self._chosen = [Prg(seed) for seed in chosen]
        self._zeros = [Prg(first) for first, _ in pairs]
        self._ones = [Prg(second) for _, second in pairs]
        self._hash = Cipher(algorithms.AES128(_HASH_KEY), modes.ECB()).encryptor()
        self._count = 0

    @classmethod
    async def create(cls) -> OtExtension:
        """Run the base transfers and begin both streams."""
        secret = Prg().bits(BASE_TRANSFERS)
        pairs, chosen = await base_transfers(secret)
        return cls(secret, chosen, pairs)

    async def extend(self, choices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As many transfers in each direction as there are choices.

        Args:
            choices: this server's bits as a receiver; uint8, shape (m,).

        Returns:
            Blocks as uint64, shape (m, 2): both blocks that this server has as a sender, and the chosen ones that it
            has as a receiver.

        Rounds: 1. Bytes: 16 m from each server, m rounded up to a multiple of 8. Leakage: none.
        """
        m = len(choices)
        width = (m + 7) // 8
        packed = np.packbits(choices, bitorder="little")
        t = np.stack([np.frombuffer(prg.bytes(width), dtype=np.uint8) for prg in self._zeros])
        masked = np.stack([np.frombuffer(prg.bytes(width), dtype=np.uint8) for prg in self._ones])
        masked ^= t
        masked ^= packed
        received = np.frombuffer(await exchange(masked.tobytes()), dtype=np.uint8).reshape(BASE_TRANSFERS, width)
        q = np.stack([np.frombuffer(prg.bytes(width), dtype=np.uint8) for prg in self._chosen])
        q ^= received & self._mask
        # Row j is t_j, or t_j ^ secret where the receiver chose 1: of both blocks it can compute that one alone.
        rows = _transpose(q, m)
        first, second = self._digest(rows), self._digest(rows ^ self._secret_block)
        mine = self._digest(_transpose(t, m))
        self._count += m  # no transfer is ever hashed with the number of another one
        return first, second, mine

    def _digest(self, blocks: np.ndarray) -> np.ndarray:
        """TMMO: with p the fixed-key permutation and j the transfer's number, p(p(x) ^ j) ^ p(x)."""
        inner = np.frombuffer(self._hash.update(blocks.tobytes()), dtype="<u8").reshape(-1, 2)
        tweaked = inner.copy()
        tweaked[:, 0] ^= np.arange(self._count, self._count + len(blocks), dtype=np.uint64)
        outer = np.frombuffer(self._hash.update(tweaked.tobytes()), dtype="<u8").reshape(-1, 2)
        return outer ^ inner


def _transpose(columns: np.ndarray, m: int) -> np.ndarray:
    """Packed bits of shape (128, width), width at least m / 8, as m blocks; uint64, shape (m, 2).

    Squares of 8 x 8 bits, each in one word, are transposed by three rounds of swaps (Warren, Hacker's Delight, 7-3).
    """
    width = columns.shape[1]
    squares = np.ascontiguousarray(columns.reshape(16, 8, width).transpose(0, 2, 1)).view("<u8")
    for shift, mask in ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0)):
        swapped = (squares ^ squares >> np.uint64(shift)) & np.uint64(mask)
        squares ^= swapped ^ swapped << np.uint64(shift)
    rows = squares.view(np.uint8).reshape(16, width * 8)[:, :m]
    return np.ascontiguousarray(rows.T).view("<u8")
