"""A server as a process: it meets the coordinator, then the other server, and follows orders until it is left alone."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from threadpoolctl import threadpool_limits

from orchestrator.errors import DisagreementError, PeerLostError, ProtocolError
from orchestrator.server.base import Server
from orchestrator.transport.bootstrap import Assignment, begin
from orchestrator.transport.channel import LONGEST_MESSAGE, Channel, Position
from orchestrator.transport.door import accept, connect
from orchestrator.transport.tls import Identity
from orchestrator.wire.envelope import Keypair
from orchestrator.wire.orders import Aggregate, Order, Prepare, Settle, Setup, Submit, parse

__all__ = ["main", "next_order", "report", "serve"]


def serve(
    server: Server,
    coordinator: Channel,
    meet: Callable[[Setup], tuple[Channel, Channel]],
    timeout_sec: float,
    waiting: Callable[[], object] | None = None,
    fault: Callable[[Order], str] = lambda order: "",
    releasing: Callable[[int, dict[str, Any]], None] = lambda number, reply: None,
) -> None:
    """Follow the coordinator's orders until it closes the connection.

    Args:
        meet: makes the connections of a session, see `Server.setup`.
        timeout_sec: for each message, once the session has begun.
        waiting: waits for the next order; by default for as long as clients train, only the closing of the connection
            ends it.
        fault: why an order is not to be followed; empty: it is.
        releasing: told a round's number and reply before that is sent; raises ProtocolError where it may not be.
    """
    begun, waiting = False, waiting or coordinator.wait
    while True:
        try:
            waiting()
            # The setup holds the model, of whatever size; all later lengths follow from it.
            order = next_order(coordinator, server.longest_order if begun else LONGEST_MESSAGE)
        except PeerLostError:
            return
        if why := fault(order):
            raise coordinator.error(DisagreementError, why)
        if isinstance(order, Setup) != (not begun):
            raise coordinator.error(DisagreementError, f"gave the order '{order.kind}' out of turn")
        if isinstance(order, Setup):
            begun = True
            peer, supply = meet(order)
            server.setup(order, peer, supply)
            for channel in (coordinator, peer, supply):
                channel.end_startup(timeout_sec)
            coordinator.send_message({"type": "ready"})
        elif isinstance(order, Prepare):
            server.prepare(order)
        elif isinstance(order, Submit):
            server.upload(order)
        elif isinstance(order, Settle):
            server.settle(order)
        elif isinstance(order, Aggregate):
            reply = server.aggregate(order)
            releasing(order.round, reply)
            coordinator.send_message(reply)


def _meet(
    index: int,
    listener: socket.socket,
    assignment: Assignment,
    identity: Identity,
    position: Position,
    order: Setup,
) -> tuple[Channel, Channel]:
    """A connection to the other server for the rounds, and one beside it: to it too, or to the dealer."""
    session, timeout_sec = assignment.session, assignment.startup_timeout_sec

    def other(position: Position) -> Channel:
        if index == 0:
            return connect(order.peer, identity, session, "server 1", position, timeout_sec)
        return accept(listener, {"server 0"}, identity, session, position, timeout_sec)["server 0"]

    with listener:  # nobody else is expected
        peer, background = other(position), Position()
        if order.dealer is None:
            return peer, other(background)
        return peer, connect(order.dealer, identity, session, "dealer", background, timeout_sec)


def next_order(coordinator: Channel, longest: int) -> Order:
    """One that has come, or is coming. Raises DisagreementError for what is none, or is longer than it can be."""
    try:
        return parse(coordinator.receive_message(longest))
    except ValueError as error:
        raise coordinator.error(DisagreementError, str(error)) from None


def report(coordinator: Channel, error: ProtocolError) -> None:
    """Tell the coordinator, if it is still there, why the session has ended."""
    with suppress(ProtocolError):
        coordinator.send_message(
            {
                "type": "error",
                "kind": type(error).__name__,
                "peer": error.peer,
                "phase": error.phase,
                "round": error.round,
                "reason": error.reason,
            }
        )


def main(kind: type[Server]) -> None:
    """Run a server of this kind until the coordinator's connection closes."""
    threadpool_limits(1)  # idle threads of the matrix product would spin on the cores of the other processes
    keypair = Keypair()
    assignment, identity, listener = begin({"public_key": keypair.public_key.hex()})
    position = Position()
    session, timeout_sec = assignment.session, assignment.startup_timeout_sec
    coordinator = accept(listener, {"coordinator"}, identity, session, position, timeout_sec)["coordinator"]
    index = int(assignment.role.removeprefix("server "))
    server = kind(index, keypair, coordinator, position)
    try:
        serve(
            server, coordinator, partial(_meet, index, listener, assignment, identity, position), assignment.timeout_sec
        )
    except ProtocolError as error:
        report(coordinator, error)
        raise SystemExit(1) from None
