"""The servers' own preprocessing: multiplication and bit triples and daBits from oblivious transfer. No third party.

Parties, adversary, channel: as in `oblivious_transfer`. What each learns: its own shares, which are uniform; the
corrections that travel are masked by blocks that the receiver does not have.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from mpc_programs.lockstep import exchange
from orchestrator.mpc.offline.correlations import Batch, Demand
from orchestrator.mpc.offline.oblivious_transfer import OtExtension
from orchestrator.mpc.prg import Prg
from orchestrator.mpc.ring import MASK128, from_bytes128, pack_bits

__all__ = ["generate"]

_BITS = 128
_WORD = 64
_SLICE = 8192  # a triple takes 128 blocks of 16 bytes, in several arrays at once


async def generate(transfers: OtExtension, owner: int, demand: Demand) -> Batch:
    """One server's batch of fresh correlations, made in slices so that memory stays bounded.

    Rounds: 2 for up to 8,192 triples, 2 more for every further 8,192, and 2 for each vector.
    """
    slices = [
        await _scalars(transfers, owner, replace(demand, triples=min(_SLICE, demand.triples - start), **rest))
        for start, rest in _slices(demand)
    ]
    a, b, c = (list(chain.from_iterable(parts)) for parts in zip(*(made for made, _, _ in slices), strict=True))
    _, bit_triples, bits = slices[0]
    made = [await _vector(transfers, demand.length) for _ in range(demand.vectors)]
    factors = np.array([factor for factor, _, _ in made], dtype=np.uint64)
    masks, products = (
        np.array([vector[k] for vector in made], dtype=np.uint64).reshape(demand.vectors, demand.length) for k in (1, 2)
    )
    return Batch(demand, (a, b, c), bit_triples, bits, (factors, masks, products))


def _slices(demand: Demand) -> list[tuple[int, dict[str, int]]]:
    """Where each slice of triples starts; the bits all go with the first."""
    starts = range(0, max(1, demand.triples), _SLICE)
    return [(start, {} if start == 0 else {"bit_triples": 0, "bits": 0}) for start in starts]


async def _scalars(transfers: OtExtension, owner: int, demand: Demand) -> tuple[tuple[Any, ...], ...]:
    """Triples, bit triples and daBits, as `Batch` takes them.

    Triples: with a, b this server's random shares, the cross products a_0 b_1 and a_1 b_0 are computed bit by bit of
    b (Gilboa, CRYPTO '99): transfer k hides 2^k a in the difference of its two blocks. Bit triples: of a random
    transfer, the exclusive or of the sender's two bits and the receiver's choice are random factors, and the sender's
    first bit and the received one share their product; two transfers give both cross products. daBits: a random bit
    of each server; the product of the two is a transfer with that correlation.

    Rounds: 2. Bytes from each server: 4,096 a triple, 16 a bit triple, 32 for every second daBit. Leakage: none.
    """
    t, b, r = demand.triples, demand.bit_triples, demand.bits
    half = (r + 1) // 2
    prg = Prg()
    factor, multiplier = prg.uint64(2 * t).reshape(t, 2), prg.uint64(2 * t).reshape(t, 2)
    bit_b, own_bits = prg.bits(b), prg.bits(2 * half)
    # Where this server's random bits act as the sender's, and where as the receiver's choices.
    sent, chosen = (own_bits[:half], own_bits[half:]) if owner == 0 else (own_bits[half:], own_bits[:half])
    multiplier_bits = np.unpackbits(multiplier.astype("<u8").view(np.uint8).ravel(), bitorder="little")
    first, second, received = await transfers.extend(np.concatenate([multiplier_bits, bit_b, chosen]))

    split, end = _BITS * t, _BITS * t + b
    scaled = _shifts(factor).reshape(split, 2)
    carried = np.concatenate([scaled, np.stack([sent.astype(np.uint64), np.zeros(half, np.uint64)], axis=1)])
    # Bit triples take their factors as they come and need no correction.
    where = np.r_[0:split, end : end + half]
    corrections = _subtract(_add(first[where], carried), second[where])
    theirs = np.frombuffer(await exchange(corrections.astype("<u8").tobytes()), dtype="<u8").reshape(-1, 2)
    choice = np.concatenate([multiplier_bits, chosen]).astype(bool)
    hidden = received[where]
    hidden[choice] = _add(hidden[choice], theirs[choice])

    a, b_ = _integers(factor), _integers(multiplier)
    received_sums, sent_sums = _sums(hidden[:split], t), _sums(first[:split], t)
    c = [x * y + u - v & MASK128 for x, y, u, v in zip(a, b_, received_sums, sent_sums, strict=True)]

    bit_a = ((first[split:end, 0] ^ second[split:end, 0]) & np.uint64(1)).astype(np.uint8)
    cross = ((first[split:end, 0] ^ received[split:end, 0]) & np.uint64(1)).astype(np.uint8)
    bit_c = bit_a & bit_b ^ cross

    as_sender, as_receiver = [-block for block in _integers(first[end:])], _integers(hidden[split:])
    products = as_sender + as_receiver if owner == 0 else as_receiver + as_sender
    # A daBit is the exclusive or of one bit of each server, x + y - 2 x y.
    bit_sums = [bit - 2 * product & MASK128 for bit, product in zip(own_bits.tolist(), products, strict=True)]
    bit_triples = tuple(pack_bits(column) for column in (bit_a, bit_b, bit_c))
    return (a, b_, c), bit_triples, (pack_bits(own_bits[:r]), bit_sums[:r])


async def _vector(transfers: OtExtension, length: int) -> tuple[int, np.ndarray, np.ndarray]:
    """Shares of a scalar a, a vector lam and a * lam in Z_2^64; as a triple, with blocks expanded to vectors.

    Rounds: 2. Bytes from each server: 512 an element + 1,024. Leakage: none.
    """
    prg = Prg()
    factor, mask = prg.uint64(1), prg.uint64(length)
    choices = np.unpackbits(factor.astype("<u8").view(np.uint8), bitorder="little")
    first, second, received = await transfers.extend(choices)
    product = factor * mask
    corrections = np.empty((_WORD, length), dtype="<u8")
    for k in range(_WORD):
        hidden = _expand(first[k], length)
        corrections[k] = hidden + (mask << np.uint64(k)) - _expand(second[k], length)
        product -= hidden
    theirs = np.frombuffer(await exchange(corrections.tobytes()), dtype="<u8").reshape(_WORD, length)
    for k in range(_WORD):
        product += _expand(received[k], length)
        if choices[k]:
            product += theirs[k]
    return int(factor[0]), mask, product


def _expand(block: np.ndarray, length: int) -> np.ndarray:
    return Prg(block.astype("<u8").tobytes()).uint64(length)


def _add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Modulo 2^128; uint64 of shape (n, 2), low half first."""
    low = x[:, 0] + y[:, 0]
    return np.stack([low, x[:, 1] + y[:, 1] + (low < x[:, 0])], axis=1)


def _subtract(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.stack([x[:, 0] - y[:, 0], x[:, 1] - y[:, 1] - (x[:, 0] < y[:, 0])], axis=1)


def _shifts(x: np.ndarray) -> np.ndarray:
    """x * 2^k modulo 2^128 for k = 0 .. 127; uint64 of shape (n, 128, 2)."""
    shifted = np.empty((len(x), _BITS, 2), dtype=np.uint64)
    low, high = x[:, :1], x[:, 1:]
    k = np.arange(1, 64, dtype=np.uint64)
    shifted[:, 0] = x
    shifted[:, 1:64, 0] = low << k
    shifted[:, 1:64, 1] = high << k | low >> (np.uint64(64) - k)
    shifted[:, 64:, 0] = 0
    shifted[:, 64:, 1] = low << np.arange(64, dtype=np.uint64)
    return shifted


def _sums(x: np.ndarray, groups: int) -> list[int]:
    """Sums of `groups` consecutive parts, not reduced modulo 2^128; halves of words cannot overflow."""
    words = x.astype("<u8").view("<u4").reshape(groups, _BITS, 4).astype(np.uint64).sum(axis=1)
    return [w0 + (w1 << 32) + (w2 << 64) + (w3 << 96) for w0, w1, w2, w3 in words.tolist()]


def _integers(x: np.ndarray) -> list[int]:
    return from_bytes128(x.astype("<u8").tobytes())
