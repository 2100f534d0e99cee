"""What each server hands back to one client: its share of that client's own model, sealed to the client's reply key.

Parties: two servers that do not collude, a client, and the coordinator, which carries the envelopes. All semi-honest.
What each learns: the coordinator nothing, and neither does another client, as only the client's process has the
private key. The public one came inside the client's sealed uploads, so that whoever carries them cannot put another
one there. The client learns the sum of both shares, which is its model, and no more: see `aggregation.aggregate`.
Channel: sealed envelopes (`envelope`) with a purpose of their own; an answer names its run, round, slot and server.
"""

from __future__ import annotations

import numpy as np

from orchestrator.wire.envelope import ANSWER, SEAL_BYTES, Keypair, seal
from orchestrator.wire.message import Header, message_bytes, pack, unpack

__all__ = ["check_reply_key", "open_answer", "seal_answer"]


def check_reply_key(reply_key: bytes) -> None:
    """Raises ValueError for a key that nothing can be sealed to, such as a point of small order."""
    try:
        seal(b"", reply_key, ANSWER)
    except ValueError:
        raise ValueError("its reply key is none") from None


def seal_answer(share: np.ndarray, header: Header, reply_key: bytes) -> bytes:
    """The envelope for a share in Z_2^64, uint64 (d,); 8 d bytes and below 200 more. The key: a checked one."""
    return seal(pack(header, {"share": share.astype("<u8").tobytes()}, "answer"), reply_key, ANSWER)


def open_answer(envelope: bytes, keypair: Keypair, expected: Header, length: int) -> np.ndarray:
    """A server's share, uint64 (d,). Args: length: d.

    Raises:
        ValueError: with the reason, if it is damaged, has another length, or is meant for another place or round.
    """
    lengths = {"share": 8 * length}
    if len(envelope) != message_bytes(lengths) + SEAL_BYTES:
        raise ValueError(f"the answer has {len(envelope)} bytes, expected {message_bytes(lengths) + SEAL_BYTES}")
    return np.frombuffer(unpack(keypair.open(envelope, ANSWER), expected, lengths, "answer")["share"], dtype="<u8")
