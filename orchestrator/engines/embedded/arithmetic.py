"""Arithmetic on additive shares between two servers: the backend of `mpc_programs.arithmetic`.

Parties: server 0 and server 1. Adversary: semi-honest, corrupts at most one. What each learns: its own shares and
openings masked by fresh correlated randomness, each uniform; nothing else. Channel: authenticated, in
order and private to the two servers, by mutual TLS (`tls`).

Every protocol below is a coroutine for `mpc_programs.lockstep`; both servers run the same one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orchestrator.engines.embedded.openings import open_bits, open_scalars
from orchestrator.engines.embedded.preprocessing import Source
from orchestrator.sharing.fixed_point import SCALAR_BITS
from orchestrator.sharing.ring import MASK128, reduce64, truncate128
from orchestrator.sharing.shares import BitShare, ScalarShare, encode_public

__all__ = ["SharedArithmetic"]

_WORD = 64


class SharedArithmetic:
    """One server's side. Documented in terms of f = `SCALAR_BITS` fractional bits and n elements."""

    def __init__(self, owner: int, source: Source) -> None:
        """Args: owner: 0 or 1; source: this server's correlated randomness."""
        self.owner = owner
        self._source = source

    # Local: no rounds, no bytes, exact.

    def constants(self, values: Sequence[float]) -> ScalarShare:
        """Public numbers in the form of shares."""
        return ScalarShare(np.zeros(len(values), dtype=object), SCALAR_BITS, self.owner) + values

    def take(self, x: ScalarShare | BitShare, indices: Sequence[int]) -> ScalarShare | BitShare:
        values = x.values[np.asarray(indices, dtype=np.intp)]
        return ScalarShare(values, x.scale_bits, self.owner) if isinstance(x, ScalarShare) else self._bits(values)

    def sums(self, x: ScalarShare, groups: int) -> ScalarShare:
        total = x.values.reshape(groups, -1).sum(axis=1) & MASK128
        return ScalarShare(total, x.scale_bits, self.owner)

    def concat(self, parts: Sequence[ScalarShare] | Sequence[BitShare]) -> ScalarShare | BitShare:
        values = np.concatenate([part.values for part in parts])
        first = parts[0]
        if not isinstance(first, ScalarShare):
            return self._bits(values)
        if any(part.scale_bits != first.scale_bits for part in parts):
            raise TypeError("cannot concatenate shares of different scales")
        return ScalarShare(values, first.scale_bits, self.owner)

    def weigh(self, bits: ScalarShare, constants: Sequence[float]) -> ScalarShare:
        """Integer-valued shares (scale 0) times public numbers; the result has f bits."""
        if bits.scale_bits != 0:
            raise TypeError(f"expected shares of integers, got scale {bits.scale_bits}")
        return ScalarShare(bits.values * encode_public(constants, SCALAR_BITS) & MASK128, SCALAR_BITS, self.owner)

    def negate(self, bits: BitShare) -> BitShare:
        return self._bits(bits.values ^ 1) if self.owner == 0 else bits

    # Interactive.

    async def multiply(self, x: ScalarShare, y: ScalarShare) -> ScalarShare:
        """Elementwise product by Beaver triples, truncated back to f bits where both factors have fractional bits.

        Inputs: x, y of any scale up to f with |x y| 2^(scales) < 2^74. Output: scale min(f, sum of scales).
        Rounds: 1. Bytes: 32 n from each server. Error: one unit (none where no bits are cut).
        Leakage: none; x - a and y - b are uniform. Source: Beaver, CRYPTO '91.
        """
        a, b, c = self._source.triples(len(x))
        masked = ScalarShare(np.concatenate([x.values - a, y.values - b]) & MASK128, 0, self.owner)
        opened = await open_scalars(masked, reason="factors masked by a fresh triple")
        d, e = opened[: len(x)], opened[len(x) :]
        z = c + d * b + e * a
        if self.owner == 0:
            z = z + d * e
        z = z & MASK128
        scale = x.scale_bits + y.scale_bits
        if scale > SCALAR_BITS:
            z = truncate128(z, scale - SCALAR_BITS, self.owner)
        return ScalarShare(z, min(scale, SCALAR_BITS), self.owner)

    async def less(self, x: ScalarShare, y: ScalarShare | float | Sequence[float]) -> BitShare:
        """Bits [x < y]: the sign of x - y, from a boolean adder on the two servers' shares.

        Inputs: |x - y| < 2^31 at f = 32 bits, so that the difference fits Z_2^64. Output: XOR-shared bits; exact.
        Rounds: 7. Bytes: about 48 n from each server. Leakage: none; only masked bits are opened.
        Source: parallel-prefix carry (Sklansky, 1960) as in GMW-style adders, e.g. Demmler et al., NDSS 2015 (ABY).
        """
        words = reduce64((x - y).values)
        bits = np.unpackbits(words.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
        n = len(words)
        own = self._bits(bits[:, : _WORD - 1].ravel())
        nothing = self._bits(np.zeros_like(own.values))
        mine, theirs = (own, nothing) if self.owner == 0 else (nothing, own)
        carries = await self.and_(mine, theirs)
        # Position 0 is the carry into bit 0, which is none; position i + 1 stands for bit i of both shares.
        generate = np.zeros((n, _WORD), dtype=np.uint8)
        propagate = np.zeros((n, _WORD), dtype=np.uint8)
        generate[:, 1:] = carries.values.reshape(n, -1)
        propagate[:, 1:] = own.values.reshape(n, -1)
        while generate.shape[1] > 1:
            low_g, high_g = generate[:, 0::2], generate[:, 1::2]
            low_p, high_p = propagate[:, 0::2], propagate[:, 1::2]
            last = generate.shape[1] == 2
            left = [high_p.ravel()] if last else [high_p.ravel(), high_p.ravel()]
            right = [low_g.ravel()] if last else [low_g.ravel(), low_p.ravel()]
            products = await self.and_(self._bits(np.concatenate(left)), self._bits(np.concatenate(right)))
            generate = high_g ^ products.values[: high_g.size].reshape(high_g.shape)
            if not last:
                propagate = products.values[high_g.size :].reshape(high_p.shape)
        return self._bits(bits[:, _WORD - 1] ^ generate[:, 0])

    async def and_(self, x: BitShare, y: BitShare) -> BitShare:
        """Elementwise AND by bit triples. Rounds: 1. Bytes: n / 4 from each server. Exact; no leakage."""
        a, b, c = self._source.bit_triples(len(x))
        masked = self._bits(np.concatenate([x.values ^ a, y.values ^ b]))
        opened = await open_bits(masked, reason="bits masked by a fresh bit triple")
        d, e = opened[: len(x)], opened[len(x) :]
        z = c ^ (d & b) ^ (e & a)
        return self._bits(z ^ (d & e) if self.owner == 0 else z)

    async def all(self, bits: BitShare, groups: int) -> BitShare:
        """AND over `groups` equal, consecutive parts. Rounds: ceil(log2(size of a part))."""
        values = bits.values.reshape(groups, -1)
        while values.shape[1] > 1:
            half, odd = divmod(values.shape[1], 2)
            left, right = values[:, :half], values[:, half : 2 * half]
            products = await self.and_(self._bits(left.ravel()), self._bits(right.ravel()))
            pairs = products.values.reshape(groups, half)
            values = np.concatenate([pairs, values[:, -1:]], axis=1) if odd else pairs
        return self._bits(values[:, 0])

    async def numbers(self, bits: BitShare) -> ScalarShare:
        """XOR-shared bits as additive shares of 0 or 1 (scale 0), by random bits shared both ways.

        Rounds: 1. Bytes: n / 8 from each server. Exact. Leakage: none. Source: daBits (Rotaru and Wood, 2019).
        """
        r, r_sum = self._source.bits(len(bits))
        opened = await open_bits(self._bits(bits.values ^ r), reason="bits masked by fresh random bits")
        public = opened.astype(object)
        z = r_sum * (1 - 2 * public)
        if self.owner == 0:
            z = z + public
        return ScalarShare(z & MASK128, 0, self.owner)

    def vectors(self, count: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scaled vectors from preprocessing, for products of secret scalars and long vectors; see `Source.vectors`."""
        return self._source.vectors(count, length)

    def _bits(self, values: np.ndarray) -> BitShare:
        return BitShare(values, self.owner)
