"""What a client hands to each server: shares of its scores and of its update, or better than shares of the update.

Parties: a client and two servers that do not collude; all semi-honest, and no client colludes with a server.
What each learns: a server receives a seed, a uniformly masked update and (server 1) uniformly masked products and
scores; alone these are independent of the client's data (each lacks the other's seed). Together they determine it.
Channel: sealed envelopes (`orchestrator.sharing.envelope`); the upload names its run, round, slot and server.

With the program "assisted" the client supplies the correlation that lets the servers multiply its update by a secret
scalar with one opened ring element, whatever d is (client-aided model of SecureML, section "client-aided offline"):

    lam uniform in Z_2^64^d, a uniform in Z_2^64;  M = Delta + lam to both;  <lam>, <a>, <a * lam> shared.

The other programs need no help from the client and take plain shares of Delta in Z_2^64 or Z_2^128.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgpack
import numpy as np

from orchestrator.sharing.fixed_point import encode_scalars
from orchestrator.sharing.prg import Prg, fresh_seed
from orchestrator.sharing.ring import MASK128, from_bytes128, to_bytes128

__all__ = ["Correlated", "Upload", "UploadHeader", "pack_upload", "share_update", "unpack_upload"]

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
class Correlated:
    """One server's part of an update that comes with its own correlation; uint64 in Z_2^64, shape (d,).

    Attributes:
        masked: M = Delta + lam at `update_bits`, the same for both servers.
        mask: share of lam.
        factor_mask: share of a; int in [0, 2^64).
        product: share of a * lam.
    """

    masked: np.ndarray
    mask: np.ndarray
    factor_mask: int
    product: np.ndarray


@dataclass(frozen=True)
class Upload:
    """One server's part, expanded.

    Attributes:
        scalars: share of the k scores, Z_2^128 at `SCALAR_BITS`.
        update: `Correlated`, or a share of Delta at `update_bits`, of d elements: a uint64 array for the program
            "scalar-first", a list in Z_2^128 for "faithful".
    """

    scalars: list[int]
    update: Correlated | np.ndarray | list[int]


def share_update(
    update: np.ndarray, scores: Sequence[float], headers: Sequence[UploadHeader], program: str = "assisted"
) -> tuple[bytes, bytes]:
    """The packed uploads for server 0 and server 1.

    Args:
        update: encoded Delta; uint64, shape (d,).
        scores: the rule's scores in its order, then the norm ratio where updates are clipped.
        headers: one for each server.
        program: "assisted", "scalar-first" or "faithful".

    Bytes in all: 24 d for "assisted", 8 d for "scalar-first", 16 d for "faithful"; 16 k and below 600 more.
    """
    seeds = (fresh_seed(), fresh_seed())
    d, k = len(update), len(scores)
    first: dict[str, bytes] = {"seed": seeds[0]}
    second: dict[str, bytes] = {"seed": seeds[1]}
    prg = Prg(seeds[0])
    if program == "assisted":
        other = Prg(seeds[1])
        mask, factor_mask = prg.uint64(d), prg.uint64(1)
        mask, factor_mask = mask + other.uint64(d), factor_mask + other.uint64(1)
        first["masked"] = second["masked"] = (update + mask).tobytes()
        second["product"] = (factor_mask * mask - prg.uint64(d)).tobytes()
    elif program == "scalar-first":
        second["share"] = (update - prg.uint64(d)).tobytes()
    else:
        second["share"] = _complement(update.view(np.int64).tolist(), prg.ring128(d))
    second["scalars"] = _complement(encode_scalars(scores), prg.ring128(k))
    return pack_upload(headers[0], first), pack_upload(headers[1], second)


def _complement(values: list[int], first: list[int]) -> bytes:
    """Server 1's share of scalars of which server 0 has the share `first`."""
    return to_bytes128(value - share & MASK128 for value, share in zip(values, first, strict=True))


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


def unpack_upload(
    data: bytes, expected: UploadHeader, parameters: int, scores: int, program: str = "assisted"
) -> Upload:
    """Parse and expand one server's part.

    Raises:
        ValueError: with the reason, if it is malformed or meant for another run, round, slot, client or server.
    """
    try:
        fields = msgpack.unpackb(data)
        found = UploadHeader(*(fields[name] for name in ("run", "round", "slot", "client", "server")))
        version, prg = fields["version"], Prg(fields["seed"])
    except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
        raise ValueError("the upload is not in the expected format") from error
    if version != _VERSION:
        raise ValueError(f"the upload has format {version!r}, expected {_VERSION}")
    for name in ("run", "round", "slot", "client", "server"):
        if getattr(found, name) != getattr(expected, name):
            wanted, got = getattr(expected, name), getattr(found, name)
            detail = "" if name == "run" else f" {got!r} instead of {wanted!r}"
            raise ValueError(f"the upload is meant for another {name}{detail}")
    d, k, first = parameters, scores, expected.server == 0
    lengths = {} if first else {"scalars": 16 * k}
    if program == "assisted":
        lengths |= {"masked": 8 * d} if first else {"masked": 8 * d, "product": 8 * d}
    elif not first:
        lengths["share"] = (8 if program == "scalar-first" else 16) * d
    for name, length in lengths.items():
        if len(fields.get(name, b"")) != length:
            raise ValueError(f"the upload's field '{name}' has {len(fields.get(name, b''))} bytes, expected {length}")
    if program == "assisted":
        mask, factor_mask = prg.uint64(d), int(prg.uint64(1)[0])
        product = prg.uint64(d) if first else np.frombuffer(fields["product"], dtype="<u8")
        update = Correlated(np.frombuffer(fields["masked"], dtype="<u8"), mask, factor_mask, product)
    elif program == "scalar-first":
        update = prg.uint64(d) if first else np.frombuffer(fields["share"], dtype="<u8")
    else:
        update = prg.ring128(d) if first else from_bytes128(fields["share"])
    return Upload(prg.ring128(k) if first else from_bytes128(fields["scalars"]), update)
