"""What a coming round needs, made by a thread of its own while clients train: correlations, and a server's noise.

What is made serves one round, is handed out once, and lives in memory only: a process that ends, for whatever reason,
takes it along, so a resumed run can never use it again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from orchestrator.mpc.offline.correlations import Batch

__all__ = ["Key", "Made", "Pool", "Prepared"]

Key = TypeVar("Key")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Prepared:
    """One round's correlations, and what making them cost: seconds, and bytes that this server sent or was dealt."""

    batch: Batch = field(repr=False)
    seconds: float
    bytes: int


class Pool(Generic[Key, Made]):
    """Makes things in the order in which they are asked for, which must be the same at both servers."""

    def __init__(self, make: Callable[[Key], Made], name: str) -> None:
        """
        Args:
            make: makes what a key stands for: a round, and what its making depends on; called in the pool's thread.
            name: of the thread.
        """
        self._make = make
        self._orders: queue.SimpleQueue[tuple[Key, Future[Made]] | None] = queue.SimpleQueue()
        self._made: dict[Key, Future[Made]] = {}
        # A daemon: it may be waiting for a peer when the server has already found the round lost.
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def fill(self, key: Key) -> None:
        """Begin to make something; returns at once."""
        self._made[key] = Future()
        self._orders.put((key, self._made[key]))

    def take(
        self, key: Key, every_sec: float | None = None, meanwhile: Callable[[], None] = lambda: None
    ) -> tuple[Made, float]:
        """What was made, and the seconds that it had to be waited for. What was not asked for yet is made now.

        Args:
            every_sec, meanwhile: what is done again and again while it is waited for.

        Raises:
            ProtocolError: what went wrong while it was made.
        """
        started = time.perf_counter()
        if key not in self._made:
            self.fill(key)
        future = self._made.pop(key)
        while not wait([future], every_sec).done:
            meanwhile()
        made = future.result()
        return made, time.perf_counter() - started

    def forget(self, done: Callable[[Key], bool]) -> None:
        """Let go of what was asked for and nobody takes any more: a round may have ended without it."""
        self._made = {key: made for key, made in self._made.items() if not done(key)}

    def close(self) -> None:
        """Let the thread end, after what it is making; nothing is handed out any more."""
        self._made = {}
        self._orders.put(None)

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            key, future = order
            try:
                future.set_result(self._make(key))
            except BaseException as error:  # whatever it is: who takes it would else wait for ever
                future.set_exception(error)
