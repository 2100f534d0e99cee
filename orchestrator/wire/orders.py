"""What the orchestrator tells a server to do: one type an order, checked in full before a server acts on it.

Channel: the orchestrator's, authenticated and private by mutual TLS (`tls`). An order that is malformed is the
orchestrator's fault and ends the session; nothing that a client can send is one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import NoneType, UnionType
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from mpc_programs.rules import PROGRAMS, RULES, RoundParameters
from orchestrator.mpc.fixed_point import VectorFormat

__all__ = ["Address", "Aggregate", "Announcement", "Order", "Prepare", "Settle", "Setup", "Submit", "parse"]

_LARGEST = 2**40
"""Of integers in orders: rounds, clients, sizes."""


@dataclass(frozen=True)
class Address:
    """Where somebody listens."""

    host: str
    port: int


@dataclass(frozen=True)
class Announcement:
    """What the servers must know, and hold alike, about a round before its uploads.

    Attributes:
        parameters: of the round, for as many clients as are asked.
        noise_stddev, count_stddev: as in `orchestrator.coordinator.engine.Terms`.
    """

    parameters: RoundParameters
    noise_stddev: float
    count_stddev: float | None


@dataclass(frozen=True)
class Order:
    """One of the orders below."""

    kind: ClassVar[str]

    def message(self) -> dict[str, Any]:
        """As it is sent; the inverse of `parse`."""
        return {"type": self.kind, **asdict(self)}


@dataclass(frozen=True)
class Setup(Order):
    """The session's beginning.

    Attributes:
        run: 16 bytes, fresh.
        program: what is done with the vectors.
        plan: digest of the run's plan, which both servers must have been given alike.
        announcement: the usual one.
        min_cohort: a round with fewer clients is not released.
        vectors: the format.
        engine: what the engine's own servers must know.
        model: the public model, uint64 (d,) at `vectors.model_bits`, little-endian.
        peer: of server 1.
        dealer: None where there is none.
    """

    kind = "setup"
    run: bytes
    program: str
    plan: str
    announcement: Announcement
    min_cohort: int
    vectors: VectorFormat
    engine: dict[str, str]
    model: bytes
    peer: Address
    dealer: Address | None


@dataclass(frozen=True)
class Prepare(Order):
    """Begin with what a coming round needs."""

    kind = "prepare"
    round: int
    announcement: Announcement


@dataclass(frozen=True)
class Submit(Order):
    """Take one client's sealed upload."""

    kind = "upload"
    round: int
    slot: int
    client: int
    envelope: bytes


@dataclass(frozen=True)
class Settle(Order):
    """Agree with the other server on the uploads for these places, (slot, client), and absorb those that both hold."""

    kind = "settle"
    round: int
    places: list[list[int]]


@dataclass(frozen=True)
class Aggregate(Order):
    """Aggregate a round. Attributes: cohort: client numbers by slot, of all who were asked."""

    kind = "aggregate"
    round: int
    cohort: list[int]


_ORDERS: dict[str, type[Order]] = {order.kind: order for order in (Setup, Prepare, Submit, Settle, Aggregate)}
_RECORDS: tuple[type[Any], ...] = (Address, Announcement, RoundParameters, VectorFormat)
_HINTS: dict[type[Any], dict[str, Any]] = {kind: get_type_hints(kind) for kind in (*_ORDERS.values(), *_RECORDS)}
for _hints in _HINTS.values():
    _hints.pop("kind", None)  # no field


def parse(message: Mapping[str, Any]) -> Order:
    """The order in a message. Raises ValueError, naming the field, where it is none that a server can act on."""
    content = dict(message)
    kind = _ORDERS.get(str(content.pop("type", None)))
    if kind is None:
        raise ValueError("gave an unknown order")
    order: Order = _record(kind, content, kind.kind)
    if isinstance(order, Setup):
        if len(order.run) != 16 or len(order.model) % 8 or order.program not in PROGRAMS:
            raise ValueError("gave the order 'setup' with another run, model or program than there can be")
    elif isinstance(order, Settle) and any(len(place) != 2 for place in order.places):
        raise ValueError("gave the order 'settle' with a place that is no slot and client")
    return order


def _record(kind: type[Any], found: Any, name: str) -> Any:
    """An instance of a dataclass from its fields, exactly those, each of its type."""
    hints = _HINTS[kind]
    if not isinstance(found, dict) or found.keys() != hints.keys():
        raise ValueError(f"gave the order '{name}' with other fields than {', '.join(hints)}")
    values = {}
    for field, hint in hints.items():
        record = next((part for part in (hint, *get_args(hint)) if part in _RECORDS), None)
        if record is not None and (found[field] is not None or not _fits(None, hint)):
            values[field] = _record(record, found[field], f"{name}.{field}")
        elif _fits(found[field], hint):
            values[field] = found[field]
        else:
            raise ValueError(f"gave the order '{name}' with a field '{field}' of another type or range")
    if kind is RoundParameters and (values["rule"] not in RULES or values["tau"] == 0):
        raise ValueError(f"gave the order '{name}' with an unknown rule or tau = 0")
    return kind(**values)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; integers count from zero, and floats are finite."""
    if isinstance(hint, UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if get_origin(hint) is list:
        return isinstance(value, list) and all(_fits(item, get_args(hint)[0]) for item in value)
    if get_origin(hint) is dict:
        return isinstance(value, dict) and all(isinstance(text, str) for pair in value.items() for text in pair)
    if hint is int:
        return type(value) is int and 0 <= value < _LARGEST
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    if hint is NoneType:
        return value is None
    return hint is Any or isinstance(value, hint)
