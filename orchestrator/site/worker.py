"""A site's resident process: it holds the graph, the network and the training state, and answers one request at a time.

Parties: the site; a coordinator that may lie, whose requests come through whatever the site's owner lets onto the
socket. What the coordinator learns is what replies say (`messages`), and from times how long training takes. Whatever a
request is, the worker answers it in one line or does it, and goes on.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib import metadata
from pathlib import Path

from orchestrator.agreement.identity import OwnKey
from orchestrator.agreement.roster import Roster
from orchestrator.agreement.site_file import SiteFile
from orchestrator.client import host
from orchestrator.client.admission import begin_run
from orchestrator.errors import ConfigError, ConsentError, RunError, SafeGNNError
from orchestrator.files import write_atomically
from orchestrator.graphs import load_graph
from orchestrator.graphs.graph import Graph
from orchestrator.locks import FolderLock
from orchestrator.mpc.prg import SEED_BYTES, fresh_seed
from orchestrator.site import framing
from orchestrator.site.consent import Consent
from orchestrator.site.memory import Memory
from orchestrator.site.messages import (
    Announce,
    Begin,
    Contribute,
    Deliver,
    Done,
    Evaluate,
    Failed,
    HearTotal,
    Hello,
    Message,
    Refused,
    Train,
    Welcome,
    one_line,
    parse_request,
)
from orchestrator.site.run import SiteRun, told

__all__ = ["Worker", "open_site", "serve"]

_SEED = "seed.key"
_LIVE = 4
"""Sessions of runs whose client is in memory; others begin from what is kept of them."""

_QUEUE = 16
_PATIENCE_SEC = 10.0
_SLOWEST = 1 << 20
"""Bytes a second of whoever is heard; who is slower has stalled."""


class Worker:
    """One site. Not for several threads."""

    def __init__(self, site: SiteFile, own: OwnKey, roster: Roster, graph: Graph, seed: bytes) -> None:
        """Args: graph: the site's; seed: its secret, from which its training derives in runs with noise."""
        self.number = [member.name for member in roster.sites].index(own.name)
        self._site, self._own, self._roster, self._graph, self._seed = site, own, roster, graph, seed
        self._consent = Consent(site, roster, graph)
        self._runs: dict[str, SiteRun] = {}

    @property
    def described(self) -> str:
        """For whoever starts it."""
        graph = self._graph
        return (
            f"site {self._own.name}: client {self.number} of {len(self._roster.sites)} in {self._roster.name}, "
            f"{graph.num_nodes} nodes, {graph.num_edges} edges, {graph.num_features} features"
        )

    def reply(self, request: bytes, say: Callable[[str], None] = lambda line: None) -> bytes:
        """What is answered to a request, whatever it is. Args: say: told of what is not done, for the site's log."""
        name = self._own.name
        try:
            try:
                order = parse_request(request)
            except ValueError as error:
                raise ConsentError(str(error)) from None
            reply = self._done(order, request)
            if isinstance(reply, bytes):
                return reply
        except SafeGNNError as error:
            reply = told(error)
            say(f"{name} {'refuses' if isinstance(reply, Refused) else 'failed'}: {error.__cause__ or error}")
        except Exception as error:  # its text may hold data
            reply = Failed(one_line(host.where(error)))
            say(f"{name} failed: {reply.where}")
        return reply.to_bytes()

    def _done(self, order: Message, request: bytes) -> Message | bytes:
        if isinstance(order, Hello):
            return self._welcome()
        assert isinstance(order, Begin | Announce | Train | Contribute | HearTotal | Deliver | Evaluate)
        run = self._run(order.offer)
        match order:
            case Announce():
                return run.announce(order)
            case Train():
                return run.train(order, request)
            case Contribute():
                return run.contribute(order, request)
            case HearTotal():
                return run.hear(order)
            case Deliver():
                return run.deliver(order)
            case Evaluate():
                return run.evaluate(order)
        return Done()

    def _welcome(self) -> Message:
        graph = self._graph
        names = "\n".join(map(str, graph.meaning.features))
        return Welcome(
            self._own.name,
            self._roster.digest,
            metadata.version("safegnn"),
            graph.num_features,
            graph.classes,
            1 if graph.sensitive is None else 2,
            hashlib.sha256(names.encode()).hexdigest() if names else "",
        )

    def _run(self, offer: bytes) -> SiteRun:
        """The session that is offered, where the site takes part in it."""
        agreed = self._consent.to(offer)
        session, run = agreed.offer.session, agreed.terms.run
        if session not in self._runs:
            kept = {name: live for name, live in self._runs.items() if live.agreed.terms.run != run}
            while len(kept) >= _LIVE:
                del kept[next(iter(kept))]
            begin_run()
            seed = int.from_bytes(_derived(self._seed, f"run/{run}")[:8], "little") >> 1
            memory = Memory(self._site.folder / "runs" / run, self.number)
            live = SiteRun(agreed, self._consent, self.number, self._graph, self._own, seed, memory)
            self._runs = {**kept, session: live}
        return self._runs[session]


@contextmanager
def open_site(site: SiteFile) -> Iterator[tuple[Worker, socket.socket]]:
    """The worker of a site's settings, with its graph read, and the socket at which it is asked.

    Raises:
        ConfigError: identity, roster or folder cannot be used.
        BusyError: another worker of the site runs.
        DataError: the graph cannot be read.
    """
    own, roster, role = site.participant()
    if not role.startswith("site "):
        raise ConfigError(f"{site.identity}: {own.name} is {role} in {roster.name}, and no site")
    try:
        site.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        shared = site.folder.stat().st_mode & 0o077
    except OSError as error:
        raise ConfigError(f"folder: {site.folder}: cannot be made: {error.strerror or error}") from None
    if shared:
        raise ConfigError(f"folder: {site.folder}: others than its owner can enter it; `chmod 700` it")
    with FolderLock(site.folder):
        seed = _own_seed(site.folder / _SEED)
        data_seed = int.from_bytes(_derived(seed, "data")[:8], "little") >> 1
        worker = Worker(site, own, roster, load_graph(site.data, data_seed, part=True), seed)
        with closing(_listening(site.socket)) as listener:
            try:
                yield worker, listener
            finally:
                (site.socket).unlink(missing_ok=True)


def serve(listener: socket.socket, reply: Callable[[bytes], bytes], patience_sec: float = _PATIENCE_SEC) -> None:
    """Answer one connection after the other, for ever; who waits is in a queue.

    Args:
        patience_sec: for a request to arrive, and a reply to be taken; a mebibyte more has a second more.
    """
    host.single_threaded()
    while True:
        connection, _ = listener.accept()
        with connection, suppress(OSError):  # of a peer that stalls, goes, or says too much
            request = framing.receive(connection, time.monotonic() + patience_sec, _SLOWEST)
            answer = reply(request)
            framing.send(connection, answer, time.monotonic() + patience_sec + len(answer) / _SLOWEST)


def _listening(path: Path) -> socket.socket:
    """A Unix socket for its owner alone. Raises ConfigError where there can be none of that path."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        path.unlink(missing_ok=True)  # of a worker that was killed: the folder's lock says that none is left
        listener.bind(str(path))
        listener.listen(_QUEUE)
    except OSError as error:
        listener.close()
        reason = "is too long for a socket's path" if "too long" in str(error) else error.strerror or str(error)
        raise ConfigError(f"socket: {path}: {reason}") from None
    finally:
        os.umask(before)
    return listener


def _own_seed(path: Path) -> bytes:
    """The site's secret, of mode 0600; drawn when there is none. Raises RunError where it cannot be kept or read."""
    if not path.exists():
        write_atomically(path, lambda file: file.write(fresh_seed()))
    try:
        seed = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(seed) != SEED_BYTES:
        raise RunError(f"{path}: is damaged: expected {SEED_BYTES} bytes, found {len(seed)}")
    return seed


def _derived(key: bytes, purpose: str) -> bytes:
    return hmac.digest(key, purpose.encode(), "sha256")
