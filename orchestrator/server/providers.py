"""Where a server's correlations come from: the other server, by oblivious transfer, or a dealer.

Parties, adversary, what each learns: as in `mpc.offline.generation` and `server.dealer`. Channel: `supply`, on which
nothing else is said. One thread at a time uses a provider, that of the server's pool.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import astuple

from orchestrator.errors import DisagreementError
from orchestrator.mpc.offline.correlations import Batch, Demand
from orchestrator.mpc.offline.generation import generate
from orchestrator.mpc.offline.oblivious_transfer import OtExtension
from orchestrator.server.base import run_with
from orchestrator.transport.channel import Channel

__all__ = ["Provider", "provider_of"]


class Provider(ABC):
    """Makes this server's halves of fresh correlations, while clients train.

    Args:
        supply: the connection to whoever the other halves, or both, are made with.
        index: of this server.
    """

    def __init__(self, supply: Channel, index: int) -> None:
        self._supply, self._index = supply, index

    @abstractmethod
    def make(self, round: int, needed: Demand) -> Batch:
        """For a round; both servers ask for the same. Raises DisagreementError for a message that is none."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """What correlations have cost since the start: of this server what it sent, of a dealer what it sent here."""


class TransferProvider(Provider):
    """With the other server; base transfers are made once, at the start."""

    def __init__(self, supply: Channel, index: int) -> None:
        super().__init__(supply, index)
        supply.position.enter("preprocessing", 0)
        self._transfers = run_with(OtExtension.create(), supply)

    def make(self, round: int, needed: Demand) -> Batch:
        return run_with(generate(self._transfers, self._index, needed), self._supply)

    @property
    def bytes(self) -> int:
        return self._supply.sent_bytes


class DealerProvider(Provider):
    """From a dealer, which is told the round and the counts."""

    def make(self, round: int, needed: Demand) -> Batch:
        self._supply.send_message({"round": round, "demand": astuple(needed)})
        message = self._supply.receive(needed.message_bytes(self._index))
        try:
            return Batch.from_dealer(needed, self._index, message)
        except ValueError as error:
            raise self._supply.error(DisagreementError, str(error)) from None

    @property
    def bytes(self) -> int:
        return self._supply.received_bytes


def provider_of(supply: Channel, index: int) -> Provider:
    """By who is at the other end."""
    return (DealerProvider if supply.peer == "dealer" else TransferProvider)(supply, index)
