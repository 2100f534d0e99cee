"""How bytes come to sites and back. What they say is `orchestrator.site.messages`' business.

Parties: the coordinator, and sites by name. What a transport is trusted with: to bring a reply from the site that it
names, in time. It sees what it carries; of a client's data that is ciphertext.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from orchestrator.errors import PeerLostError, PeerTimeoutError, ProtocolError
from orchestrator.site import framing

__all__ = ["LocalSites", "SiteTransport"]

_PHASE = "site"


class SiteTransport(ABC):
    """A way to ask sites."""

    @abstractmethod
    def ask(self, requests: Mapping[str, bytes], timeout_sec: float) -> Iterator[tuple[str, bytes | ProtocolError]]:
        """A request to each named site; replies as they come, each site's once, in any order.

        A site that is not there, or silent until the timeout, costs its own part alone: a `PeerLostError` or
        `PeerTimeoutError` that names it stands for its reply. Who stops iterating waits for nobody else.
        """

    @abstractmethod
    def close(self) -> None:
        """Ask nobody any more; safe to call twice."""


class LocalSites(SiteTransport):
    """Straight to the sockets of workers on this machine, of the same user: for tests, and for one host."""

    def __init__(self, sockets: Mapping[str, Path]) -> None:
        """Args: sockets: of each site's worker, by its name."""
        self._sockets = dict(sockets)

    def ask(self, requests: Mapping[str, bytes], timeout_sec: float) -> Iterator[tuple[str, bytes | ProtocolError]]:
        answered: SimpleQueue[tuple[str, bytes | ProtocolError]] = SimpleQueue()

        def one(name: str, request: bytes) -> None:
            answered.put((name, self._one(name, request, timeout_sec)))

        for asked in requests.items():
            Thread(target=one, args=asked, name=f"site {asked[0]}", daemon=True).start()
        for _ in requests:
            yield answered.get()

    def _one(self, name: str, request: bytes, timeout_sec: float) -> bytes | ProtocolError:
        peer = f"site {name}"
        if name not in self._sockets:
            return PeerLostError(peer, _PHASE, 0, "nobody knows where it is")
        try:
            return framing.ask(self._sockets[name], request, timeout_sec)
        except TimeoutError:
            return PeerTimeoutError(peer, _PHASE, 0, f"no answer within {timeout_sec:g} s")
        except OSError as error:
            return PeerLostError(peer, _PHASE, 0, f"its worker is not there ({error.strerror or error})")

    def close(self) -> None:
        self._sockets.clear()
