"""Correlations of the coming round, made by a thread of their own while clients train and uploads arrive.

What is made serves one round, is handed out once, and lives in memory only: a process that ends, for whatever reason,
takes it along, so a resumed run can never use it again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from orchestrator.engines.embedded.preprocessing import Batch

__all__ = ["Pool", "Prepared"]


@dataclass(frozen=True)
class Prepared:
    """One round's correlations, and what making them cost: seconds, and bytes that this server sent or was dealt."""

    batch: Batch
    seconds: float
    bytes: int


class Pool:
    """Makes batches in the order in which they are asked for, which must be the same at both servers."""

    def __init__(self, make: Callable[[int], Prepared]) -> None:
        """Args: make: makes the batch of a round, with the other server or a dealer; called in the pool's thread."""
        self._make = make
        self._orders: queue.SimpleQueue[tuple[int, Future[Prepared]]] = queue.SimpleQueue()
        self._batches: dict[int, Future[Prepared]] = {}
        # A daemon: it may be waiting for a peer when the server has already found the round lost.
        threading.Thread(target=self._work, name="preprocessing", daemon=True).start()

    def fill(self, round: int) -> None:
        """Begin to make the batch of a round; returns at once."""
        self._batches[round] = Future()
        self._orders.put((round, self._batches[round]))

    def take(self, round: int) -> tuple[Prepared, float]:
        """The batch of a round, and the seconds that it had to be waited for. One not asked for yet is made now.

        Raises:
            ProtocolError: what went wrong while it was made.
        """
        started = time.perf_counter()
        if round not in self._batches:
            self.fill(round)
        prepared = self._batches.pop(round).result()
        return prepared, time.perf_counter() - started

    def _work(self) -> None:
        while True:
            round, future = self._orders.get()
            try:
                future.set_result(self._make(round))
            except BaseException as error:
                future.set_exception(error)
