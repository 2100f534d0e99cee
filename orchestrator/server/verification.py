"""What the servers check of a client's upload before they use it: its update's norm, and its product with the mask.

Parties: the two servers, semi-honest, at most one of them corrupted; clients, any number of which may send anything,
know all that is public and see earlier rounds' results. What each learns: which uploads are refused, and of others
nothing; masked openings, each uniform. The rows follow from a key of both servers that no client has, so that no upload
depends on them. Channel: as in `aggregation`.

An update D, integers in steps, comes with a mask a and a product P. The servers multiply rows R with their shares of
both. Refused is an upload for which a (R D) - R P is not zero, or ||R D||^2 is too large; docs/protocol.md, "Clients
that lie", has the theorem. Scores need no check: they come as bits, and whatever these are is a score in its range.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from mpc_programs.lockstep import exchange, gather, run
from mpc_programs.verification import PRODUCT_ROWS, ROWS, largest_sum, shift
from orchestrator.mpc.fixed_point import COUNT_BITS
from orchestrator.mpc.offline.correlations import Demand, Tally
from orchestrator.mpc.openings import open_bits, open_ring64
from orchestrator.mpc.ring import MASK128
from orchestrator.mpc.shared_arithmetic import SharedArithmetic
from orchestrator.mpc.shares import BitShare, ScalarShare, VectorShare
from orchestrator.wire.update import Correlated
from orchestrator.wire.upload import Upload

__all__ = ["NORM", "PRODUCT", "Witness", "verification_demand", "verify"]

NORM, PRODUCT = "refused: norm", "refused: product"
"""Why an upload is left out, in the round's record."""


@dataclass(frozen=True)
class Witness:
    """What a server checks of one upload.

    Attributes:
        update, product: rows times its shares of D and P; uint64, shape (ROWS,).
        mask: its share of a, in Z_2^64.
        bits: its XOR share of the scores' bits, in one integer.
    """

    update: np.ndarray = field(repr=False)
    product: np.ndarray = field(repr=False)
    mask: np.uint64 = field(repr=False)
    bits: int = field(repr=False)

    @classmethod
    def of(cls, upload: Upload) -> Witness:
        """Of an upload that has a `witness`."""
        assert upload.witness is not None and isinstance(upload.update, Correlated)
        return cls(*upload.witness, upload.update.factor_masks[0], upload.bits)


async def verify(
    ops: SharedArithmetic, bound: float, widths: Sequence[int], counted: bool, witnesses: Sequence[Witness]
) -> tuple[list[str | None], list[list[int]]]:
    """By upload why it is refused, or None; and its scores, shares in Z_2^128 made of its bits.

    Args:
        bound: B in steps of the updates' grid.
        widths: bits of each score, of 2^-32 the first.
        counted: whether the last one is the bit that is counted.

    Rounds: 10, whatever the number of uploads. Bytes of each server, an upload: 2,048 for the norm, 520 and 32 for the
    product, about 100 for the comparison, an eighth of the bits. Error probabilities: `mpc_programs.verification`, and
    2^-64 for a wrong product. Leakage: the verdicts.
    """
    long, wrong, scores = await gather(
        _too_long(ops, bound, [witness.update for witness in witnesses]),
        _wrong_product(ops, witnesses),
        _scores(ops, widths, counted, [witness.bits for witness in witnesses]),
    )
    opened = await open_bits(long, reason="which updates are too long decides who is left out, and is recorded")
    verdicts = [PRODUCT if bad else NORM if opened >> k & 1 else None for k, bad in enumerate(wrong)]
    return verdicts, scores


async def _too_long(ops: SharedArithmetic, bound: float, projected: Sequence[np.ndarray]) -> BitShare:
    """Bits [sum of squares of R D, cut by 2^shift, above `largest_sum`]; projected: each (ROWS,), a share in Z_2^64.

    The server's number and the other's add up to the element in integers, or to one that is 2^64 off, as two's
    complement has it: off for as many of the 2^64 sharings as the element is large. Cut, each server squares its own;
    of the products of both, one triple gives two rows': with x = (own first half) and y = (own second half) at server
    0, exchanged at server 1, x y holds both and products that one server knows.
    """
    cut, sign, half = shift(bound), 1 if ops.owner == 0 else -1, ROWS // 2
    first: list[int] = []
    second: list[int] = []
    known: list[int] = []
    for share in projected:
        own = [sign * (sign * value >> cut) for value in share.view(np.int64).tolist()]
        left, right = (own[:half], own[half:]) if ops.owner == 0 else (own[half:], own[:half])
        first += left
        second += right
        known.append(sum(x * x for x in own) - 2 * sum(x * y for x, y in zip(left, right, strict=True)))
    factors = [ScalarShare([x & MASK128 for x in values], 0, ops.owner) for values in (first, second)]
    [products] = await ops.multiply((factors[0], factors[1]))
    crossed = [sum(products.values[k * half : (k + 1) * half]) for k in range(len(projected))]
    sums = [2 * cross + own & MASK128 for cross, own in zip(crossed, known, strict=True)]
    top = largest_sum(bound) if ops.owner == 0 else 0
    return await ops.negative(ScalarShare([top - value & MASK128 for value in sums], 0, ops.owner), 128)


async def _wrong_product(ops: SharedArithmetic, witnesses: Sequence[Witness]) -> list[bool]:
    """Whether a (R D) - R P is not zero: a (R D) by a scaled vector of preprocessing, as in `aggregation`.

    Both servers' shares of zero are each other's negatives, and their hashes are compared: of an honest upload's each
    server knows the other's.
    """
    elements = np.stack([witness.update[:PRODUCT_ROWS] for witness in witnesses])
    claimed = np.stack([witness.product[:PRODUCT_ROWS] for witness in witnesses])
    own = np.array([witness.mask for witness in witnesses], dtype=np.uint64)
    factors, masks, products = ops.vectors(len(witnesses), PRODUCT_ROWS)
    hidden = VectorShare(np.concatenate([own - factors, (elements + masks).ravel()]), 0, ops.owner)
    opened = await open_ring64(hidden, reason="witnesses masked by fresh scaled vectors")
    difference, lifted = opened[: len(own)], opened[len(own) :].reshape(masks.shape)
    rest = claimed - (lifted * own[:, None] - masks * difference[:, None] - products)
    if ops.owner == 1:
        rest = -rest
    digests = [hashlib.sha256(row.astype("<u8").tobytes()).digest() for row in rest]
    theirs = await exchange(b"".join(digests))
    return [digest != theirs[32 * k : 32 * k + 32] for k, digest in enumerate(digests)]


async def _scores(ops: SharedArithmetic, widths: Sequence[int], counted: bool, bits: Sequence[int]) -> list[list[int]]:
    """Each upload's scores as shares in Z_2^128: bits as numbers, the first of 2^-32; a counted one at `COUNT_BITS`."""
    each = sum(widths)
    if not each or not bits:
        return [[] for _ in bits]
    packed = sum(value << each * k for k, value in enumerate(bits))
    numbers = (await ops.numbers(BitShare(packed, each * len(bits), ops.owner))).values
    scores, start = [], 0
    for _ in bits:
        found = []
        for k, width in enumerate(widths):
            first = COUNT_BITS if counted and k == len(widths) - 1 else 0
            found.append(sum(value << first + j for j, value in enumerate(numbers[start : start + width])) & MASK128)
            start += width
        scores.append(found)
    return scores


@lru_cache(maxsize=64)
def verification_demand(cohort: int, widths: tuple[int, ...]) -> Demand:
    """Exactly what checking a whole cohort's uploads takes, counted by running it on zeros."""
    zeros = np.zeros(ROWS, dtype=np.uint64)
    tally = Tally()
    protocol = verify(SharedArithmetic(0, tally), 2.0**25, widths, False, [Witness(zeros, zeros, zeros[0], 0)] * cohort)
    run(protocol, lambda payload: payload)
    return tally.taken
