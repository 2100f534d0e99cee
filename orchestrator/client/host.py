"""A client process: hosts some of the simulated clients and carries out the coordinator's orders.

A client's model, optimiser, graph and reply key live here only. What goes back to the coordinator is what an order
says: sealed uploads, tables of counts, and, where clients prepare together, their questions.
"""

from __future__ import annotations

import signal
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from orchestrator.client.admission import begin_run
from orchestrator.client.interface import Decoder, Encoder
from orchestrator.client.ledger import Account, Ledger, data_digest
from orchestrator.client.states import read_states, write_states
from orchestrator.client.summands import Summand, as_update
from orchestrator.config import Config
from orchestrator.errors import ConfigError, PeerLostError, RunError, SafeGNNError
from orchestrator.graphs.graph import Graph
from orchestrator.methods import LocalMethod, method_class
from orchestrator.seeding import derived_seed
from orchestrator.wire.envelope import Keypair
from orchestrator.wire.message import Place

__all__ = [
    "Announce",
    "Ask",
    "Contribute",
    "Deliver",
    "Evaluate",
    "Hear",
    "HearTotal",
    "Order",
    "Outbox",
    "Restore",
    "Reveal",
    "Save",
    "Train",
    "outcome",
    "serve",
    "single_threaded",
    "where",
]


def single_threaded() -> None:
    """One thread a process. The matrices are small, and idle worker threads spin on the cores that others need."""
    import torch

    torch.set_num_threads(1)
    threadpool_limits(1)


class Clients(dict[int, Any]):
    """The clients of a process, each made when it is first asked for; what scaling is left to it is done then.

    In a run with noise each has a seed of its own, which does not tell the one that the process was given.

    Attributes:
        config: the whole configuration.
        ledger: what is told before anything leaves the clients; None: none is kept.
    """

    def __init__(
        self,
        graphs: Sequence[Graph],
        config: Config,
        method: type[LocalMethod] | None = None,
        account: Account | None = None,
    ) -> None:
        """
        Args:
            graphs: one a client.
            method: the clients' class, by default the one that the configuration names.
            account: of the run, for the clients' ledger.
        """
        super().__init__()
        self._graphs, self.config, path = graphs, config, config.privacy.ledger
        limit, digest = config.privacy.ledger_limit, cache(partial(data_digest, graphs))
        self.ledger = None if path is None else Ledger(path, limit, account, digest)
        self._method = method or method_class(config.method.name)
        self._keypairs: dict[int, Keypair] = {}
        self._totals: dict[str, np.ndarray] = {}

    def __missing__(self, client: int) -> Any:
        own = self.config
        if own.privacy.noise_multiplier > 0:
            own = own.model_copy(update={"seed": derived_seed(own.seed, "client", client)})
        made = self._method(self._graphs[client].scaled_to_train(), own, client)
        for name, total in self._totals.items():
            made.hear_total(name, total)
        self[client] = made
        return made

    def hear(self, name: str, total: np.ndarray) -> None:
        """Tell a secure sum to every client, to those that are not made yet when they are."""
        self._totals[name] = total
        for client in self.values():
            client.hear_total(name, total)

    def keypair(self, client: int) -> Keypair:
        """The key to which answers for this client are sealed; it lives as long as the process."""
        if client not in self._keypairs:
            self._keypairs[client] = Keypair()
        return self._keypairs[client]


class Outbox(Protocol):
    """Where uploads go as they are ready: a process's connection, or what carries them elsewhere."""

    def send(self, obj: Any) -> None: ...


class Order(ABC):
    """What the coordinator asks of a process; its members are those of the clients that are concerned.

    Attributes:
        uncounted: whether it lets out what no epsilon counts. Where a ledger is kept it is refused.
    """

    uncounted: ClassVar[bool] = False

    @abstractmethod
    def carry_out(self, clients: Clients, connection: Outbox) -> Any:
        """Do it; returns the answer. What is ready earlier goes through the connection, as ("upload", ...)."""


@dataclass(frozen=True)
class Announce(Order):
    """Count a round that is about to be released, whoever takes part in it."""

    round: int

    def carry_out(self, clients: Clients, connection: Outbox) -> None:
        """Raises RunError where the ledger has no room for it."""
        if clients.ledger is not None:
            clients.ledger.hear(self.round)


@dataclass(frozen=True)
class Train(Order):
    """Train the given clients of one cohort.

    Attributes:
        process: number of the process.
        places: (slot, client).
        keyed: whether the upload says to which key the client's answer is to be sealed.
        audit: also returns the plaintext update, for simulations only.
    """

    process: int
    round: int
    places: Sequence[tuple[int, int]]
    parameters: np.ndarray
    encoder: Encoder
    keyed: bool
    audit: Encoder | None

    def carry_out(self, clients: Clients, connection: Outbox) -> None:
        if clients.ledger is not None:
            if self.audit is not None:
                raise _uncounted()
            clients.ledger.take_part(self.round)
        for batch in _batches(self.places, clients.config.clients.batch):
            try:
                members = [clients[c] for _, c in batch]
                updates = type(members[0]).train_together(members, self.parameters)
            except ConfigError:
                raise  # no client can do what is set
            except Exception as error:
                for slot, c in batch:
                    connection.send(("upload", (slot, c, self._missing(c, error), None)))
                continue
            for (slot, c), update in zip(batch, updates, strict=True):
                place, key = Place(self.round, slot, c), clients.keypair(c).public_key if self.keyed else b""
                try:
                    plain = self.audit(update, place) if self.audit else None
                    upload = self.encoder(update, place, key)
                except Exception as error:
                    upload, plain = self._missing(c, error), None
                connection.send(("upload", (slot, c, upload, plain)))

    def _missing(self, client: int, error: Exception) -> SafeGNNError:
        return _missing(client, "local training", self.round, error)


@dataclass(frozen=True)
class Contribute(Order):
    """Encode what each client adds to a secure sum.

    Attributes:
        places: (slot, client).
        summand: which of its numbers.
        bound, length: of the sum, see `SecureSum`.
    """

    round: int
    places: Sequence[tuple[int, int]]
    summand: Summand
    bound: float
    length: int
    encoder: Encoder

    def carry_out(self, clients: Clients, connection: Outbox) -> None:
        if clients.ledger is not None:
            clients.ledger.add(self.round, self.summand.name)
        for slot, c in self.places:
            upload: Any
            try:
                numbers = self.summand.of(clients[c])
                upload = self.encoder(as_update(numbers, self.bound, self.length), Place(self.round, slot, c))
            except ConfigError:
                raise  # no client can do what is set
            except Exception as error:
                upload = _missing(c, "secure sum", self.round, error)
            connection.send(("upload", (slot, c, upload, None)))


@dataclass(frozen=True)
class HearTotal(Order):
    """What all clients' numbers came to, for each client of the process, also those that are made later."""

    name: str
    total: np.ndarray = field(repr=False)

    def carry_out(self, clients: Clients, connection: Outbox) -> None:
        clients.hear(self.name, self.total)


@dataclass(frozen=True)
class Deliver(Order):
    """Open the answers that were made for each client alone.

    Attributes:
        answers: (slot, client, answer).
        reveal: return what was opened, by slot, for simulations only.
    """

    round: int
    answers: Sequence[tuple[int, int, Any]] = field(repr=False)
    decoder: Decoder
    reveal: bool

    def carry_out(self, clients: Clients, connection: Outbox) -> dict[int, np.ndarray]:
        opened = {}
        for slot, c, answer in self.answers:
            model = self.decoder(answer, clients.keypair(c), Place(self.round, slot, c))
            clients[c].receive(model)
            if self.reveal:
                opened[slot] = model
        return opened


@dataclass(frozen=True)
class Evaluate(Order):
    """What each client says of a model on its own nodes; see `LocalMethod.evaluate`."""

    uncounted = True
    members: Sequence[int]
    parameters: np.ndarray
    own: bool

    def carry_out(self, clients: Clients, connection: Outbox) -> dict[int, dict[str, Any]]:
        return {c: clients[c].evaluate(self.parameters, self.own) for c in self.members}


@dataclass(frozen=True)
class Reveal(Order):
    """Each client's own model, for simulations that leave everybody's; see `LocalMethod.model`."""

    uncounted = True
    members: Sequence[int]
    parameters: np.ndarray

    def carry_out(self, clients: Clients, connection: Outbox) -> dict[int, np.ndarray | None]:
        return {c: clients[c].model(self.parameters) for c in self.members}


@dataclass(frozen=True)
class Ask(Order):
    """What each client asks all others in a step of their preparation."""

    uncounted = True
    members: Sequence[int]
    step: int

    def carry_out(self, clients: Clients, connection: Outbox) -> dict[int, Mapping[str, np.ndarray]]:
        return {c: clients[c].ask(self.step) for c in self.members}


@dataclass(frozen=True)
class Hear(Order):
    """What each member's question was answered with, see `LocalMethod.hear`."""

    step: int
    answers: Mapping[int, np.ndarray | None] = field(repr=False)

    def carry_out(self, clients: Clients, connection: Outbox) -> None:
        for c, answer in self.answers.items():
            clients[c].hear(self.step, answer)


@dataclass(frozen=True)
class Save(Order):
    """Write the training states of some clients to one file; returns it by client."""

    members: Sequence[int]
    path: Path

    def carry_out(self, clients: Clients, connection: Outbox) -> dict[int, Path]:
        write_states(self.path, {c: clients[c].state_dict() for c in self.members})
        return dict.fromkeys(self.members, self.path)


@dataclass(frozen=True)
class Restore(Order):
    """Load the training state of each client from its file."""

    files: Mapping[int, Path]

    def carry_out(self, clients: Clients, connection: Outbox) -> None:
        """Raises RunError where a file does not hold it."""
        for path in sorted(set(self.files.values())):
            members = [c for c, file in self.files.items() if file == path]
            for c, state in read_states(path, members).items():
                try:
                    clients[c].load_state_dict(state)
                except (KeyError, ValueError, TypeError) as error:
                    reason = f"{path}: holds no training state of client {c}: {type(error).__name__}"
                    raise RunError(reason) from error


def serve(
    connection: Connection,
    graphs: Sequence[Graph],
    config: Config,
    method: type[LocalMethod] | None = None,
    own: Any = None,
    account: Account | None = None,
) -> None:
    """Main function of a client process: follow orders until the coordinator's end closes.

    Arguments as `Clients`, and `own`, the `orchestrator.models.OwnModule` that ``model.name = own`` means.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the coordinator ends its clients
    try:
        single_threaded()
        begin_run()
        if own is not None:
            from orchestrator.models import NETWORKS

            NETWORKS["own"] = own
        clients = Clients(graphs, config, method, account)
        while (order := _next_order(connection)) is not None and _say(connection, *outcome(order, clients, connection)):
            pass
    except BaseException as error:  # whatever it is, its text stays here
        _say(connection, "failed", where(error))


def _next_order(connection: Connection) -> Order | None:
    """None where the coordinator has gone."""
    try:
        return connection.recv()
    except (EOFError, OSError):
        return None


def outcome(order: Order, clients: Clients, connection: Outbox) -> tuple[str, Any]:
    """What becomes of an order: ("done", its answer), ("refused", an error for the user), or ("failed", where)."""
    try:
        if order.uncounted and clients.ledger is not None:
            raise _uncounted()
        return "done", order.carry_out(clients, connection)
    except SafeGNNError as error:
        return "refused", error
    except BaseException as error:  # SystemExit too, whose text Python would print
        return "failed", where(error)


def _say(connection: Connection, kind: str, answer: Any) -> bool:
    """Send an answer; False where nobody is left to hear it. What cannot be sent is a failure of this process."""
    try:
        try:
            connection.send((kind, answer))
        except OSError:
            raise
        except Exception as error:
            connection.send(("failed", where(error)))
    except OSError:
        return False
    return True


def _uncounted() -> RunError:
    return RunError("privacy.ledger: the clients keep a ledger, and were asked for what no epsilon counts")


def _missing(client: int, phase: str, round: int, error: Exception) -> SafeGNNError:
    """What stands for the upload of a client that failed: the round can go on without it."""
    return error if isinstance(error, SafeGNNError) else PeerLostError(f"client {client}", phase, round, where(error))


def where(error: BaseException) -> str:
    """Where it happened, but not what was said: an exception's text may hold the client's data."""
    places = traceback.extract_tb(error.__traceback__)
    at = f" in {Path(places[-1].filename).name}, line {places[-1].lineno}" if places else ""
    return f"{type(error).__name__}{at}"


def _batches(places: Sequence[tuple[int, int]], size: int) -> Iterator[list[tuple[int, int]]]:
    """Consecutive places, at most `size` at a time; a client that stands twice trains in two batches."""
    batch: list[tuple[int, int]] = []
    for slot, client in places:
        if len(batch) == size or any(client == other for _, other in batch):
            yield batch
            batch = []
        batch.append((slot, client))
    yield batch
