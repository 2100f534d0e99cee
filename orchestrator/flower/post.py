"""Flower's grid as what carries the coordinator's messages."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import httpx
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from orchestrator.errors import PeerLostError, PeerTimeoutError, ProtocolError
from orchestrator.flower.parcel import packed, raised, unpacked

__all__ = ["FlowerPost"]

_EXPIRED = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)


class FlowerPost:
    """Implements `orchestrator.flower.grid_sites.Post`."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def nodes(self) -> set[int]:
        try:
            return set(self._grid.get_node_ids())
        except httpx.HTTPError as error:
            raise _link(error) from None

    def send(self, kind: str, contents: Mapping[int, bytes], lifetime_sec: float) -> dict[str, int]:
        letters = [Message(packed(content), node, kind, ttl=lifetime_sec) for node, content in contents.items()]
        try:
            names = list(self._grid.push_messages(letters))
        except httpx.HTTPError as error:
            raise _link(error) from None
        return {name: node for name, node in zip(names, contents, strict=True) if name}

    def collect(self, messages: Collection[str], names: Mapping[str, str]) -> dict[str, bytes | ProtocolError]:
        if not messages:
            return {}
        try:
            letters = self._grid.pull_messages(list(messages))
        except httpx.HTTPError as error:
            raise _link(error) from None
        return {
            letter.metadata.reply_to_message_id: _reply(letter, names.get(letter.metadata.reply_to_message_id, "?"))
            for letter in letters
        }


def _reply(letter: Message, site: str) -> bytes | ProtocolError:
    if letter.has_error():
        return _error(letter.error, site)
    if (said := raised(letter.content, site)) is not None:
        return said
    try:
        return unpacked(letter.content)
    except ValueError as error:
        return PeerLostError(f"site {site}", "flower", 0, f"its reply cannot be read: {error}")


def _error(error: Error, site: str) -> ProtocolError:
    if error.code in _EXPIRED:
        return PeerTimeoutError(f"site {site}", "flower", 0, "its message expired")
    codes = {code: name for name, code in vars(ErrorCode).items() if isinstance(code, int)}
    said = codes.get(error.code, str(error.code)).lower().replace("_", " ")
    return PeerLostError(f"site {site}", "flower", 0, f"Flower says: {said}")


def _link(error: httpx.HTTPError) -> PeerLostError:
    return PeerLostError("the SuperLink", "flower", 0, type(error).__name__)
