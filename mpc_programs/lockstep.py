"""Run independent protocol chains in lock-step, so that their openings share network rounds.

A protocol is a coroutine. Where two servers must swap masked values it awaits ``exchange(payload)`` and gets the
peer's payload of the same length. ``gather`` advances several coroutines together: the payloads that they are
waiting to swap become one payload, so a round costs one message however many chains take part. A backend that
never exchanges anything (float64, MP-SPDZ at compile time) runs the same coroutines to their end at once.

This is a scheduler of forty lines rather than asyncio: the order is fixed by the program, which both servers must
agree on to the byte, and one step costs a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any

__all__ = ["Protocol", "exchange", "gather", "run", "run_locally", "run_pair"]

Protocol = Coroutine[bytes, bytes | None, Any]
"""A coroutine that yields payloads for the peer and is sent the peer's; None starts it."""


@coroutine
def exchange(payload: bytes) -> Generator[bytes, bytes, bytes]:
    """Hand `payload` to the peer and receive its payload of the same length."""
    received = yield payload
    if len(received) != len(payload):
        raise ValueError(f"expected {len(payload)} bytes from the peer, got {len(received)}")
    return received


@coroutine
def gather(*protocols: Protocol) -> Generator[bytes, bytes, tuple[Any, ...]]:
    """Advance all coroutines in lock-step; the tuple of their results."""
    results: list[Any] = [None] * len(protocols)
    answers: dict[int, bytes | None] = dict.fromkeys(range(len(protocols)))
    while True:
        payloads = {}
        for index, answer in answers.items():
            try:
                payloads[index] = protocols[index].send(answer)
            except StopIteration as done:
                results[index] = done.value
        if not payloads:
            return tuple(results)
        received = yield from exchange(b"".join(payloads.values()))
        answers, end = {}, 0
        for index, payload in payloads.items():
            start, end = end, end + len(payload)
            answers[index] = received[start:end]


def run(protocol: Protocol, swap: Callable[[bytes], bytes]) -> Any:
    """Run a protocol to its end; `swap` sends a payload and returns the peer's. Returns the protocol's result."""
    try:
        payload = protocol.send(None)
        while True:
            payload = protocol.send(swap(payload))
    except StopIteration as done:
        return done.value


def run_locally(protocol: Protocol) -> Any:
    """Run a protocol of a backend that needs no peer."""

    def refuse(payload: bytes) -> bytes:
        raise RuntimeError("this backend has no peer to exchange with")

    return run(protocol, refuse)


def run_pair(first: Protocol, second: Protocol) -> tuple[tuple[Any, Any], int, int]:
    """Run both sides of a protocol in one process, for tests and for counting what it costs.

    Returns:
        Both results, the rounds, and the bytes that each side sent.

    Raises:
        RuntimeError: the sides do not run the same program.
    """
    results: list[Any] = [None, None]
    sides, rounds, sent = (first, second), 0, 0

    def step(received: list[bytes | None]) -> list[bytes]:
        payloads = []
        for k, side in enumerate(sides):
            try:
                payloads.append(side.send(received[k]))
            except StopIteration as done:
                results[k] = done.value
        if len(payloads) == 1 or len(set(map(len, payloads))) > 1:
            raise RuntimeError("one side waits for a message that the other never sends")
        return payloads

    payloads = step([None, None])
    while payloads:
        rounds, sent = rounds + 1, sent + len(payloads[0])
        payloads = step([payloads[1], payloads[0]])
    return (results[0], results[1]), rounds, sent
