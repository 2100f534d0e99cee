"""Arithmetic on additive shares between two servers: the backend of `mpc_programs.arithmetic`.

Parties: server 0 and server 1. Adversary: semi-honest, corrupts at most one. What each learns: its own shares and
openings masked by fresh correlated randomness, each uniform; nothing else. Channel: authenticated, in
order and private to the two servers, by mutual TLS (`tls`).

Every protocol below is a coroutine for `mpc_programs.lockstep`; both servers run the same one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np

from orchestrator.mpc.fixed_point import SCALAR_BITS
from orchestrator.mpc.offline.correlations import Source
from orchestrator.mpc.openings import open_bits, open_scalars
from orchestrator.mpc.ring import MASK128, pack_bits, truncate, unpack_bits
from orchestrator.mpc.shares import BitShare, ScalarShare, encode_public

__all__ = ["SharedArithmetic"]

_Share = TypeVar("_Share", ScalarShare, BitShare)

_WORD = 64

_EXTRA_BITS = 9
"""At most so many more for small public factors: products of at most 1 in size then stay below 2^74."""


class SharedArithmetic:
    """One server's side. Documented in terms of f = `SCALAR_BITS` fractional bits and n elements."""

    def __init__(self, owner: int, source: Source) -> None:
        """Args: owner: 0 or 1; source: this server's correlated randomness."""
        self.owner = owner
        self._source = source

    # Local: no rounds, no bytes, exact unless said otherwise.

    def constants(self, values: Sequence[float]) -> ScalarShare:
        """Public numbers in the form of shares."""
        return self._scalars([0] * len(values)) + values

    def take(self, x: _Share, indices: Sequence[int]) -> _Share:
        if isinstance(x, BitShare):
            taken = unpack_bits(x.bits, x.count)[np.asarray(indices, dtype=np.intp)]
            return self._bits(pack_bits(taken), len(taken))
        values = x.values
        return self._scalars([values[i] for i in indices], x.scale_bits)

    def sums(self, x: ScalarShare, groups: int) -> ScalarShare:
        return self._scalars([sum(x.values[k::groups]) & MASK128 for k in range(groups)], x.scale_bits)

    def concat(self, parts: Sequence[_Share]) -> _Share:
        first = parts[0]
        if isinstance(first, BitShare):
            bits, count = 0, 0
            for part in parts:
                bits, count = bits | part.bits << count, count + part.count
            return self._bits(bits, count)
        if any(part.scale_bits != first.scale_bits for part in parts):
            raise TypeError("cannot concatenate shares of different scales")
        return self._scalars([value for part in parts for value in part.values], first.scale_bits)

    def combine(self, terms: Sequence[tuple[ScalarShare, float]], constant: float = 0.0) -> ScalarShare:
        """constant + the sum of c * x over the terms (x, c), truncated once.

        Where all |c| are below 1 they are encoded with as many more bits (up to 9, here called g) as the largest has
        leading zeros, which leaves the size of the products as it is. Whole units of the constant are added after
        truncation, which is wrong the more often the larger what it cuts. Inputs: |sum of c * x| 2^(2 f + g) < 2^74.
        Error: at most 1 + 2^-(g+1) * (sum of |x|) units.
        """
        bits, units, rest, factors = _encode_affine(constant, *[c for _, c in terms])
        if not any(factors):  # what would be truncated is then no uniform sharing, and may be wrong
            return self.constants([constant] * len(terms[0][0]))
        totals = [rest if self.owner == 0 else 0] * len(terms[0][0])
        for (x, _), factor in zip(terms, factors, strict=True):
            if x.scale_bits != SCALAR_BITS:
                raise TypeError(f"cannot combine shares of scale {x.scale_bits}, expected {SCALAR_BITS}")
            totals = [total + factor * value for total, value in zip(totals, x.values, strict=True)]
        results = truncate(totals, bits, self.owner)
        return self._scalars([value + units & MASK128 for value in results] if self.owner == 0 else results)

    def weigh(self, bits: ScalarShare, constants: Sequence[float]) -> ScalarShare:
        """Integer-valued shares (scale 0) times public numbers; the result has f bits."""
        if bits.scale_bits != 0:
            raise TypeError(f"expected shares of integers, got scale {bits.scale_bits}")
        weights = [encode_public(constant, SCALAR_BITS) for constant in constants]
        return self._scalars([value * weight & MASK128 for value, weight in zip(bits.values, weights, strict=True)])

    def negate(self, bits: BitShare) -> BitShare:
        return self._bits(bits.bits ^ (1 << bits.count) - 1, bits.count) if self.owner == 0 else bits

    # Interactive.

    async def multiply(self, *pairs: tuple[ScalarShare, ScalarShare]) -> list[ScalarShare]:
        """Elementwise products x y of all pairs (x, y), by Beaver triples; truncated to f bits where they have more.

        Inputs: scales up to f, their sum the same for all pairs; |x y| 2^sum < 2^74 (in
        `faithful`, elements of updates: 2^(64 + integer_bits)). Output: scale min(f, sum).
        Rounds: 1. Bytes: 32 n from each server. Error: one unit (none where no bits are cut).
        Leakage: none; d = x - a and e = y - b are uniform. Source: Beaver, CRYPTO '91, in the form
        x y = a b + d y + e a, which has the same terms at both servers.
        """
        x: list[int] = []
        y: list[int] = []
        scale = pairs[0][0].scale_bits + pairs[0][1].scale_bits
        for left, right in pairs:
            if len(left.values) != len(right.values) or left.scale_bits + right.scale_bits != scale:
                raise TypeError("the factors differ in length, or the products in scale")
            x += left.values
            y += right.values
        cut = max(0, scale - SCALAR_BITS)
        products = truncate(await self._products(x, y), cut, self.owner)
        results, end = [], 0
        for left, _ in pairs:
            start, end = end, end + len(left.values)
            results.append(self._scalars(products[start:end], scale - cut))
        return results

    async def inner(self, x: ScalarShare, y: ScalarShare, groups: int) -> ScalarShare:
        """Sums of the products x y over `groups` equal parts, formed as in `sums`; the sums are truncated, once.

        Inputs: scales that add up to at least f; |sum| 2^scales < 2^74. Output: scale f.
        Rounds, bytes, leakage, source: those of `multiply`. Error: one unit, however many products a sum has.
        """
        if len(x.values) != len(y.values):
            raise TypeError("the factors differ in length")
        products = self._scalars(await self._products(x.values, y.values), x.scale_bits + y.scale_bits)
        summed = self.sums(products, groups)
        return self._scalars(truncate(summed.values, summed.scale_bits - SCALAR_BITS, self.owner))

    async def _products(self, x: list[int], y: list[int]) -> list[int]:
        """Shares of the products, not truncated and not reduced; see `multiply`."""
        n = len(x)
        a, b, c = self._source.triples(n)
        masked = self._scalars([value - mask & MASK128 for value, mask in zip(x + y, a + b, strict=True)], 0)
        opened = await open_scalars(masked, reason="factors masked by a fresh triple")
        d, e = opened[:n], opened[n:]
        return [ck + dk * yk + ek * ak for ck, dk, yk, ek, ak in zip(c, d, y, e, a, strict=True)]

    async def less(self, x: ScalarShare, y: ScalarShare | float | Sequence[float]) -> BitShare:
        """Bits [x < y]: the sign of x - y.

        Inputs: |x - y| < 2^31 at f = 32 bits, so that the difference fits Z_2^64. Otherwise as `negative`.
        """
        return await self.negative(x - y, _WORD)

    async def negative(self, x: ScalarShare, width: int) -> BitShare:
        """Bits [x < 0], x signed and of `width` bits, from a boolean adder on the two servers' shares.

        Inputs: x in [-2^(w-1), 2^(w-1)) in units, w = 64 or 128. Output: XOR-shared bits; exact.
        Rounds: 7 or 8. Bytes: about 48 n or 96 n from each server. Leakage: none; only masked bits are opened.
        Source: parallel-prefix carry (Sklansky, 1960) as in GMW-style adders, e.g. Demmler et al., NDSS 2015 (ABY).

        The adder has w positions: position 0 is the carry into bit 0, which is none, and position i + 1 stands for bit
        i. An integer holds one position of all n elements after the other, in the order of their numbers read
        backwards in binary. The even positions are then its low half and the odd ones its high half, and so again
        once neighbours have been combined.
        """
        n = len(x)
        planes = _transpose(x.values, width)
        signs, own = planes & (1 << n) - 1, planes >> n
        mine, theirs = (own, 0) if self.owner == 0 else (0, own)
        count = (width - 1) * n  # what is carried out of the sign leaves the ring
        generate = (await self.and_(self._bits(mine, count), self._bits(theirs, count))).bits << n
        propagate = own << n
        half = width // 2 * n
        while half > n:
            low = (1 << half) - 1
            upper, lower = propagate >> half, generate & low | (propagate & low) << half
            products = await self.and_(self._bits(upper | upper << half, 2 * half), self._bits(lower, 2 * half))
            generate = generate >> half ^ products.bits & low
            propagate = products.bits >> half
            half //= 2
        carried = await self.and_(self._bits(propagate >> n, n), self._bits(generate & (1 << n) - 1, n))
        return self._bits(signs ^ generate >> n ^ carried.bits, n)

    async def and_(self, x: BitShare, y: BitShare) -> BitShare:
        """Elementwise AND by bit triples. Rounds: 1. Bytes: n / 4 from each server. Exact; no leakage."""
        n = x.count
        a, b, c = self._source.bit_triples(n)
        masked = self._bits(x.bits ^ a | (y.bits ^ b) << n, 2 * n)
        opened = await open_bits(masked, reason="bits masked by a fresh bit triple")
        return self._bits(c ^ opened & y.bits ^ opened >> n & a, n)

    async def all(self, bits: BitShare, groups: int) -> BitShare:
        """AND over `groups` equal parts; bit k belongs to part k mod groups. Rounds: ceil(log2(size of a part))."""
        values, size = bits.bits, bits.count // groups
        while size > 1:
            half = size // 2 * groups
            low = (1 << half) - 1
            left, right, rest = values & low, values >> half & low, values >> 2 * half
            products = await self.and_(self._bits(left, half), self._bits(right, half))
            values, size = products.bits | rest << half, (size + 1) // 2
        return self._bits(values, groups)

    async def numbers(self, bits: BitShare) -> ScalarShare:
        """XOR-shared bits as additive shares of 0 or 1 (scale 0), by random bits shared both ways.

        Rounds: 1. Bytes: n / 8 from each server. Exact. Leakage: none. Source: daBits (Rotaru and Wood, 2019).
        """
        r, r_sum = self._source.bits(bits.count)
        masked = self._bits(bits.bits ^ r, bits.count)
        opened = await open_bits(masked, reason="bits masked by fresh random bits")
        one = 1 if self.owner == 0 else 0
        flips = unpack_bits(opened, bits.count).tolist()
        return self._scalars([one - s & MASK128 if flip else s for s, flip in zip(r_sum, flips, strict=True)], 0)

    def vectors(self, count: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scaled vectors from preprocessing, for products of secret scalars and long vectors; see `Source.vectors`."""
        return self._source.vectors(count, length)

    def _scalars(self, values: list[int], scale_bits: int = SCALAR_BITS) -> ScalarShare:
        return ScalarShare(values, scale_bits, self.owner)

    def _bits(self, bits: int, count: int) -> BitShare:
        return BitShare(bits, count, self.owner)


@lru_cache(maxsize=256)
def _encode_affine(constant: float, *factors: float) -> tuple[int, int, int, tuple[int, ...]]:
    """The factors' bits after the point, the constant's whole units, its rest at the products' scale, the factors."""
    bits = SCALAR_BITS + min(_EXTRA_BITS, max(0, -math.frexp(max(map(abs, factors)))[1]))
    units, rest = divmod(encode_public(constant, SCALAR_BITS + bits), 1 << bits)
    return bits, units, rest, tuple([encode_public(factor, bits) for factor in factors])


@lru_cache(maxsize=2)
def _planes(width: int) -> list[int]:
    """The bits of a word in the order in which `SharedArithmetic.negative` holds them; the first is -1, the sign."""
    digits = width.bit_length() - 1
    return [int(f"{slot:0{digits}b}"[::-1], 2) - 1 for slot in range(width)]


def _transpose(values: Sequence[int], width: int) -> int:
    """The lowest bits of n numbers, `_planes` after each other, in one integer."""
    mask, size = (1 << width) - 1, width // 8
    words = np.frombuffer(b"".join([(value & mask).to_bytes(size, "little") for value in values]), dtype=np.uint8)
    bits = np.unpackbits(words.reshape(-1, size), axis=1, bitorder="little")
    return pack_bits(bits.T[_planes(width)])
