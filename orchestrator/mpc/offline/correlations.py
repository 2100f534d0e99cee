"""Correlated randomness for the scalar part of a round, and the dealer that makes it.

Parties: a dealer and the two servers. The dealer sees no message between the servers, colludes with neither, and
learns nothing: it never receives anything but counts. A server learns its own shares, which are uniform.
Channel: the dealer's connection to each server, authenticated and private by mutual TLS (`tls`): whoever overheard
both could open every share.

For a batch, server 0 receives one PRG seed and server 1 one seed and the corrections that make the correlations hold;
a batch serves one round and is never used again. How much a round needs is counted by running the program (`Tally`).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Protocol

import numpy as np

from orchestrator.mpc.prg import SEED_BYTES, Prg, fresh_seed
from orchestrator.mpc.ring import MASK128, from_bytes128, to_bytes128, unpack_bits

__all__ = ["Batch", "Demand", "Source", "Tally", "deal"]


@dataclass(frozen=True)
class Demand:
    """How many correlations of each kind a round consumes.

    Attributes:
        triples: a, b, a*b in Z_2^128.
        bit_triples: a, b, a&b.
        bits: random bits shared both by XOR and in Z_2^128 ("daBits").
        vectors: a, lam, a*lam in Z_2^64 with a scalar a and a vector lam of `length` elements.
    """

    triples: int
    bit_triples: int
    bits: int
    vectors: int = 0
    length: int = 0

    def within(self, made: Demand) -> bool:
        """Whether what was made for another demand serves this one."""
        fits = all(own <= theirs for own, theirs in zip(astuple(self)[:4], astuple(made)[:4], strict=True))
        return fits and (not self.vectors or self.length == made.length)

    def message_bytes(self, owner: int) -> int:
        """Length of the dealer's message to a server: a seed, and for server 1 corrections."""
        scalars = 16 * self.triples + (self.bit_triples + 7) // 8 + 16 * self.bits
        return SEED_BYTES + (scalars + 8 * self.vectors * self.length if owner == 1 else 0)


class Source(Protocol):
    """Where a program takes its correlations from. Every method returns the caller's shares, never used before."""

    def triples(self, count: int) -> tuple[list[int], list[int], list[int]]:
        """Shares of a, b and a*b in Z_2^128, `count` of each."""

    def bit_triples(self, count: int) -> tuple[int, int, int]:
        """XOR shares of a, b and a&b: `count` bits in one integer each, as in `BitShare`."""

    def bits(self, count: int) -> tuple[int, list[int]]:
        """Of `count` random bits, the XOR shares in one integer and the additive shares in Z_2^128."""

    def vectors(self, count: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Shares of a, lam, a*lam; uint64 in Z_2^64, shapes (count,), (count, length), (count, length)."""


class Tally:
    """Counts what a program takes; hands out zeros, so its results mean nothing."""

    def __init__(self) -> None:
        self.taken = Demand(0, 0, 0)

    def triples(self, count: int) -> tuple[list[int], list[int], list[int]]:
        self.taken = replace(self.taken, triples=self.taken.triples + count)
        return ([0] * count,) * 3

    def bit_triples(self, count: int) -> tuple[int, int, int]:
        self.taken = replace(self.taken, bit_triples=self.taken.bit_triples + count)
        return 0, 0, 0

    def bits(self, count: int) -> tuple[int, list[int]]:
        self.taken = replace(self.taken, bits=self.taken.bits + count)
        return 0, [0] * count

    def vectors(self, count: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        self.taken = replace(self.taken, vectors=self.taken.vectors + count, length=length)
        return np.zeros(count, np.uint64), *(np.zeros((count, length), np.uint64),) * 2


class Batch:
    """One server's correlations for one round, consumed from front to back, each once."""

    def __init__(
        self,
        demand: Demand,
        triples: tuple[list[int], list[int], list[int]],
        bit_triples: tuple[int, int, int],
        bits: tuple[int, list[int]],
        vectors: tuple[np.ndarray, np.ndarray, np.ndarray],
    ) -> None:
        """Args: triples, bit_triples, bits, vectors: as the methods of those names return them, for the demand."""
        self.demand = demand
        self._triples, self._bit_triples, self._bits, self._vectors = triples, bit_triples, bits, vectors
        self._used = {"triples": 0, "bit_triples": 0, "bits": 0, "vectors": 0}

    @classmethod
    def from_dealer(cls, demand: Demand, owner: int, message: bytes) -> Batch:
        """Expand what `deal` made for this server.

        Raises:
            ValueError: the message has the wrong length.
        """
        expected = demand.message_bytes(owner)
        if len(message) != expected:
            raise ValueError(f"the dealer's message has {len(message)} bytes, expected {expected}")
        prg, corrections = Prg(message[:SEED_BYTES]), message[SEED_BYTES:]
        t, b, r, v, d = demand.triples, demand.bit_triples, demand.bits, demand.vectors, demand.length
        first, second = prg.ring128(t), prg.ring128(t)
        bit_first, bit_second, bit = (_read_bits(prg.bytes((count + 7) // 8), count) for count in (b, b, r))
        factor, mask = prg.uint64(v), prg.uint64(v * d).reshape(v, d)
        if owner == 0:
            product, bit_product, bit_sum = prg.ring128(t), _read_bits(prg.bytes((b + 7) // 8), b), prg.ring128(r)
            scaled = prg.uint64(v * d).reshape(v, d)
        else:
            ends = np.cumsum([16 * t, (b + 7) // 8, 16 * r])
            product = from_bytes128(corrections[: ends[0]])
            bit_product = _read_bits(corrections[ends[0] : ends[1]], b)
            bit_sum = from_bytes128(corrections[ends[1] : ends[2]])
            scaled = np.frombuffer(corrections[ends[2] :], dtype="<u8").reshape(v, d)
        return cls(
            demand,
            (first, second, product),
            (bit_first, bit_second, bit_product),
            (bit, bit_sum),
            (factor, mask, scaled),
        )

    def triples(self, count: int) -> tuple[list[int], list[int], list[int]]:
        start, end = self._advance("triples", count)
        a, b, c = self._triples
        return a[start:end], b[start:end], c[start:end]

    def bit_triples(self, count: int) -> tuple[int, int, int]:
        start, _ = self._advance("bit_triples", count)
        ones = (1 << count) - 1
        a, b, c = self._bit_triples
        return a >> start & ones, b >> start & ones, c >> start & ones

    def bits(self, count: int) -> tuple[int, list[int]]:
        start, end = self._advance("bits", count)
        bits, numbers = self._bits
        return bits >> start & (1 << count) - 1, numbers[start:end]

    def vectors(self, count: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        start, end = self._advance("vectors", count)
        scalars, vectors, products = self._vectors
        return scalars[start:end], vectors[start:end], products[start:end]

    def _advance(self, kind: str, count: int) -> tuple[int, int]:
        """Where the next `count` of a kind begin and end; they are then used up."""
        start = self._used[kind]
        end = start + count
        if end > getattr(self.demand, kind):
            raise RuntimeError(f"the round takes more {kind} than were prepared ({getattr(self.demand, kind)})")
        self._used[kind] = end
        return start, end


def deal(demand: Demand) -> tuple[bytes, bytes]:
    """A fresh batch: the message for server 0 (16 bytes) and for server 1 (16 t + b/8 + 16 r + 8 v d + 16 bytes)."""
    seeds = (fresh_seed(), fresh_seed())
    # Server 1's shares with corrections of zero are what its seed alone gives; the corrections complete the products.
    blank = bytes(demand.message_bytes(1) - SEED_BYTES)
    first, second = Batch.from_dealer(demand, 0, seeds[0]), Batch.from_dealer(demand, 1, seeds[1] + blank)
    sides = first, second
    t, b, r, v, d = demand.triples, demand.bit_triples, demand.bits, demand.vectors, demand.length
    (a0, b0, c0), (a1, b1, _) = (side.triples(t) for side in sides)
    (p0, q0, z0), (p1, q1, _) = (side.bit_triples(b) for side in sides)
    (x0, s0), (x1, _) = (side.bits(r) for side in sides)
    (f0, m0, w0), (f1, m1, _) = (side.vectors(v, d) for side in sides)
    corrections = [
        to_bytes128((w + x) * (y + z) - c & MASK128 for w, x, y, z, c in zip(a0, a1, b0, b1, c0, strict=True)),
        ((p0 ^ p1) & (q0 ^ q1) ^ z0).to_bytes((b + 7) // 8, "little"),
        to_bytes128(bit - s & MASK128 for bit, s in zip(unpack_bits(x0 ^ x1, r).tolist(), s0, strict=True)),
        ((f0 + f1)[:, None] * (m0 + m1) - w0).astype("<u8").tobytes(),
    ]
    return seeds[0], seeds[1] + b"".join(corrections)


def _read_bits(data: bytes, count: int) -> int:
    return int.from_bytes(data, "little") & (1 << count) - 1
