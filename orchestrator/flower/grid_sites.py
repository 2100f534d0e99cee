"""The coordinator's way to sites over Flower: which node is which site, who is asked, who answers in time.

Parties: the coordinator, the consortium's sites, and Flower's SuperLink between them, which may see, delay, drop and
invent messages. What it sees are the bytes that the site worker's messages consist of: released models, and envelopes
sealed to the aggregators and signed by sites. Nothing here is trusted with more: a node that lies about its name can
keep a site from taking part, and neither upload in its name nor read an answer that was sealed to it.

Flower knows nodes by numbers that change when a node is started again, so a node is asked for its site's name when it
is first seen. The last one that says a name is who has it: a site that was started again is heard at once, while Flower
may count its old node as present for a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from orchestrator.coordinator.site_transport import SiteTransport
from orchestrator.errors import PeerLostError, PeerTimeoutError, ProtocolError

__all__ = ["ABSENT_SEC", "GridSites", "Post"]

ABSENT_SEC = 15.0
"""How long a request waits for a site of which there is no node. A node asks for messages every three seconds."""

_INTRODUCTION_SEC = 60.0


class Post(Protocol):
    """What carries messages to nodes: Flower's grid, or a test's."""

    def nodes(self) -> set[int]:
        """The nodes that are there."""

    def send(self, kind: str, contents: Mapping[int, bytes], lifetime_sec: float) -> dict[str, int]:
        """Send each node its message; returns the nodes by what their messages are called, without those that left."""

    def collect(self, messages: Collection[str], names: Mapping[str, str]) -> dict[str, bytes | ProtocolError]:
        """Replies that have come, each once, by message. `names` says of which site an error is to speak."""


class GridSites(SiteTransport):
    """Requests to sites by name."""

    def __init__(
        self,
        post: Post,
        sites: Sequence[str],
        absent_sec: float = ABSENT_SEC,
        poll_sec: float = 0.2,
        wait: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            post: what carries the messages.
            sites: the names that count; a node that says another one is never asked for anything.
            absent_sec: how long a request waits for a site that no node claims to be.
            poll_sec: between two looks for replies.
            wait, clock: for tests.
        """
        self._post, self._sites, self._absent_sec, self._poll_sec = post, frozenset(sites), absent_sec, poll_sec
        self._wait, self._clock = wait, clock
        self._node: dict[str, int] = {}
        self._known: set[int] = set()
        self._introductions: dict[str, tuple[int, float]] = {}

    def present(self) -> list[str]:
        """The sites that have a node, in alphabetical order. Asks nodes that are new for their names."""
        self._look()
        self._take(self._post.collect(list(self._introductions), {}))
        return sorted(self._node)

    def gather(self, sites: Collection[str], timeout_sec: float) -> list[str]:
        """Wait until these sites are there; returns those that are not when the time is up."""
        deadline = self._clock() + timeout_sec
        while (missing := sorted(set(sites) - set(self.present()))) and self._clock() < deadline:
            self._wait(self._poll_sec)
        return missing

    def ask(self, requests: Mapping[str, bytes], timeout_sec: float) -> Iterator[tuple[str, bytes | ProtocolError]]:
        """Ask each named site; yields every site once, with its reply as it comes, or why there is none.

        A site that is lost or silent costs its own reply alone. A request goes out once: a site whose node is lost with
        it may have acted on it already.
        """
        deadline = self._clock() + timeout_sec
        given_up = min(deadline, self._clock() + self._absent_sec)
        waiting, sent = dict(requests), dict[str, str]()
        while waiting or sent:
            now = self._clock()
            if now >= deadline:
                break
            if waiting:
                self._look()
                sent |= self._send(waiting, deadline)
            replies = self._post.collect([*sent, *self._introductions], sent)
            self._take(replies)
            for message in [message for message in sent if message in replies]:
                yield sent.pop(message), replies[message]
            if now >= given_up:
                for site in list(waiting):
                    del waiting[site]
                    yield site, self._absent(site)
            if (waiting or sent) and not replies:
                self._wait(self._poll_sec)
        for site in waiting:
            yield site, self._absent(site)
        for site in sent.values():
            yield site, PeerTimeoutError(f"site {site}", "flower", 0, f"no reply within {timeout_sec:g} s")

    def close(self) -> None:
        """Nothing is held: the grid is Flower's."""

    def _send(self, waiting: dict[str, bytes], deadline: float) -> dict[str, str]:
        """Send, and take out of `waiting`, the requests to sites that are there; returns the sites by message."""
        sites = {self._node[site]: site for site in waiting if site in self._node}
        if not sites:
            return {}
        contents = {node: waiting[site] for node, site in sites.items()}
        messages = self._post.send("query", contents, deadline - self._clock())
        sent = {message: sites[node] for message, node in messages.items()}
        for site in sent.values():  # the others have left since the last look
            del waiting[site]
        return sent

    def _look(self) -> None:
        """Ask nodes that are new for their names, and forget those that have gone."""
        nodes, now = self._post.nodes(), self._clock()
        self._introductions = {
            message: (node, until) for message, (node, until) in self._introductions.items() if until > now
        }
        self._node = {site: node for site, node in self._node.items() if node in nodes}
        self._known &= nodes
        if new := nodes - self._known - {node for node, _ in self._introductions.values()}:
            sent = self._post.send("query.site", dict.fromkeys(sorted(new), b""), _INTRODUCTION_SEC)
            self._introductions |= {message: (node, now + _INTRODUCTION_SEC) for message, node in sent.items()}

    def _take(self, replies: Mapping[str, bytes | ProtocolError]) -> None:
        """Hear what nodes say that they are called. A node that fails to is asked again."""
        for message in [message for message in self._introductions if message in replies]:
            node, _ = self._introductions.pop(message)
            name = replies[message]
            if isinstance(name, bytes):
                self._known.add(node)
                if (site := name.decode(errors="replace")) in self._sites:
                    self._node[site] = node

    def _absent(self, site: str) -> PeerLostError:
        return PeerLostError(f"site {site}", "flower", 0, "no SuperNode says that it is this site")
