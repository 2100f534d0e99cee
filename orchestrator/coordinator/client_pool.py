"""The simulated clients: a few processes that each host some of them.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.client.host import (
    Announce,
    Ask,
    Contribute,
    Deliver,
    Evaluate,
    Hear,
    HearTotal,
    Order,
    Restore,
    Reveal,
    Save,
    Train,
    serve,
)
from orchestrator.client.interface import Decoder, Encoder
from orchestrator.client.ledger import Account
from orchestrator.client.summands import Summand
from orchestrator.config import Config
from orchestrator.errors import PeerLostError, PeerTimeoutError, SafeGNNError
from orchestrator.graphs.graph import Graph
from orchestrator.methods import method_class
from orchestrator.surroundings import check_platform, check_process, shorten_socket_paths

__all__ = ["ClientPool", "Trained", "warm_up"]


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


@dataclass(frozen=True)
class Trained:
    """What came back from one cohort besides its uploads.

    Attributes:
        audits: the plaintext uploads by slot where asked for, else empty.
        missing: by slot, why a client has no upload: its training failed, or it refused to encode its update.
        seconds: from the order to the last answer.
    """

    audits: dict[int, Any] = field(repr=False)
    missing: dict[int, SafeGNNError]
    seconds: float


class ClientPool:
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
        self._timeout_sec, self._counting = config.engine.training_timeout_sec, config.privacy.ledger is not None
        self._members: list[list[int]] = [list(range(k, len(graphs), count)) for k in range(count)]
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

    def restore(self, states: Mapping[int, Path]) -> None:
        """Give clients the training state of a checkpoint. Raises RunError for a file that cannot be read."""
        files = [{c: states[c] for c in members if c in states} for members in self._members]
        self._all("restoring", 0, {k: Restore(own) for k, own in enumerate(files)})

    def save(self, round: int, clients: Iterable[int], folder: Path) -> dict[int, Path]:
        """Write the training states of these clients, one file a process; returns each client's file."""
        orders = {
            k: Save(members, folder / f"client-process-{k}-round-{round}.npz")
            for k, members in self._divided(clients).items()
        }
        return _merged(self._all("saving", round, orders))

    def train(
        self,
        round: int,
        cohort: Sequence[int],
        parameters: np.ndarray,
        encoder: Encoder,
        deliver: Callable[[int, int, Any], None],
        audit: Encoder | None = None,
        keyed: bool = False,
    ) -> Trained:
        """Let the cohort train from the released model, float64 (d,).

        Args:
            encoder: applied to each update inside the client's process.
            deliver: called with slot, client and what the encoder made, as soon as that client is done.
            audit: a second encoder, whose results come back in `Trained.audits`.
            keyed: whether every client will get an answer of its own, to be sealed to a key that the encoder is given.

        Raises:
            PeerLostError, PeerTimeoutError: naming the clients whose process failed.
            RunError: clients keep a ledger, and it has no room for the round.
        """
        started = time.perf_counter()
        if self._counting:  # also clients that take no part in the round
            self._all("ledger", round, {k: Announce(round) for k in range(len(self._members))})
        audits: dict[int, Any] = {}
        missing: dict[int, SafeGNNError] = {}

        def take(slot: int, client: int, upload: Any, plain: Any) -> None:
            if isinstance(upload, SafeGNNError):
                missing[slot] = upload
                return
            if audit:
                audits[slot] = plain
            deliver(slot, client, upload)

        orders = {}
        for k, members in self._divided(cohort).items():
            places = [(slot, c) for slot, c in enumerate(cohort) if c in members]
            orders[k] = Train(k, round, places, parameters, encoder, keyed, audit)
        self._all("local training", round, orders, take)
        return Trained(dict(sorted(audits.items())), dict(sorted(missing.items())), time.perf_counter() - started)

    def contribute(
        self,
        round: int,
        clients: Sequence[int],
        summand: Summand,
        bound: float,
        length: int,
        encoder: Encoder,
        deliver: Callable[[int, int, Any], None],
    ) -> dict[int, SafeGNNError]:
        """Let clients encode what they add to a secure sum; returns by slot why some have nothing to add.

        Args:
            summand: which of their numbers.
            bound, length: of the sum.
            encoder, deliver: as for `train`.
        """
        missing: dict[int, SafeGNNError] = {}

        def take(slot: int, client: int, upload: Any, plain: Any) -> None:
            if isinstance(upload, SafeGNNError):
                missing[slot] = upload
            else:
                deliver(slot, client, upload)

        orders = {}
        for k, members in self._divided(clients).items():
            places = [(slot, c) for slot, c in enumerate(clients) if c in members]
            orders[k] = Contribute(round, places, summand, bound, length, encoder)
        self._all("secure sum", round, orders, take)
        return dict(sorted(missing.items()))

    def hear_total(self, name: str, total: np.ndarray) -> None:
        """Tell every client what a secure sum of all of them came to, float64 (m,)."""
        self._all("secure sum", 0, {k: HearTotal(name, total) for k in range(len(self._members))})

    def deliver(
        self, round: int, cohort: Sequence[int], answers: Mapping[int, Any], decoder: Decoder, reveal: bool = False
    ) -> dict[int, np.ndarray]:
        """Give clients of the cohort the answers to their uploads, which only they can open.

        Args:
            answers: by slot; who was left out of the round has none.
            reveal: return what they opened, by slot; for simulations that are audited.

        Raises:
            ProtocolError: an answer is damaged or meant for somebody else.
        """
        orders = {}
        for k, members in self._divided(cohort).items():
            own = [(slot, c, answers[slot]) for slot, c in enumerate(cohort) if c in members and slot in answers]
            orders[k] = Deliver(round, own, decoder, reveal)
        return _merged(self._all("delivery", round, orders))

    def evaluate(
        self, round: int, clients: Iterable[int], parameters: np.ndarray, own: bool
    ) -> dict[int, dict[str, Any]]:
        """By client, what it says of a model on its own nodes; see `LocalMethod.evaluate`."""
        orders = {k: Evaluate(members, parameters, own) for k, members in self._divided(clients).items()}
        return _merged(self._all("evaluation", round, orders))

    def models(self, round: int, clients: Iterable[int], parameters: np.ndarray) -> dict[int, np.ndarray | None]:
        """Each client's own model, float64 (d,), as its method and the rounds left it; see `LocalMethod.model`."""
        orders = {k: Reveal(members, parameters) for k, members in self._divided(clients).items()}
        return _merged(self._all("saving", round, orders))

    def ask(self, step: int) -> dict[int, Mapping[str, np.ndarray]]:
        """Every client's question to all others in a step of their preparation, in the order of the clients."""
        orders = {k: Ask(members, step) for k, members in enumerate(self._members)}
        return dict(sorted(_merged(self._all("preparation", 0, orders)).items()))

    def hear(self, step: int, answers: Mapping[int, np.ndarray | None]) -> None:
        """Tell every client what its question was answered with; see `LocalMethod.hear`."""
        orders = {k: Hear(step, {c: answers[c] for c in members}) for k, members in enumerate(self._members)}
        self._all("preparation", 0, orders)

    def close(self) -> None:
        """End all processes; safe to call twice."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.kill()  # what counts of its state is in files
            process.join()
        self._connections.clear()
        self._processes.clear()

    def __enter__(self) -> ClientPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _name(self, k: int) -> str:
        numbers = self._members[k]
        listed = ", ".join(map(str, numbers[:4])) + (", ..." if len(numbers) > 4 else "")
        return f"client process {k} (clients {listed})"

    def _divided(self, clients: Iterable[int]) -> dict[int, list[int]]:
        """The processes that host some of these clients, and which."""
        wanted = set(clients)
        parts = {k: [c for c in members if c in wanted] for k, members in enumerate(self._members)}
        return {k: members for k, members in parts.items() if members}

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


def _merged(parts: Sequence[Mapping[Any, Any]]) -> dict[Any, Any]:
    return {key: value for part in parts for key, value in part.items()}
