"""What stands in every envelope: which place in which round it is for, and fields of bytes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import msgpack

__all__ = ["Header", "pack", "unpack"]

_VERSION = 1


@dataclass(frozen=True)
class Header:
    """Which place in which round a message is for.

    Attributes:
        run: 16 random bytes, fresh for every start of the servers.
        round: global round, from 1.
        slot: position in the cohort, from 0.
        client: the client's number.
        server: 0 or 1, the one that an upload is for or that an answer comes from.
    """

    run: bytes
    round: int
    slot: int
    client: int
    server: int


def pack(header: Header, fields: dict[str, bytes]) -> bytes:
    """Serialise."""
    return msgpack.packb({"version": _VERSION, **asdict(header), **fields})


def unpack(data: bytes, expected: Header, kind: str) -> dict[str, Any]:
    """The fields, which are still to be checked.

    Args:
        kind: what the message is, for errors.

    Raises:
        ValueError: with the reason, if it is malformed or meant for another run, round, slot, client or server.
    """
    wanted = asdict(expected)
    try:
        fields = msgpack.unpackb(data)
        found = {name: fields[name] for name in wanted}
        version = fields["version"]
    except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
        raise ValueError(f"the {kind} is not in the expected format") from error
    if version != _VERSION:
        raise ValueError(f"the {kind} has format {version!r}, expected {_VERSION}")
    for name, value in wanted.items():
        if found[name] != value:
            detail = "" if name == "run" else f" {found[name]!r} instead of {value!r}"
            raise ValueError(f"the {kind} is meant for another {name}{detail}")
    return fields
