"""What a client hands to each server: shares of its scores and the correlated randomness for its own update.

Parties: a client and two servers that do not collude; all semi-honest, and no client colludes with a server.
What each learns: a server receives a seed, a uniformly masked update and (server 1) uniformly masked products and
scores; alone these are independent of the client's data (each lacks the other's seed). Together they determine it.
Channel: sealed envelopes (`orchestrator.sharing.envelope`); the upload names its run, round, slot and server.

The correlation lets the servers multiply the update by a secret scalar with one opened ring element per client,
whatever d is (client-aided model of SecureML, section "client-aided offline"; see docs/protocol.md):

    lam uniform in Z_2^64^d, a uniform in Z_2^64;  M = Delta + lam to both;  <lam>, <a>, <a * lam> shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgpack
import numpy as np

from orchestrator.sharing.fixed_point import encode_scalars
from orchestrator.sharing.prg import Prg, fresh_seed
from orchestrator.sharing.ring import MASK128, from_bytes128, to_bytes128

__all__ = ["Upload", "UploadHeader", "pack_upload", "share_update", "unpack_upload"]

_VERSION = 1


@dataclass(frozen=True)
class UploadHeader:
    """Which place in which round an upload is for.

    Attributes:
        run: 16 random bytes, fresh for every start of the servers.
        round: global round, from 1.
        slot: position in the cohort, from 0.
        client: the client's number.
        server: 0 or 1.
    """

    run: bytes
    round: int
    slot: int
    client: int
    server: int


@dataclass(frozen=True)
class Upload:
    """One server's part, expanded.

    Attributes:
        scalars: share of the scores, Z_2^128 at `SCALAR_BITS`; object, shape (k,).
        masked: M = Delta + lam, Z_2^64 at `update_bits`; uint64, shape (d,).
        mask: share of lam; uint64, shape (d,).
        factor_mask: share of a; int in [0, 2^64).
        product: share of a * lam; uint64, shape (d,).
    """

    scalars: np.ndarray
    masked: np.ndarray
    mask: np.ndarray
    factor_mask: int
    product: np.ndarray


def share_update(update: np.ndarray, scores: Sequence[float], headers: Sequence[UploadHeader]) -> tuple[bytes, bytes]:
    """The packed uploads for server 0 and server 1.

    Args:
        update: encoded Delta; uint64, shape (d,).
        scores: the rule's scores in its order, then the norm ratio where updates are clipped.
        headers: one for each server.

    Bytes: 8 d for server 0, 16 d + 16 k for server 1, and below 300 each for seed and header.
    """
    seeds = (fresh_seed(), fresh_seed())
    d, k = len(update), len(scores)
    masks, factor_masks, product0, scalars0 = [], [], None, None
    for server, seed in enumerate(seeds):
        prg = Prg(seed)
        masks.append(prg.uint64(d))
        factor_masks.append(int(prg.uint64(1)[0]))
        if server == 0:
            product0, scalars0 = prg.uint64(d), prg.ring128(k)
    assert product0 is not None and scalars0 is not None
    mask = masks[0] + masks[1]
    factor_mask = np.uint64(sum(factor_masks) & (2**64 - 1))
    masked = (update + mask).tobytes()
    first = {"seed": seeds[0], "masked": masked}
    second = {
        "seed": seeds[1],
        "masked": masked,
        "product": (factor_mask * mask - product0).tobytes(),
        "scalars": to_bytes128(encode_scalars(np.asarray(scores, dtype=np.float64)) - scalars0 & MASK128),
    }
    return pack_upload(headers[0], first), pack_upload(headers[1], second)


def pack_upload(header: UploadHeader, fields: dict[str, bytes]) -> bytes:
    """Serialise; `fields` are those of `share_update`."""
    return msgpack.packb(
        {
            "version": _VERSION,
            "run": header.run,
            "round": header.round,
            "slot": header.slot,
            "client": header.client,
            "server": header.server,
            **fields,
        }
    )


def unpack_upload(data: bytes, expected: UploadHeader, parameters: int, scores: int) -> Upload:
    """Parse and expand one server's part.

    Raises:
        ValueError: with the reason, if it is malformed or meant for another run, round, slot, client or server.
    """
    try:
        fields = msgpack.unpackb(data)
        found = UploadHeader(*(fields[name] for name in ("run", "round", "slot", "client", "server")))
        version, seed, masked = fields["version"], fields["seed"], fields["masked"]
    except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
        raise ValueError("the upload is not in the expected format") from error
    if version != _VERSION:
        raise ValueError(f"the upload has format {version!r}, expected {_VERSION}")
    for name in ("run", "round", "slot", "client", "server"):
        if getattr(found, name) != getattr(expected, name):
            wanted, got = getattr(expected, name), getattr(found, name)
            detail = "" if name == "run" else f" {got!r} instead of {wanted!r}"
            raise ValueError(f"the upload is meant for another {name}{detail}")
    d, k = parameters, scores
    lengths = {"masked": 8 * d} if expected.server == 0 else {"masked": 8 * d, "product": 8 * d, "scalars": 16 * k}
    for name, length in lengths.items():
        if len(fields.get(name, b"")) != length:
            raise ValueError(f"the upload's field '{name}' has {len(fields.get(name, b''))} bytes, expected {length}")
    prg = Prg(seed)
    mask, factor_mask = prg.uint64(d), int(prg.uint64(1)[0])
    if expected.server == 0:
        product, scalars = prg.uint64(d), prg.ring128(k)
    else:
        product, scalars = np.frombuffer(fields["product"], dtype="<u8"), from_bytes128(fields["scalars"])
    return Upload(scalars, np.frombuffer(masked, dtype="<u8"), mask, factor_mask, product)
