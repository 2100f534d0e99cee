"""What the coordinator asks of a site, and what it hears: one type a message, checked in full before it is acted on.

Parties: a coordinator, which may lie, and a site. What each learns: the coordinator what a reply says, and every type
below says what that is; the site models and sums, which are public. Channel: whatever carries bytes from one to the
other (`orchestrator.coordinator.site_transport`): who may speak to a site is that channel's part, what is done for it
is `orchestrator.site.consent`'s. Messages are msgpack maps with exactly the fields of their type, never pickles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import ClassVar

import msgpack
import numpy as np

from orchestrator.wire.records import record

__all__ = [
    "Announce",
    "Begin",
    "Contribute",
    "Deliver",
    "Done",
    "Evaluate",
    "Evaluated",
    "Failed",
    "HearTotal",
    "Hello",
    "Message",
    "Refused",
    "Train",
    "Upload",
    "Welcome",
    "one_line",
    "parse_reply",
    "parse_request",
    "vector",
]

_LONGEST_TEXT = 400


@dataclass(frozen=True)
class Message:
    """One of the messages below."""

    kind: ClassVar[str]

    def to_bytes(self) -> bytes:
        """As it is sent; the inverse of `parse_request` and `parse_reply`."""
        return msgpack.packb({"type": self.kind, **asdict(self)})


@dataclass(frozen=True)
class Hello(Message):
    """Who are you? Answered by `Welcome`."""

    kind = "hello"


@dataclass(frozen=True)
class Begin(Message):
    """Do you take part in this run? Answered by `Done` or `Refused`. Attributes: offer: `Offer.to_bytes`."""

    kind = "begin"
    offer: bytes = field(repr=False)


@dataclass(frozen=True)
class Announce(Message):
    """A round is about to be released that you are not asked for; for the site's ledger."""

    kind = "announce"
    offer: bytes = field(repr=False)
    round: int


@dataclass(frozen=True)
class Train(Message):
    """Train from a released model; answered by `Upload`.

    Attributes:
        slot, cohort: the site's place, and how many are asked.
        clip_norm: C of the round.
        model: float64, little-endian (d,).
    """

    kind = "train"
    offer: bytes = field(repr=False)
    round: int
    slot: int
    cohort: int
    clip_norm: float | None
    model: bytes = field(repr=False)


@dataclass(frozen=True)
class Contribute(Message):
    """Add your numbers to a secure sum; answered by `Upload`.

    Attributes:
        offer: of the run's rounds.
        sum: the offer of the sum's own, whose terms name it.
        model: which is evaluated, where tables of counts are added up; else empty.
    """

    kind = "contribute"
    offer: bytes = field(repr=False)
    sum: bytes = field(repr=False)
    round: int
    slot: int
    cohort: int
    model: bytes = field(repr=False)


@dataclass(frozen=True)
class HearTotal(Message):
    """What a sum came to; float64, little-endian."""

    kind = "total"
    offer: bytes = field(repr=False)
    name: str
    total: bytes = field(repr=False)


@dataclass(frozen=True)
class Deliver(Message):
    """Open what both servers sealed to you. Attributes: answers: of server 0 and server 1."""

    kind = "deliver"
    offer: bytes = field(repr=False)
    round: int
    slot: int
    answers: tuple[bytes, bytes] = field(repr=False)


@dataclass(frozen=True)
class Evaluate(Message):
    """Say of a model what your own nodes say, in plain numbers; answered by `Evaluated` where the site allows it."""

    kind = "evaluate"
    offer: bytes = field(repr=False)
    round: int
    model: bytes = field(repr=False)
    own: bool


@dataclass(frozen=True)
class Welcome(Message):
    """Who a site is, and the shape of its data: what a network's size follows from, and of no person anything.

    Attributes:
        consortium: digest of its roster.
        version: of this package.
        columns: digest of the features' names, in their order; empty where they have none.
    """

    kind = "welcome"
    name: str
    consortium: str
    version: str
    features: int
    classes: int
    groups: int
    columns: str


@dataclass(frozen=True)
class Done(Message):
    """It is done, or there is nothing against it."""

    kind = "done"


@dataclass(frozen=True)
class Upload(Message):
    """Two envelopes, each for one server alone."""

    kind = "upload"
    envelopes: tuple[bytes, bytes] = field(repr=False)


@dataclass(frozen=True)
class Evaluated(Message):
    """What `LocalMethod.evaluate` says: counts of validation and test nodes, in the order of a table's cells, and
    figures, None where there is none."""

    kind = "evaluated"
    val: list[int] = field(repr=False)
    test: list[int] = field(repr=False)
    figures: dict[str, float | None] = field(repr=False)


@dataclass(frozen=True)
class Refused(Message):
    """The site takes no part in this."""

    kind = "refused"
    reason: str


@dataclass(frozen=True)
class Failed(Message):
    """Something went wrong. Attributes: where: in which file and line, but not what was said: that may hold data."""

    kind = "failed"
    where: str


def _by_kind(*types: type[Message]) -> Mapping[str, type[Message]]:
    return {each.kind: each for each in types}


_REQUESTS = _by_kind(Hello, Begin, Announce, Train, Contribute, HearTotal, Deliver, Evaluate)
_REPLIES = _by_kind(Welcome, Done, Upload, Evaluated, Refused, Failed)


def parse_request(data: bytes) -> Message:
    """Raises ValueError in one line, naming the field, where it is none."""
    return _parsed(data, _REQUESTS, "request")


def parse_reply(data: bytes) -> Message:
    """Raises ValueError in one line, naming the field, where it is none. Its text is fit to be printed."""
    reply = _parsed(data, _REPLIES, "reply")
    for name, value in asdict(reply).items():
        if isinstance(value, str) and value != one_line(value):
            raise ValueError(f"the reply '{reply.kind}' with a field '{name}' that is no line of text")
    return reply


def _parsed(data: bytes, types: Mapping[str, type[Message]], what: str) -> Message:
    try:
        content = msgpack.unpackb(data)
    except Exception:  # malformed bytes make the library raise whatever it likes
        raise ValueError(f"the {what} is no msgpack") from None
    if not isinstance(content, dict) or not isinstance(kind := content.pop("type", None), str) or kind not in types:
        raise ValueError(f"the {what} is of no known type")
    try:
        return record(types[kind], content, kind)
    except ValueError as error:
        raise ValueError(f"the {what} {error}") from None


def vector(data: bytes, length: int, what: str) -> np.ndarray:
    """Float64 (length,) from little-endian bytes.

    Raises:
        ValueError: there are more or fewer, or one is NaN or infinite.
    """
    if len(data) != 8 * length:
        raise ValueError(f"{what} of {len(data)} bytes, expected {8 * length}")
    numbers = np.frombuffer(data, dtype="<f8").astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError(f"{what} with NaN or infinity")
    return numbers


def one_line(text: str) -> str:
    """As much of a text as fits into a message and on a terminal."""
    line = " ".join(text.split())[:_LONGEST_TEXT].strip()
    return "".join(character if character.isprintable() else "?" for character in line)
