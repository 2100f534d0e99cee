"""Bytes in Flower's messages.

Flower moves every record of a message as an object of its own, held whole by each process on its way. Bytes are
therefore cut into records of `PART_BYTES`. A reply is a parcel too, or says why there is none.
"""

from __future__ import annotations

from flwr.app import ConfigRecord, RecordDict

from orchestrator.errors import PeerLostError, PeerTimeoutError, ProtocolError
from orchestrator.site.framing import LONGEST

__all__ = ["PART_BYTES", "failure", "packed", "raised", "unpacked"]

PART_BYTES = 4 * 2**20

_FAILED = "failed"
_KINDS: dict[str, type[ProtocolError]] = {"lost": PeerLostError, "silent": PeerTimeoutError}
_LONGEST_REASON = 200


def packed(content: bytes) -> RecordDict:
    """Records that hold `content`. Raises ValueError where it is longer than `LONGEST`."""
    if len(content) > LONGEST:
        raise ValueError(f"a message of {len(content)} bytes; at most {LONGEST}")
    starts = range(0, len(content), PART_BYTES) or [0]
    return RecordDict({_name(k): ConfigRecord({"bytes": content[at : at + PART_BYTES]}) for k, at in enumerate(starts)})


def unpacked(records: RecordDict) -> bytes:
    """The content of a parcel. Raises ValueError for what `packed` does not make."""
    parts, total = [], 0
    for k in range(len(records)):
        record = records.get(_name(k))
        part = record.get("bytes") if isinstance(record, ConfigRecord) and len(record) == 1 else None
        if not isinstance(part, bytes) or len(part) > PART_BYTES:
            raise ValueError(f"part {k} of {len(records)} is not what a message is cut into")
        total += len(part)
        if total > LONGEST:
            raise ValueError(f"longer than {LONGEST} bytes")
        parts.append(part)
    if not parts:
        raise ValueError("an empty message")
    return b"".join(parts)


def failure(kind: str, reason: str) -> RecordDict:
    """What a node answers where it has no reply. Args: kind: "lost" or "silent"; reason: one line."""
    if kind not in _KINDS:
        raise ValueError(f"kind {kind}: expected one of {', '.join(_KINDS)}")
    return RecordDict({_FAILED: ConfigRecord({"kind": kind, "reason": reason[:_LONGEST_REASON]})})


def raised(records: RecordDict, site: str) -> ProtocolError | None:
    """The error that a node's answer stands for; None: it holds a reply, or is to be read as one.

    The reason comes from another organisation's machine: what cannot be printed in a line is left out.
    """
    said = records.get(_FAILED)
    if not isinstance(said, ConfigRecord):
        return None
    kind = _KINDS.get(str(said.get("kind")), PeerLostError)
    reason = "".join(c for c in str(said.get("reason", "")) if c.isprintable())[:_LONGEST_REASON]
    return kind(f"site {site}", "flower", 0, reason or "no reply")


def _name(part: int) -> str:
    return f"part {part}"
