"""What the coordinator tells a server to do: one type an order, checked in full before a server acts on it.

Channel: the coordinator's, authenticated and private by mutual TLS (`tls`). An order that is malformed is the
coordinator's fault and ends the session; nothing that a client can send is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from mpc_programs.programs import PROGRAMS
from mpc_programs.rules import RULES, RoundParameters
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.privacy.bands import BAND_BITS, MOST_BANDS
from orchestrator.wire.records import record

__all__ = ["Aggregate", "Announcement", "Order", "Prepare", "Propose", "Settle", "Setup", "Submit", "parse"]

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
    """

    kind = "propose"
    run: bytes
    terms: bytes


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


def parse(message: Mapping[str, Any]) -> Order:
    """The order in a message. Raises ValueError, naming the field, where it is none that a server can act on."""
    content = dict(message)
    kind = _ORDERS.get(str(content.pop("type", None)))
    if kind is None:
        raise ValueError("gave an unknown order")
    try:
        order: Order = record(kind, content, kind.kind)
    except ValueError as error:
        raise ValueError(f"gave the order {error}") from None
    if isinstance(order, Setup | Prepare):
        _check(order.announcement, order.kind)
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
