"""The uploads of a round at one server: opened, agreed upon with the other server, or refused.

Parties: the two servers, clients of whom some lie or fail, and the coordinator, which says who uploads. Whatever a
client sends costs its own part only: an envelope of another length than the round's is refused before it is opened, one
that does not open or is meant for another place is refused, and an upload is used only once both servers hold its
halves and these are of one upload. Until then it waits here, and nothing has been computed with it.
What a server learns: which uploads the other one refused, and hashes of what it holds itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import msgpack

from orchestrator.errors import DisagreementError
from orchestrator.transport.channel import Channel
from orchestrator.wire.answer import check_reply_key
from orchestrator.wire.envelope import Keypair
from orchestrator.wire.message import Header
from orchestrator.wire.upload import DIGEST_BYTES, SIGNATURE_BYTES, Layout, Upload, unpack_upload

__all__ = ["Reception", "Seat", "hearsay"]

_HEARSAY = "the other server has no valid upload of it"

Seat = tuple[int, int]
"""A slot and the client in it."""

_NONE = bytes(DIGEST_BYTES)
"""Stands for an upload that a server does not hold."""


def hearsay(reason: str) -> bool:
    """Whether the reason of a refusal says no more than that the other server has one."""
    return reason == _HEARSAY


class Reception:
    """One round's uploads at one server.

    Attributes:
        refused: by slot, why the client is left out; known to be so at both servers once the slot is settled.
    """

    def __init__(
        self,
        index: int,
        keypair: Keypair,
        witnessed: Callable[[Upload], Upload] = lambda upload: upload,
        signed_by: Callable[[int, bytes, bytes], bool] | None = None,
    ) -> None:
        """Args:
        index: of this server.
        keypair: the one that uploads are sealed to.
        witnessed: adds `Upload.witness`, where it is needed.
        signed_by: whether a client made a signature of a message; None: uploads are not signed.
        """
        self._index, self._keypair, self._witnessed, self._signed_by = index, keypair, witnessed, signed_by
        self._clients: dict[int, int] = {}  # by slot, whose upload came first, or was asked about
        self._waiting: dict[int, Upload] = {}
        self._settled: set[int] = set()
        self.refused: dict[int, str] = {}

    def take(self, run: bytes, round: int, place: Seat, envelope: bytes, layout: Layout) -> None:
        """Open one client's envelope and let it wait. The first upload for a slot counts; others are dropped."""
        slot, client = place
        if slot in self._clients:
            return
        self._clients[slot] = client
        expected = layout.envelope_bytes(self._index)
        try:
            if len(envelope) != expected:
                raise ValueError(f"the envelope has {len(envelope)} bytes, expected {expected}")
            header = Header(run, round, slot, client, self._index)
            message = self._keypair.open(envelope)
            if self._signed_by is not None:
                message, signature = message[:-SIGNATURE_BYTES], message[-SIGNATURE_BYTES:]
                if not self._signed_by(client, message, signature):
                    raise ValueError("its signature is not the client's")
            upload = unpack_upload(message, header, layout)
            if layout.answered:
                check_reply_key(upload.reply_key)
            self._waiting[slot] = self._witnessed(upload)
        except ValueError as error:
            self.refused[slot] = str(error)

    def settle(self, round: int, places: Sequence[Seat], peer: Channel) -> dict[int, Upload]:
        """Agree with the other server on uploads; returns those that both hold alike, by slot. One exchange.

        Bytes: 32 and 32 a place from each server. Leakage: which of these uploads a server refuses.

        Raises:
            ValueError: a place is settled already, or its upload came from another client.
            DisagreementError: the other server was asked about other places.
        """
        for slot, client in places:
            if slot in self._settled or self._clients.setdefault(slot, client) != client:
                raise ValueError(f"asked about slot {slot} twice, or for another client than its upload came from")
            self._settled.add(slot)
        asked = hashlib.sha256(msgpack.packb([round, [list(place) for place in places]])).digest()
        own = [self._waiting[slot].digest if slot in self._waiting else _NONE for slot, _ in places]
        received = peer.exchange(asked + b"".join(own))
        if received[:DIGEST_BYTES] != asked:
            raise peer.error(DisagreementError, "was asked about other uploads")
        agreed: dict[int, Upload] = {}
        for k, (slot, _) in enumerate(places):
            theirs, upload = received[(k + 1) * DIGEST_BYTES :][:DIGEST_BYTES], self._waiting.pop(slot, None)
            if upload is not None and upload.digest == theirs:
                agreed[slot] = upload
            elif upload is None:
                self.refused.setdefault(slot, "nothing arrived")
            elif theirs == _NONE:
                self.refused[slot] = _HEARSAY
            else:
                self.refused[slot] = "the halves for both servers are not of one upload"
        return agreed

    def open_places(self, cohort: Sequence[int]) -> list[Seat]:
        """The places of a cohort that are not settled yet.

        Raises:
            ValueError: uploads came for places that the cohort does not have.
        """
        places = dict(enumerate(cohort))
        if any(places.get(slot) != client for slot, client in self._clients.items()):
            came = sorted(self._clients.items())
            raise ValueError(f"announced the cohort {list(cohort)}, but uploads came for (slot, client) {came}")
        return [(slot, client) for slot, client in places.items() if slot not in self._settled]
