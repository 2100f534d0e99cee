"""The simulation on Flower's simulation engine: clients live in Ray actors, on as many machines as Ray has.

It is `safegnn train` with another host for its clients. One user runs all of it, and trusts all of it: what crosses
between ServerApp and ClientApps is pickled, as between the processes of `safegnn train`. For organisations that do not
trust each other there is `server_app`.

Every node hosts some of the clients and may be served by another actor each time. Clients' training states therefore
lie in the node's context, which Flower brings to the actor; graphs are read once by each actor from the files that the
settings name, which must be on every machine. What keeps more than a training state is refused: reply keys of personal
methods, steps of a common preparation, a ledger.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from orchestrator.client.host import Clients, Order, outcome, single_threaded
from orchestrator.client.ledger import Account
from orchestrator.config import Config
from orchestrator.coordinator.population import Simulated
from orchestrator.coordinator.round_result import RoundResult
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.simulated_clients import SimulatedClients
from orchestrator.errors import ConfigError, PeerLostError, PeerTimeoutError, ProtocolError
from orchestrator.experiments.run import check, run
from orchestrator.flower.grid_sites import Post
from orchestrator.flower.parcel import packed, unpacked
from orchestrator.flower.post import FlowerPost
from orchestrator.flower.run_config import begun
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.graphs.graph import Graph
from orchestrator.methods import method_class
from orchestrator.registry import METHODS

__all__ = ["GridClients", "OnGrid", "client", "server"]

server = ServerApp()
client = ClientApp()

_STATES = "clients"
_POLL_SEC = 0.05


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Train as the run's configuration says, and leave a run folder."""
    config, folder = begun(context.run_config)
    refuse_unkept(config)
    engine, graph = check(config)
    resume = folder is not None
    folder = folder or RunFolder.create(config, str(context.run_config["folder"]) or None)
    population = OnGrid(config, FlowerPost(grid), graph)

    def observe(result: RoundResult) -> None:
        say(f"round {result.round} of {config.federation.rounds}")

    say = partial(print, flush=True)
    run(
        config,
        folder,
        graph=graph,
        engine=engine,
        population=population,
        resume=resume,
        observe=observe,
        announce=say,
    )
    say(f"run folder: {folder.path}")


class OnGrid(Simulated):
    """Clients that are cut out of a graph, hosted by the nodes of Flower's grid."""

    def __init__(self, config: Config, post: Post, graph: Graph | None = None) -> None:
        """Args: graph: instead of what the settings name, here; actors read what the settings name."""
        super().__init__(config, graph)
        self._data, self._post = config, post

    def hosts(self, config: Config, account: Account) -> GridClients:
        return GridClients(self.sizes.clients, self._data, config, self._post)


def refuse_unkept(config: Config) -> None:
    """Raises ConfigError where the settings ask for what an actor does not keep from one message to the next."""
    name = config.method.name
    reasons = {
        f"method {name}: a client's reply key stays in one process": METHODS[name].personal,
        f"method {name}: clients prepare together in one process": method_class(name).preparations(config) > 0,
        "privacy.ledger: actors on several machines share no file": config.privacy.ledger is not None,
    }
    for reason, holds in reasons.items():
        if holds:
            raise ConfigError(f"{reason}; use `safegnn train`")


@dataclass(frozen=True)
class _Errand:
    """An order on its way to an actor, with what the actor needs to make the clients that it concerns.

    Attributes:
        data: the settings that graphs are read and cut by.
        told: those that clients are made with, whose seed may be another.
        totals: what secure sums came to so far, by name, in their order.
    """

    data: Config
    told: Config
    totals: Mapping[str, np.ndarray] = field(repr=False)
    order: Order


class GridClients(SimulatedClients):
    """The clients of a simulation, hosted by the nodes of Flower's grid."""

    def __init__(
        self, clients: int, data: Config, told: Config, post: Post, wait: Callable[[float], None] = time.sleep
    ) -> None:
        """
        Args:
            clients: how many.
            data, told: as of `_Errand`.
            post: what carries orders to nodes.
            wait: for tests.
        """
        self._nodes = sorted(post.nodes())[:clients]
        if not self._nodes:
            raise ConfigError("the simulation has no nodes; give flwr run --federation-config 'num-supernodes=8'")
        super().__init__(clients, len(self._nodes), told)
        self._data, self._told, self._post, self._wait = data, told, post, wait
        self._totals: dict[str, np.ndarray] = {}

    def hear_total(self, name: str, total: np.ndarray) -> None:
        """It goes to every client with the next order."""
        self._totals[name] = total

    def close(self) -> None:
        """Nothing is held: the actors are Flower's."""

    def _all(
        self,
        phase: str,
        round: int,
        orders: Mapping[int, Order],
        take: Callable[..., None] = lambda *upload: None,
    ) -> list[Any]:
        errands = {
            self._nodes[k]: pickle.dumps(_Errand(self._data, self._told, self._totals, order))
            for k, order in orders.items()
        }
        hosts = {node: k for k, node in enumerate(self._nodes)}
        deadline = time.monotonic() + self._timeout_sec
        sent = self._post.send("train", errands, self._timeout_sec)
        names = {message: self._name(hosts[node]) for message, node in sent.items()}
        answers = []
        while names:
            replies = self._post.collect(list(names), names)
            for message, reply in replies.items():
                answers.append(_opened(reply, names.pop(message), phase, round, take))
            if names and not replies:
                if time.monotonic() >= deadline:
                    reason = f"no answer within {self._timeout_sec:g} s (engine.training_timeout_sec)"
                    raise PeerTimeoutError(next(iter(names.values())), phase, round, reason)
                self._wait(_POLL_SEC)
        return answers


def _opened(reply: bytes | ProtocolError, name: str, phase: str, round: int, take: Callable[..., None]) -> Any:
    """The answer of one host, after its uploads have been taken."""
    if isinstance(reply, ProtocolError):
        raise PeerLostError(name, phase, round, reply.reason)
    uploads, (kind, answer) = pickle.loads(reply)
    for upload in uploads:
        take(*upload)
    if kind == "refused":
        raise answer
    if kind == "failed":
        raise PeerLostError(name, phase, round, answer)
    return answer


@client.train()
def follow(message: Message, context: Context) -> Message:
    """Carry out an order for clients of this node, with their states from its context."""
    single_threaded()
    errand: _Errand = pickle.loads(unpacked(message.content))
    kept = context.state.get(_STATES)
    clients = _Restored(errand, pickle.loads(kept["bytes"]) if isinstance(kept, ConfigRecord) else {})
    uploads = _Uploads()
    said = outcome(errand.order, clients, uploads)
    context.state[_STATES] = ConfigRecord({"bytes": pickle.dumps(clients.states())})
    return Message(packed(pickle.dumps((uploads.sent, said))), reply_to=message)


class _Uploads:
    """An outbox that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def send(self, obj: Any) -> None:
        _, upload = obj
        self.sent.append(upload)


class _Restored(Clients):
    """Clients of a node, made as they are asked for, in the states that the last order left them."""

    def __init__(self, errand: _Errand, states: dict[int, dict[str, Any]]) -> None:
        super().__init__(_graphs(errand.data), errand.told)
        self._states = states
        for name, total in errand.totals.items():
            self.hear(name, total)

    def __missing__(self, client: int) -> Any:
        made = super().__missing__(client)
        if client in self._states:
            made.load_state_dict(self._states[client])
        return made

    def states(self) -> dict[int, dict[str, Any]]:
        """Of all clients of the node that ever took part."""
        return self._states | {c: made.state_dict() for c, made in self.items()}


_GRAPHS: dict[str, Sequence[Graph]] = {}


def _graphs(config: Config) -> Sequence[Graph]:
    """All clients' graphs, which an actor reads and cuts once a run."""
    key = config.model_dump_json()
    if key not in _GRAPHS:
        _GRAPHS.clear()
        _GRAPHS[key] = client_graphs(load_graph(config.data, config.seed), config.clients, config.seed)
    return _GRAPHS[key]
