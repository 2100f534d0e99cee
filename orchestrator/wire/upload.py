"""What a client hands to each server: shares of its scores and of its update, or better than shares of the update.

Parties: a client and two servers that do not collude; all semi-honest, and no client colludes with a server.
What each learns: a server receives a seed and, server 1, what its shares of the update, of products and of scores are
that server 0's seed does not give: uniform to whoever lacks that seed. Together both parts determine the client's data.
Channel: sealed envelopes (`orchestrator.wire.envelope`); the upload names its run, round, slot and server.

With the program "assisted" the client supplies the correlation that lets the servers multiply its update by a secret
scalar with one opened ring element, whatever d is (client-aided model of SecureML, section "client-aided offline"):

    a uniform in Z_2^64;  <Delta>, <a>, <a * Delta> shared.  With e = s - a opened,  <s Delta> = e <Delta> + <a Delta>.

e shows nothing of s: a is uniform, and its share at the other server is independent of all that a server holds.

Under a personal rule the update meets q secret scalars s_i, one for each client's model. It then comes with q scalars
a_i, independent ones: the e_i = s_i - a_i are opened, and with one a for all of them would show how the s_i differ.

The other programs need no help from the client and take plain shares of Delta in Z_2^64 or Z_2^128.

Both halves carry one random tag. Its hash, with that of the reply key, is what the servers compare before they use an
upload: halves of two uploads, or with two keys, are noticed. The hash shows nothing: the other server holds what is
hashed, or does not use it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mpc_programs.rules import RoundParameters, score_names, score_widths
from orchestrator.mpc.fixed_point import encode_scalars
from orchestrator.mpc.prg import SEED_BYTES, Prg, fresh_seed
from orchestrator.mpc.ring import from_bytes128, pack_bits
from orchestrator.wire.envelope import SEAL_BYTES
from orchestrator.wire.message import Header, message_bytes, pack, unpack
from orchestrator.wire.update import CARRIERS, Correlated, complement

__all__ = ["DIGEST_BYTES", "KEY_BYTES", "SIGNATURE_BYTES", "Layout", "Upload", "share_update", "unpack_upload"]

KEY_BYTES = 32
"""Length of a reply key."""

TAG_BYTES = 16

DIGEST_BYTES = 32

SIGNATURE_BYTES = 64
"""Of Ed25519."""

_COMMON = ("tag", "reply_key")
"""The fields that are the same at both servers."""


@dataclass(frozen=True)
class Layout:
    """What an upload of a round holds. It follows from what is public, so that the length of each upload is known.

    Attributes:
        program: "assisted", "scalar-first" or "faithful".
        parameters: d.
        scores: k, scalars that the client shares: the rule's scores, then the norm ratio where updates are clipped,
            then the bit that is counted, where there is one.
        factors: n, how many secret scalars the update meets; more than one with "assisted" only.
        answered: whether the upload brings a reply key.
        widths: with how many bits each of the k scalars is shared, where clients are not trusted; empty where they are,
            and scalars are shared in Z_2^128.
        signed: whether the client's signature stands behind the upload, inside the envelope.
    """

    program: str
    parameters: int
    scores: int
    factors: int = 1
    answered: bool = False
    widths: tuple[int, ...] = ()
    signed: bool = False

    @classmethod
    def of_round(
        cls, parameters: RoundParameters, program: str, length: int, counted: bool, signed: bool = False
    ) -> Layout:
        """For the parameters of a round. Args: length: d; counted: whether norms within the clip bound are counted."""
        scores = len(score_names(parameters)) + counted
        widths = () if parameters.bound is None else (*score_widths(parameters), *[1] * counted)
        return cls(program, length, scores, parameters.models, parameters.personal, widths, signed)

    def fields(self, server: int) -> dict[str, int]:
        """The length of each field of one server's upload, bytes, in their order."""
        lengths = {"tag": TAG_BYTES, "seed": SEED_BYTES}
        if self.answered:
            lengths["reply_key"] = KEY_BYTES
        if server == 1:
            lengths |= CARRIERS[self.program].fields(self.parameters, self.factors)
            lengths["scalars"] = (sum(self.widths) + 7) // 8 if self.widths else 16 * self.scores
        return lengths

    def envelope_bytes(self, server: int) -> int:
        """The exact length of the sealed upload to one server."""
        return message_bytes(self.fields(server)) + SIGNATURE_BYTES * self.signed + SEAL_BYTES


@dataclass(frozen=True)
class Upload:
    """One server's part, expanded.

    Attributes:
        scalars: share of the k scores, Z_2^128 at `SCALAR_BITS`.
        update: `Correlated`, or a share of Delta at `update_bits`, of d elements: a uint64 array for the program
            "scalar-first", a list in Z_2^128 for "faithful".
        digest: SHA-256 of what both servers must hold alike.
        reply_key: the public key that an answer is sealed to; empty where none is expected.
        bits: where clients are not trusted, the XOR share of the scores' bits, in one integer; `scalars` is then empty
            until the servers have made numbers of them.
        witness: of such an upload, random rows times its share of Delta, and of a * Delta; uint64, each (rows,).
    """

    scalars: list[int] = field(repr=False)
    update: Correlated | np.ndarray | list[int] = field(repr=False)
    digest: bytes = field(default=b"", repr=False)
    reply_key: bytes = field(default=b"", repr=False)
    bits: int = field(default=0, repr=False)
    witness: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)


def share_update(
    update: np.ndarray,
    scores: Sequence[float],
    headers: Sequence[Header],
    layout: Layout,
    reply_key: bytes = b"",
    noise: np.ndarray | None = None,
) -> tuple[bytes, bytes]:
    """The packed uploads for server 0 and server 1.

    Args:
        update: encoded Delta; uint64, shape (d,).
        scores: the k numbers, in the order of `Layout.scores`.
        headers: one for each server.
        reply_key: the client's public key for its answer, where the layout has one.
        noise: at the scale of the products, uint64, shape (d,), where clients add it; with "assisted" only.

    Bytes in all: 8 (n + 1) d for "assisted", 8 d for "scalar-first", 16 d for "faithful"; 16 k and below 300 more.
    """
    seeds = (fresh_seed(), fresh_seed())
    d, k = layout.parameters, layout.scores
    if len(update) != d or len(scores) != k or len(reply_key) != KEY_BYTES * layout.answered:
        raise ValueError(f"Expected d={d}, k={k} and {'a' if layout.answered else 'no'} reply key, as the layout has.")
    tag, prg = secrets.token_bytes(TAG_BYTES), Prg(seeds[0])
    parts = CARRIERS[layout.program].split(update, layout.factors, prg, Prg(seeds[1]))
    if noise is not None:
        parts = CARRIERS[layout.program].blur(parts, noise)
    # After the update's elements: both ends read the stream in one order.
    if layout.widths:
        parts["scalars"] = _masked_bits(scores, layout, prg).to_bytes((sum(layout.widths) + 7) // 8, "little")
    else:
        parts["scalars"] = complement(encode_scalars(scores), prg.ring128(k))
    packed = []
    for server, header in enumerate(headers):
        content = {"tag": tag, "seed": seeds[server], "reply_key": reply_key, **parts}
        packed.append(pack(header, {name: content[name] for name in layout.fields(server)}, "upload"))
    return packed[0], packed[1]


def unpack_upload(data: bytes, expected: Header, layout: Layout) -> Upload:
    """Parse and expand one server's part.

    Raises:
        ValueError: with the reason, if it has another length, or is meant for another run, round, slot, client or
            server. Whatever has the right length and header is an upload: any bytes are shares of something.
    """
    parts = unpack(data, expected, layout.fields(expected.server), "upload")
    prg, k, first = Prg(bytes(parts["seed"])), layout.scores, expected.server == 0
    digest = hashlib.sha256()
    for name in _COMMON:
        digest.update(parts.get(name, b""))
    update = CARRIERS[layout.program].expand(parts, layout.parameters, layout.factors, prg, first)
    scalars: list[int] = []
    bits = 0
    if layout.widths:
        total = sum(layout.widths)
        bits = pack_bits(prg.bits(total)) if first else int.from_bytes(parts["scalars"], "little") & (1 << total) - 1
    else:
        scalars = prg.ring128(k) if first else from_bytes128(parts["scalars"])
    return Upload(scalars, update, digest.digest(), bytes(parts.get("reply_key", b"")), bits)


def _masked_bits(scores: Sequence[float], layout: Layout, prg: Prg) -> int:
    """Server 1's share of the scores' bits, in units of 2^-32; the upper end of a range is one unit less."""
    bits = place = 0
    for score, width in zip(scores, layout.widths, strict=True):
        bits |= min(encode_scalars([score])[0], (1 << width) - 1) << place
        place += width
    return bits ^ pack_bits(prg.bits(place))
