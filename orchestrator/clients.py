"""The simulated clients: a few processes that each host some of them.

A client's model and optimiser live in one process only. What comes back from it is what the engine's encoder made of
the update, so under the embedded engine the orchestrator sees sealed envelopes. A process writes the training states
of those of its clients that took part, one file a round, and the orchestrator's checkpoint says which file counts for
which client.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from orchestrator.config import Config
from orchestrator.engines.base import Encoder
from orchestrator.errors import PeerLostError, PeerTimeoutError, RunError, SafeGNNError
from orchestrator.graphs.graph import Graph
from orchestrator.runs import read_arrays, write_atomically

__all__ = ["ClientPool", "Trained", "single_threaded", "warm_up"]


def warm_up() -> Any:
    """Begin to import what client processes need, beside whatever the caller does; returns the context to start them.

    All of them are forked from one helper process that has imported torch once and runs nothing else. It ends with
    this process. Ctrl-C is for this process alone, so the helper is born with that signal blocked.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["orchestrator.methods"])
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
class _Order:
    """Train the given clients of one cohort; `audit` also returns the plaintext update, for simulations only."""

    process: int
    round: int
    places: Sequence[tuple[int, int]]
    parameters: np.ndarray
    encoder: Encoder
    audit: Encoder | None
    state_dir: Path | None


@dataclass(frozen=True)
class Trained:
    """What came back from one cohort besides its uploads.

    Attributes:
        audits: the plaintext uploads by slot where asked for, else empty.
        states: file of the training state of each client that took part, by client.
        seconds: from the order to the last answer.
    """

    audits: list[Any]
    states: dict[int, Path]
    seconds: float


class ClientPool:
    """Hosts all clients; client c lives in process c mod `processes`. A context manager."""

    def __init__(self, graphs: Sequence[Graph], config: Config, host: Any = None) -> None:
        """Start the processes; they read their graphs while the caller goes on.

        Args:
            graphs: one a client. Every process gets all of them, so many should be `Subgraphs`; it asks for that of
                a client when this first takes part.
            config: the whole configuration.
            host: the function that runs in a process, for tests that need one to fail.
        """
        context = warm_up()
        count = min(config.engine.client_processes, len(graphs))
        self._timeout_sec = config.engine.training_timeout_sec
        self._members: list[list[int]] = [list(range(k, len(graphs), count)) for k in range(count)]
        self._connections: list[Connection] = []
        self._processes = []
        for _ in self._members:
            ours, theirs = context.Pipe()
            _limit_waiting(ours, self._timeout_sec)
            process = context.Process(target=host or serve, args=(theirs, graphs, config), daemon=True)
            with _without_main():
                process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)

    @property
    def pids(self) -> list[int]:
        return [process.pid or 0 for process in self._processes]

    def restore(self, states: Mapping[int, Path]) -> None:
        """Give clients the training state of a checkpoint. Raises RunError for a file that cannot be read."""
        for k, members in enumerate(self._members):
            self._send(k, {c: states[c] for c in members if c in states}, "restoring", 0)
        self._answers(dict.fromkeys(range(len(self._members)), "restoring"), 0)

    def train(
        self,
        round: int,
        cohort: Sequence[int],
        parameters: np.ndarray,
        encoder: Encoder,
        deliver: Callable[[int, int, Any], None],
        audit: Encoder | None = None,
        state_dir: Path | None = None,
    ) -> Trained:
        """Let the cohort train from the released model, float64 (d,).

        Args:
            encoder: applied to each update inside the client's process.
            deliver: called with slot, client and what the encoder made, as soon as that client is done.
            audit: a second encoder, whose results come back in `Trained.audits`.
            state_dir: where the clients write their training states; None: nowhere.

        Raises:
            PeerLostError, PeerTimeoutError: naming the clients whose process failed.
            SafeGNNError: what a client itself refused, e.g. RangeError.
        """
        started = time.perf_counter()
        busy = {}
        for k in range(len(self._members)):
            places = [(slot, c) for slot, c in enumerate(cohort) if c % len(self._members) == k]
            if places:
                order = _Order(k, round, places, parameters, encoder, audit, state_dir)
                self._send(k, order, "local training", round)
                busy[k] = "local training"
        audits: dict[int, Any] = {}

        def take(slot: int, client: int, upload: Any, plain: Any) -> None:
            if audit:
                audits[slot] = plain
            deliver(slot, client, upload)

        states: dict[int, Path] = {}
        for part in self._answers(busy, round, take):
            states.update(part)
        return Trained([audits[slot] for slot in sorted(audits)], states, time.perf_counter() - started)

    def close(self) -> None:
        """End all processes; safe to call twice."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.kill()
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
        self._processes[k].join(timeout=1.0)
        return PeerLostError(
            self._name(k), phase, round, f"the process ended with status {self._processes[k].exitcode}"
        )


def _limit_waiting(connection: Connection, seconds: float) -> None:
    """Let reads and writes of a pipe end in BlockingIOError where the other side stops in the middle of a message."""
    limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    with socket.socket(fileno=os.dup(connection.fileno())) as pipe:  # the limits belong to what both descriptors share
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            pipe.setsockopt(socket.SOL_SOCKET, option, limit)


def single_threaded() -> None:
    """One thread a process. The matrices are small, and idle worker threads spin on the cores that others need."""
    import torch

    torch.set_num_threads(1)
    threadpool_limits(1)


class _Clients(dict[int, Any]):
    """The clients of a process, each made when it is first asked for."""

    def __init__(self, graphs: Sequence[Graph], config: Config) -> None:
        super().__init__()
        self._graphs, self._config = graphs, config

    def __missing__(self, client: int) -> Any:
        from orchestrator.methods import create

        self[client] = create(self._graphs[client], self._config, client)
        return self[client]


def serve(connection: Connection, graphs: Sequence[Graph], config: Config) -> None:
    """Main function of a client process: follow orders until the orchestrator's end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    single_threaded()
    clients = _Clients(graphs, config)
    while True:
        try:
            order = connection.recv()
        except (EOFError, ConnectionError):
            return
        try:
            if isinstance(order, _Order):
                connection.send(("done", _train(order, clients, config.clients.batch, connection)))
            else:
                _restore(order, clients)
                connection.send(("done", None))
        except SafeGNNError as error:
            connection.send(("refused", error))
        except ConnectionError:
            return  # the orchestrator has gone
        except Exception as error:
            # Where it happened, but not what was said: an exception's text may hold the client's data.
            where = traceback.extract_tb(error.__traceback__)[-1]
            connection.send(("failed", f"{type(error).__name__} in {Path(where.filename).name}, line {where.lineno}"))


def _train(order: _Order, clients: _Clients, size: int, connection: Connection) -> dict[int, Path]:
    for batch in _batches(order.places, size):
        members = [clients[c] for _, c in batch]
        updates = type(members[0]).train_together(members, order.parameters)
        for (slot, c), update in zip(batch, updates, strict=True):
            arguments = (update.delta, update.norm, update.scores, order.round, slot, c)
            plain = order.audit(*arguments) if order.audit else None
            connection.send(("upload", (slot, c, order.encoder(*arguments), plain)))
    if order.state_dir is None:
        return {}
    taking_part = sorted({c for _, c in order.places})
    path = order.state_dir / f"client-process-{order.process}-round-{order.round}.npz"
    _write_states(path, {c: clients[c].state_dict() for c in taking_part})
    return dict.fromkeys(taking_part, path)


def _batches(places: Sequence[tuple[int, int]], size: int) -> Iterator[list[tuple[int, int]]]:
    """Consecutive places, at most `size` at a time; a client that stands twice trains in two batches."""
    batch: list[tuple[int, int]] = []
    for slot, client in places:
        if len(batch) == size or any(client == other for _, other in batch):
            yield batch
            batch = []
        batch.append((slot, client))
    yield batch


def _write_states(path: Path, states: Mapping[int, Mapping[str, Any]]) -> None:
    """The states of several clients as one .npz: for each name the values, stacked, and whose they are."""
    arrays: dict[str, np.ndarray] = {}
    for name in sorted({name for state in states.values() for name in state}):
        owners = [c for c, state in states.items() if name in state]
        arrays[f"{name}/clients"] = np.array(owners)
        arrays[f"{name}/values"] = np.stack([states[c][name] for c in owners])
    write_atomically(path, lambda file: np.savez(file, **arrays))


def _restore(files: Mapping[int, Path], clients: _Clients) -> None:
    """Load the state of each client from its file. Raises RunError where a file does not hold it."""
    for path in sorted(set(files.values())):
        arrays = read_arrays(path)
        states: dict[int, dict[str, Any]] = {c: {} for c, file in files.items() if file == path}
        for key, owners in arrays.items():
            name, _, what = key.rpartition("/")
            if what == "clients":
                for c, value in zip(owners.tolist(), arrays.get(f"{name}/values", ()), strict=False):
                    if c in states:
                        states[c][name] = value if value.ndim else value.item()
        for c, state in states.items():
            try:
                clients[c].load_state_dict(state)
            except (KeyError, ValueError, TypeError) as error:
                raise RunError(f"{path}: holds no training state of client {c}: {type(error).__name__}") from error
