"""A network of nodes for tests: what they answer, and when, on a clock that only waiting moves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from orchestrator.errors import ProtocolError

Answer = Callable[[bytes], "bytes | ProtocolError | None"]


@dataclass
class Node:
    """A node of a site.

    Attributes:
        site: the name that it says.
        answer: to a request; None: it says nothing.
        delay_sec: until its replies come.
    """

    site: str
    answer: Answer = lambda request: b"re " + request
    delay_sec: float = 1.0
    heard: list[bytes] = field(default_factory=list)


class FakePost:
    """Implements `orchestrator.flower.grid_sites.Post`."""

    def __init__(self, nodes: Mapping[int, Node]) -> None:
        self.members, self.now, self.at = dict(nodes), 0.0, dict[float, Callable[[], None]]()
        self.introductions: list[int] = []
        self.refused: set[int] = set()
        self._count, self._mail = 0, dict[str, tuple[float, bytes | ProtocolError | None]]()

    def clock(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for moment in [moment for moment in self.at if moment <= self.now]:
            self.at.pop(moment)()

    def nodes(self) -> set[int]:
        return set(self.members)

    def send(self, kind: str, contents: Mapping[int, bytes], lifetime_sec: float) -> dict[str, int]:
        assert lifetime_sec > 0
        sent = {}
        for number, content in contents.items():
            if number in self.refused:
                continue
            node, self._count = self.members[number], self._count + 1
            if kind == "query.site":
                self.introductions.append(number)
                reply: bytes | ProtocolError | None = node.site.encode()
            else:
                node.heard.append(content)
                reply = node.answer(content)
            self._mail[str(self._count)] = (self.now + node.delay_sec, reply)
            sent[str(self._count)] = number
        return sent

    def collect(self, messages: Collection[str], names: Mapping[str, str]) -> dict[str, bytes | ProtocolError]:
        there = {}
        for message in messages:
            moment, reply = self._mail[message]  # a KeyError: it was collected before
            if moment <= self.now and reply is not None:
                there[message] = reply
                del self._mail[message]
        return there
