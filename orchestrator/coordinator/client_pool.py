"""The simulated clients in a few processes that each host some of them.

A client's model and optimiser live in one process only. What comes back from it is what the engine's encoder made of
the update, so under the embedded engine the coordinator sees sealed envelopes. A process writes the training states
of its clients to a file when it is asked to, and the coordinator's checkpoint says which file counts for which client.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from orchestrator.client.host import Order, serve
from orchestrator.client.ledger import Account
from orchestrator.config import Config
from orchestrator.coordinator.simulated_clients import SimulatedClients
from orchestrator.errors import PeerLostError, PeerTimeoutError
from orchestrator.graphs.graph import Graph
from orchestrator.methods import method_class
from orchestrator.surroundings import check_platform, check_process, shorten_socket_paths

__all__ = ["ClientPool", "warm_up"]


def warm_up() -> Any:
    """Begin to import what client processes need, beside whatever the caller does; returns the context to start them.

    All of them are forked from one helper process that has imported torch once and runs nothing else. It ends with
    this process. Ctrl-C is for this process alone, so the helper is born with that signal blocked.

    Raises:
        ConfigError: this process, or this machine, lacks what is needed; see `orchestrator.surroundings`.
    """
    check_platform()
    check_process()
    shorten_socket_paths()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["orchestrator.client.preload"])
    resource_tracker.ensure_running()  # would itself unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the caller's script: a new process would import it, and run it again where it has no `__name__` guard."""
    main = sys.modules["__main__"]
    hidden = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    try:
        for name in hidden:
            setattr(main, name, None)
        yield
    finally:
        for name, value in hidden.items():
            setattr(main, name, value)


class ClientPool(SimulatedClients):
    """Hosts all clients; client c lives in process c mod `processes`. A context manager."""

    def __init__(
        self, graphs: Sequence[Graph], config: Config, host: Any = None, account: Account | None = None
    ) -> None:
        """Start the processes; they read their graphs while the caller goes on.

        Args:
            graphs: one a client. Every process gets all of them, so many should be `Subgraphs`; it asks for that of
                a client when this first takes part.
            config: the whole configuration.
            host: the function that runs in a process, for tests that need one to fail.
            account: of the run, for clients that keep a ledger.
        """
        from orchestrator.models import NETWORKS  # with torch, which whoever calls `warm_up` does not wait for

        context = warm_up()
        count = min(config.engine.client_processes, len(graphs))
        # Processes import the client's class by where it is, and need not know the registries that this process has.
        target = host or partial(
            serve, method=method_class(config.method.name), own=NETWORKS.get("own"), account=account
        )
        super().__init__(len(graphs), count, config)
        self._connections: list[Connection] = []
        self._processes: list[BaseProcess] = []
        try:
            for k in range(count):
                self._start(context, k, partial(target, graphs=graphs, config=config))
        except BaseException:
            self.close()
            raise

    def _start(self, context: Any, k: int, target: Callable[[Connection], None]) -> None:
        """Raises PeerLostError where the system has no room for a process more."""
        try:
            ours, theirs = context.Pipe()
            self._connections.append(ours)
            _limit_waiting(ours, self._timeout_sec)
            process = context.Process(target=target, args=(theirs,), daemon=True)
            with _without_main(), theirs:  # left open, ours would not close when the process has ended
                process.start()
        except (OSError, EOFError) as error:
            reason = f"cannot be started ({getattr(error, 'strerror', None) or type(error).__name__})"
            raise PeerLostError(self._name(k), "start", 0, reason) from None
        self._processes.append(process)

    @property
    def pids(self) -> list[int]:
        return [process.pid or 0 for process in self._processes]

    def close(self) -> None:
        """End all processes; safe to call twice."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.kill()  # what counts of its state is in files
            process.join()
        self._connections.clear()
        self._processes.clear()

    def _all(
        self,
        phase: str,
        round: int,
        orders: Mapping[int, Order],
        take: Callable[..., None] = lambda *upload: None,
    ) -> list[Any]:
        """Give every process its order; returns their answers when all are done."""
        for k, order in orders.items():
            self._send(k, order, phase, round)
        return self._answers(dict.fromkeys(orders, phase), round, take)

    def _send(self, k: int, order: Any, phase: str, round: int) -> None:
        try:
            self._connections[k].send(order)
        except BlockingIOError:
            raise self._silent(k, phase, round) from None
        except OSError:
            self._answers({k: phase}, round)  # it has gone; hear first whether it said why
            raise self._lost(k, phase, round) from None

    def _answers(self, busy: dict[int, str], round: int, take: Callable[..., None] = lambda *upload: None) -> list[Any]:
        waiting, answers = dict(busy), []
        deadline = time.monotonic() + self._timeout_sec
        while waiting:
            ready = wait([self._connections[k] for k in waiting], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise self._silent(*next(iter(waiting.items())), round)
            for k in [k for k in waiting if self._connections[k] in ready]:
                try:
                    kind, answer = self._connections[k].recv()
                except BlockingIOError:
                    raise self._silent(k, waiting[k], round) from None
                except (EOFError, OSError):
                    raise self._lost(k, waiting[k], round) from None
                except Exception as error:
                    reason = f"sent what cannot be read ({type(error).__name__})"
                    raise PeerLostError(self._name(k), waiting[k], round, reason) from None
                if kind == "refused":
                    raise answer
                if kind == "failed":
                    raise PeerLostError(self._name(k), waiting[k], round, answer)
                if kind == "upload":
                    take(*answer)
                    continue
                answers.append(answer)
                del waiting[k]
        return answers

    def _silent(self, k: int, phase: str, round: int) -> PeerTimeoutError:
        reason = f"no answer within {self._timeout_sec:g} s (engine.training_timeout_sec)"
        return PeerTimeoutError(self._name(k), phase, round, reason)

    def _lost(self, k: int, phase: str, round: int) -> PeerLostError:
        self._processes[k].join(timeout=1.0)  # the pipe closes before there is a status
        return PeerLostError(
            self._name(k), phase, round, f"the process ended with status {self._processes[k].exitcode}"
        )


def _limit_waiting(connection: Connection, seconds: float) -> None:
    """Let reads and writes of a pipe end in BlockingIOError where the other side stops in the middle of a message."""
    limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    with socket.socket(fileno=os.dup(connection.fileno())) as pipe:  # the limits belong to what both descriptors share
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            pipe.setsockopt(socket.SOL_SOCKET, option, limit)
