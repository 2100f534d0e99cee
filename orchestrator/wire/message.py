"""The layout of whatever is sealed: a header that says which place in which round it is for, then fields of bytes.

The layout is fixed: format, header, fields, one after the other, without names or lengths. How long each field is
follows from what is public about the round, so a reader knows the exact length of a message before it opens it, and
there is nothing in it to interpret. Integers are little-endian.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import accumulate
from operator import attrgetter
from struct import Struct
from typing import Literal

__all__ = ["HEADER_BYTES", "Header", "Kind", "Place", "message_bytes", "pack", "unpack"]

Kind = Literal["upload", "answer"]

_FORMATS: dict[Kind, bytes] = {"upload": b"SGNN-U 3", "answer": b"SGNN-A 2"}
"""What a message is, and the version of its layout: 8 bytes at its beginning."""

_HEADER = Struct("<8s16sQQQQ")  # as long as a number of words, so that vectors behind it are aligned

HEADER_BYTES = _HEADER.size


@dataclass(frozen=True)
class Place:
    """Whose update of which round.

    Attributes:
        round: global round, from 1.
        slot: position in the cohort, from 0.
        client: the client's number.
    """

    round: int
    slot: int
    client: int

    def __str__(self) -> str:
        return f"round {self.round}, client {self.client}"

    def header(self, run: bytes, server: int) -> Header:
        """Of a message to or from a server in this run."""
        return Header(run, self.round, self.slot, self.client, server)


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


_NAMES = tuple(field.name for field in fields(Header))
_place = attrgetter(*_NAMES)


def message_bytes(lengths: Mapping[str, int]) -> int:
    """How long a message with fields of these lengths is."""
    return HEADER_BYTES + sum(lengths.values())


def pack(header: Header, content: Mapping[str, bytes], kind: Kind) -> bytes:
    """Header and fields, in their order."""
    return b"".join([_HEADER.pack(_FORMATS[kind], *_place(header)), *content.values()])


def unpack(data: bytes, expected: Header, lengths: Mapping[str, int], kind: Kind) -> dict[str, memoryview]:
    """The fields by name, as views of `data`.

    Args:
        lengths: of the fields, in bytes, in their order.

    Raises:
        ValueError: with the reason, if the message has another length or format, or is meant for another run, round,
            slot, client or server.
    """
    if len(data) != message_bytes(lengths):
        raise ValueError(f"the {kind} has {len(data)} bytes, expected {message_bytes(lengths)}")
    found, *place = _HEADER.unpack_from(data)
    if found != _FORMATS[kind]:
        raise ValueError(f"the {kind} has another format than {_FORMATS[kind].decode()!r}")
    for name, value, wanted in zip(_NAMES, place, _place(expected), strict=True):
        if value != wanted:
            detail = "" if name == "run" else f" {value} instead of {wanted}"
            raise ValueError(f"the {kind} is meant for another {name}{detail}")
    ends = list(accumulate(lengths.values(), initial=HEADER_BYTES))
    view = memoryview(data)
    return {name: view[start:end] for name, start, end in zip(lengths, ends, ends[1:], strict=False)}
