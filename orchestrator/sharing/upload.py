"""What a client hands to each server: shares of its scores and of its update, or better than shares of the update.

Parties: a client and two servers that do not collude; all semi-honest, and no client colludes with a server.
What each learns: a server receives a seed, a uniformly masked update and (server 1) uniformly masked products and
scores; alone these are independent of the client's data (each lacks the other's seed). Together they determine it.
Channel: sealed envelopes (`orchestrator.sharing.envelope`); the upload names its run, round, slot and server.

With the program "assisted" the client supplies the correlation that lets the servers multiply its update by a secret
scalar with one opened ring element, whatever d is (client-aided model of SecureML, section "client-aided offline"):

    lam uniform in Z_2^64^d, a uniform in Z_2^64;  M = Delta + lam to both;  <lam>, <a>, <a * lam> shared.

Under a personal rule the update meets q secret scalars s_i, one for each client's model. It then comes with q scalars
a_i, independent ones: the e_i = s_i - a_i are opened, and with one a for all of them would show how the s_i differ.

The other programs need no help from the client and take plain shares of Delta in Z_2^64 or Z_2^128.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from orchestrator.sharing.fixed_point import encode_scalars
from orchestrator.sharing.message import Header, pack, unpack
from orchestrator.sharing.prg import Prg, fresh_seed
from orchestrator.sharing.ring import MASK128, from_bytes128, to_bytes128

__all__ = ["KEY_BYTES", "Correlated", "Upload", "share_update", "unpack_upload"]

KEY_BYTES = 32
"""Length of a reply key."""


@dataclass(frozen=True)
class Correlated:
    """One server's part of an update that comes with its own correlation; uint64 in Z_2^64.

    Attributes:
        masked: M = Delta + lam at `update_bits`, the same for both servers; shape (d,).
        mask: share of lam; shape (d,).
        factor_masks: share of a, one element for each secret scalar that the update meets; shape (n,).
        products: share of a * lam; shape (n, d). Empty once they have been added to the round's sums.
    """

    masked: np.ndarray = field(repr=False)
    mask: np.ndarray = field(repr=False)
    factor_masks: np.ndarray = field(repr=False)
    products: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class Upload:
    """One server's part, expanded.

    Attributes:
        scalars: share of the k scores, Z_2^128 at `SCALAR_BITS`.
        update: `Correlated`, or a share of Delta at `update_bits`, of d elements: a uint64 array for the program
            "scalar-first", a list in Z_2^128 for "faithful".
        reply_key: the public key that an answer is sealed to; empty where none is expected.
    """

    scalars: list[int] = field(repr=False)
    update: Correlated | np.ndarray | list[int] = field(repr=False)
    reply_key: bytes = b""


def share_update(
    update: np.ndarray,
    scores: Sequence[float],
    headers: Sequence[Header],
    program: str = "assisted",
    factors: int = 1,
    reply_key: bytes = b"",
) -> tuple[bytes, bytes]:
    """The packed uploads for server 0 and server 1.

    Args:
        update: encoded Delta; uint64, shape (d,).
        scores: the rule's scores in its order, then the norm ratio where updates are clipped.
        headers: one for each server.
        program: "assisted", "scalar-first" or "faithful".
        factors: n, how many secret scalars the update meets; more than one with "assisted" only.
        reply_key: the client's public key for its answer; empty for none.

    Bytes in all: 8 (n + 2) d for "assisted", 8 d for "scalar-first", 16 d for "faithful"; 16 k and below 700 more.
    """
    seeds = (fresh_seed(), fresh_seed())
    d, k = len(update), len(scores)
    first: dict[str, bytes] = {"seed": seeds[0]}
    second: dict[str, bytes] = {"seed": seeds[1]}
    if reply_key:
        first["reply_key"] = second["reply_key"] = reply_key
    prg = Prg(seeds[0])
    if program == "assisted":
        other = Prg(seeds[1])
        mask, factor_masks = prg.uint64(d), prg.uint64(factors)
        mask, factor_masks = mask + other.uint64(d), factor_masks + other.uint64(factors)
        first["masked"] = second["masked"] = (update + mask).tobytes()
        second["product"] = b"".join([(one * mask - prg.uint64(d)).tobytes() for one in factor_masks])
    elif program == "scalar-first":
        second["share"] = (update - prg.uint64(d)).tobytes()
    else:
        second["share"] = _complement(update.view(np.int64).tolist(), prg.ring128(d))
    second["scalars"] = _complement(encode_scalars(scores), prg.ring128(k))
    return pack(headers[0], first), pack(headers[1], second)


def _complement(values: list[int], first: list[int]) -> bytes:
    """Server 1's share of scalars of which server 0 has the share `first`."""
    return to_bytes128(value - share & MASK128 for value, share in zip(values, first, strict=True))


def unpack_upload(
    data: bytes,
    expected: Header,
    parameters: int,
    scores: int,
    program: str = "assisted",
    factors: int = 1,
    answered: bool = False,
) -> Upload:
    """Parse and expand one server's part.

    Args:
        parameters, scores, factors: d, k and n.
        answered: whether the upload must bring a reply key.

    Raises:
        ValueError: with the reason, if it is malformed or meant for another run, round, slot, client or server.
    """
    fields = unpack(data, expected, "upload")
    try:
        prg = Prg(fields["seed"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError("the upload is not in the expected format") from error
    d, k, first = parameters, scores, expected.server == 0
    lengths = {} if first else {"scalars": 16 * k}
    if program == "assisted":
        lengths |= {"masked": 8 * d} if first else {"masked": 8 * d, "product": 8 * factors * d}
    elif not first:
        lengths["share"] = (8 if program == "scalar-first" else 16) * d
    if answered:
        lengths["reply_key"] = KEY_BYTES
    for name, length in lengths.items():
        if len(fields.get(name, b"")) != length:
            raise ValueError(f"the upload's field '{name}' has {len(fields.get(name, b''))} bytes, expected {length}")
    if program == "assisted":
        mask, factor_masks = prg.uint64(d), prg.uint64(factors)
        products = prg.uint64(factors * d) if first else np.frombuffer(fields["product"], dtype="<u8")
        masked = np.frombuffer(fields["masked"], dtype="<u8")
        update = Correlated(masked, mask, factor_masks, products.reshape(factors, d))
    elif program == "scalar-first":
        update = prg.uint64(d) if first else np.frombuffer(fields["share"], dtype="<u8")
    else:
        update = prg.ring128(d) if first else from_bytes128(fields["share"])
    scalars = prg.ring128(k) if first else from_bytes128(fields["scalars"])
    return Upload(scalars, update, fields["reply_key"] if answered else b"")
