"""Correlated randomness for the scalar part of a round, and the dealer that makes it.

Parties: a dealer and the two servers. The dealer sees no message between the servers, colludes with neither, and
learns nothing: it never receives anything but counts. A server learns its own shares, which are uniform.
Channel: the dealer's connection to each server.

For a batch, server 0 receives one PRG seed and server 1 one seed and the corrections that make the correlations hold;
a batch serves one round and is never used again. How much a round needs is counted by running the program (`Tally`).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Protocol

import numpy as np

from orchestrator.sharing.prg import SEED_BYTES, Prg, fresh_seed
from orchestrator.sharing.ring import MASK128, from_bytes128, to_bytes128

__all__ = ["Batch", "Demand", "Source", "Tally", "deal"]


@dataclass(frozen=True)
class Demand:
    """How many correlations of each kind a round consumes.

    Attributes:
        triples: a, b, a*b in Z_2^128.
        bit_triples: a, b, a&b.
        bits: random bits shared both by XOR and in Z_2^128 ("daBits").
    """

    triples: int
    bit_triples: int
    bits: int


class Source(Protocol):
    """Where a program takes its correlations from. Every method returns the caller's shares, never used before."""

    def triples(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Shares of a, b and a*b; objects in Z_2^128, shape (count,) each."""

    def bit_triples(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """XOR shares of a, b and a&b; uint8 bits, shape (count,) each."""

    def bits(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """A random bit's XOR share (uint8) and its additive share in Z_2^128 (object); shape (count,) each."""


class Tally:
    """Counts what a program takes; hands out zeros, so its results mean nothing."""

    def __init__(self) -> None:
        self.taken = Demand(0, 0, 0)

    def triples(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        self.taken = Demand(self.taken.triples + count, self.taken.bit_triples, self.taken.bits)
        return (np.zeros(count, dtype=object),) * 3

    def bit_triples(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        self.taken = Demand(self.taken.triples, self.taken.bit_triples + count, self.taken.bits)
        return (np.zeros(count, dtype=np.uint8),) * 3

    def bits(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        self.taken = Demand(self.taken.triples, self.taken.bit_triples, self.taken.bits + count)
        return np.zeros(count, dtype=np.uint8), np.zeros(count, dtype=object)


class Batch:
    """One server's correlations for one round, consumed from front to back, each once."""

    def __init__(
        self,
        demand: Demand,
        triples: tuple[np.ndarray, np.ndarray, np.ndarray],
        bit_triples: tuple[np.ndarray, np.ndarray, np.ndarray],
        bits: tuple[np.ndarray, np.ndarray],
    ) -> None:
        """Args: triples, bit_triples, bits: as the methods of those names return them, for the whole demand."""
        self._demand = demand
        self._arrays = {"triples": triples, "bit_triples": bit_triples, "bits": bits}
        self._used = dict.fromkeys(self._arrays, 0)

    @classmethod
    def from_dealer(cls, demand: Demand, owner: int, message: bytes) -> Batch:
        """Expand what `deal` made for this server.

        Raises:
            ValueError: the message has the wrong length.
        """
        expected = SEED_BYTES + (_correction_bytes(demand) if owner == 1 else 0)
        if len(message) != expected:
            raise ValueError(f"the dealer's message has {len(message)} bytes, expected {expected}")
        prg = Prg(message[:SEED_BYTES])
        t, b, r = astuple(demand)
        first, second = prg.ring128(t), prg.ring128(t)
        bit_first, bit_second, bit = prg.bits(b), prg.bits(b), prg.bits(r)
        if owner == 0:
            product, bit_product, bit_sum = prg.ring128(t), prg.bits(b), prg.ring128(r)
        else:
            corrections = message[SEED_BYTES:]
            split, end = 16 * t, 16 * t + (b + 7) // 8
            product, bit_sum = from_bytes128(corrections[:split]), from_bytes128(corrections[end:])
            packed = np.frombuffer(corrections[split:end], dtype=np.uint8)
            bit_product = np.unpackbits(packed, count=b, bitorder="little")
        return cls(demand, (first, second, product), (bit_first, bit_second, bit_product), (bit, bit_sum))

    def triples(self, count: int) -> tuple[np.ndarray, ...]:
        return self._take("triples", count)

    def bit_triples(self, count: int) -> tuple[np.ndarray, ...]:
        return self._take("bit_triples", count)

    def bits(self, count: int) -> tuple[np.ndarray, ...]:
        return self._take("bits", count)

    def _take(self, kind: str, count: int) -> tuple[np.ndarray, ...]:
        start = self._used[kind]
        if start + count > getattr(self._demand, kind):
            raise RuntimeError(f"the round takes more {kind} than were prepared ({getattr(self._demand, kind)})")
        self._used[kind] = start + count
        return tuple(array[start : start + count] for array in self._arrays[kind])


def deal(demand: Demand) -> tuple[bytes, bytes]:
    """A fresh batch: the message for server 0 (16 bytes) and for server 1 (16 t + b/8 + 16 r + 16 bytes)."""
    seeds = (fresh_seed(), fresh_seed())
    t, b, r = astuple(demand)
    first = Batch.from_dealer(demand, 0, seeds[0])
    prg = Prg(seeds[1])
    a, b_, bit_a, bit_b, bit_r = prg.ring128(t), prg.ring128(t), prg.bits(b), prg.bits(b), prg.bits(r)
    a0, b0, c0 = first.triples(t)
    c1 = (a + a0) * (b_ + b0) - c0 & MASK128
    bit_a0, bit_b0, bit_c0 = first.bit_triples(b)
    bit_c1 = (bit_a ^ bit_a0) & (bit_b ^ bit_b0) ^ bit_c0
    bit_r0, r0 = first.bits(r)
    r1 = (bit_r ^ bit_r0).astype(object) - r0 & MASK128
    corrections = to_bytes128(c1) + np.packbits(bit_c1, bitorder="little").tobytes() + to_bytes128(r1)
    return seeds[0], seeds[1] + corrections


def _correction_bytes(demand: Demand) -> int:
    return 16 * demand.triples + (demand.bit_triples + 7) // 8 + 16 * demand.bits
