"""An engine's servers as services of two organisations: the coordinator finds them by the roster, and proposes a run.

Parties: the coordinator, the two aggregators. What the coordinator learns of a service: its signed key for the session,
or why it refuses. Channels: mutual TLS, each service by its certificate in the roster.
"""

from __future__ import annotations

import secrets

from orchestrator.agreement.roster import Roster
from orchestrator.agreement.terms import Offer, RunTerms
from orchestrator.coordinator.servers import Met, Servers
from orchestrator.errors import ConsentError, DisagreementError
from orchestrator.transport.channel import Channel, Position
from orchestrator.transport.door import SESSION_BYTES, connect
from orchestrator.transport.tls import Identity
from orchestrator.wire.orders import Propose

__all__ = ["Services"]

_LONGEST_ANSWER = 1 << 12


class Services(Servers):
    """Both aggregators' services, for a run on its terms."""

    signed = True

    def __init__(self, roster: Roster, identity: Identity, terms: RunTerms, startup_timeout_sec: float) -> None:
        """
        Args:
            identity: the coordinator's, of the roster.
            terms: of the run, or of a sum beside its rounds.
            startup_timeout_sec: for each connection and each answer.
        """
        self._roster, self._identity, self._terms = roster, identity, terms.to_bytes()
        self._startup_timeout_sec = startup_timeout_sec

    def meet(self, run: bytes, position: Position) -> Met:
        session = secrets.token_bytes(SESSION_BYTES)
        channels: dict[str, Channel] = {}
        keys: list[bytes] = []
        signatures: list[bytes] = []
        try:
            for index, aggregator in enumerate(self._roster.aggregators):
                role = f"server {index}"
                assert aggregator.address is not None  # a roster gives every aggregator one
                channels[role] = connect(
                    aggregator.address, self._identity, session, role, position, self._startup_timeout_sec
                )
            for channel in channels.values():
                channel.send_message(Propose(run, self._terms).message())
            for index, channel in enumerate(channels.values()):
                key, signature = self._answer(index, channel)
                keys.append(key)
                signatures.append(signature)
            offer = Offer(run, self._terms, (keys[0], keys[1]), (signatures[0], signatures[1]))
            offer.check(self._roster)
        except BaseException:
            for channel in channels.values():
                channel.close()
            raise
        address = self._roster.aggregators[1].address
        assert address is not None
        return Met(channels, offer.keys, address, offer=offer.to_bytes())

    def _answer(self, index: int, channel: Channel) -> tuple[bytes, bytes]:
        """A service's key and signature. Raises ConsentError where it refuses."""
        answer = channel.receive_message(_LONGEST_ANSWER)
        name = self._roster.aggregators[index].name
        if answer.get("type") == "refused":
            raise ConsentError(f"aggregator {name} refuses: {' '.join(str(answer.get('reason')).split())[:400]}")
        key, signature = answer.get("public_key"), answer.get("signature")
        if answer.get("type") != "offer" or not isinstance(key, bytes) or not isinstance(signature, bytes):
            raise channel.error(DisagreementError, "answered a proposal with something else than a key or a refusal")
        return key, signature

    def obituary(self, role: str) -> str:
        return "closed the connection"

    def close(self) -> None:
        """Nothing was started here."""
