"""What the coordinator tells a server to do: one type an order, checked in full before a server acts on it.

Channel: the coordinator's, authenticated and private by mutual TLS (`tls`). An order that is malformed is the
coordinator's fault and ends the session; nothing that a client can send is one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import NoneType, UnionType
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from mpc_programs.programs import PROGRAMS
from mpc_programs.rules import RULES, RoundParameters
from orchestrator.errors import SafeGNNError
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.privacy.bands import BAND_BITS, MOST_BANDS

__all__ = ["Aggregate", "Announcement", "Order", "Prepare", "Propose", "Settle", "Setup", "Submit", "parse"]

_LARGEST = 2**40
"""Of integers in orders: rounds, clients, slots."""

_LARGEST_SIZE = 2**20
"""Of a cohort and of an embedding: what servers make follows from these."""


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
class Propose(Order):
    """Judge a run's terms, and sign the key of this session if they are accepted; services alone are asked.

    Attributes:
        run: 16 bytes, fresh; that of the setup which follows.
        terms: what the run is, see `orchestrator.agreement.terms`.
        sum: of a sum beside the rounds its name; None: of the rounds.
    """

    kind = "propose"
    run: bytes
    terms: bytes
    sum: str | None


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
        accumulates: whether a round starts from what the last one released; else all start from `model`.
        bands: of the noise, see `orchestrator.privacy.bands`; empty where every round's is its own.
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
    accumulates: bool
    bands: list[int]
    engine: dict[str, str]
    model: bytes
    peer: tuple[str, int]
    dealer: tuple[str, int] | None


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
    places: list[tuple[int, int]]


@dataclass(frozen=True)
class Aggregate(Order):
    """Aggregate a round. Attributes: cohort: client numbers by slot, of all who were asked."""

    kind = "aggregate"
    round: int
    cohort: list[int]


_ORDERS: dict[str, type[Order]] = {order.kind: order for order in (Propose, Setup, Prepare, Submit, Settle, Aggregate)}
_RECORDS: tuple[type[Any], ...] = (Announcement, RoundParameters, VectorFormat)
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
    if isinstance(order, Propose) and len(order.run) != 16:
        raise ValueError("gave the order 'propose' with another run than there can be")
    if isinstance(order, Setup):
        if len(order.run) != 16 or len(order.model) % 8 or order.program not in PROGRAMS:
            raise ValueError("gave the order 'setup' with another run, model or program than there can be")
        if len(order.bands) >= MOST_BANDS or max(order.bands, default=0) >= 2**BAND_BITS:
            raise ValueError("gave the order 'setup' with bands that noise cannot have")
        if max(order.peer[1], (order.dealer or order.peer)[1]) > 65535:
            raise ValueError("gave the order 'setup' with a port that is none")
    return order


def _record(kind: type[Any], found: Any, name: str) -> Any:
    """An instance of a dataclass from its fields, exactly those, each of its type."""
    hints = _HINTS[kind]
    if not isinstance(found, dict) or found.keys() != hints.keys():
        raise ValueError(f"gave the order '{name}' with other fields than {', '.join(hints)}")
    values = {}
    for field, hint in hints.items():
        if hint in _RECORDS:
            values[field] = _record(hint, found[field], f"{name}.{field}")
        elif _fits(found[field], hint):
            values[field] = found[field]
        else:
            raise ValueError(f"gave the order '{name}' with a field '{field}' of another type or range")
    try:
        made = kind(**values)
    except SafeGNNError as error:
        raise ValueError(f"gave the order '{name}' with values that do not fit: {error}") from None
    if isinstance(made, Announcement):
        _check(made, name)
    return made


def _check(announcement: Announcement, name: str) -> None:
    """Raises ValueError for a round that cannot be, as far as the announcement alone shows it."""
    parameters, count_stddev = announcement.parameters, announcement.count_stddev
    scales = (parameters.tau, 1.0 if parameters.ratio_max is None else parameters.ratio_max)
    if parameters.rule not in RULES:
        raise ValueError(f"gave the order '{name}' with an unknown rule")
    if max(parameters.cohort, parameters.embedding, parameters.expected or 0) > _LARGEST_SIZE:
        raise ValueError(f"gave the order '{name}' with a size above {_LARGEST_SIZE}")
    if min(scales) <= 0 or min(announcement.noise_stddev, count_stddev or 0.0) < 0:
        raise ValueError(f"gave the order '{name}' with a scale or noise that is negative, or a scale of 0")
    if parameters.bound is not None and (
        parameters.bound <= 0 or parameters.ratio_max is not None or parameters.personal
    ):
        raise ValueError(f"gave the order '{name}' with a bound for clients that nothing can be checked with")
    if parameters.personal and (announcement.noise_stddev or (count_stddev, parameters.ratio_max) != (None, None)):
        raise ValueError(f"gave the order '{name}' with clipping or noise for a personal rule")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; integers count from zero, and floats are finite."""
    if isinstance(hint, UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        return isinstance(value, list | tuple) and len(value) == len(parts) and all(map(_fits, value, parts))
    if get_origin(hint) is list:
        return isinstance(value, list) and all(_fits(item, get_args(hint)[0]) for item in value)
    if get_origin(hint) is dict:
        return isinstance(value, dict) and all(isinstance(text, str) for pair in value.items() for text in pair)
    if hint is int:
        # Not isinstance, as a bool is an int.
        return type(value) is int and 0 <= value < _LARGEST
    if hint is float:
        return type(value) in (int, float) and abs(value) < math.inf
    if hint is NoneType:
        return value is None
    return isinstance(value, hint)
