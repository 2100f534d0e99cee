"""The two servers as an engine gets hold of them: started here, or services of two organisations that are there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.transport.channel import Channel, Position

__all__ = ["Met", "Servers"]


@dataclass(frozen=True)
class Met:
    """Both servers, ready to be set up.

    Attributes:
        channels: by role.
        public_keys: of server 0 and server 1, to which uploads are sealed.
        peer, dealer: where server 0 finds server 1, and both the dealer; None where there is none.
        offer: what clients are shown to believe the keys; empty where nobody signed them.
    """

    channels: dict[str, Channel]
    public_keys: tuple[bytes, bytes]
    peer: tuple[str, int]
    dealer: tuple[str, int] | None = None
    offer: bytes = field(default=b"", repr=False)


class Servers(ABC):
    """Where an engine's servers come from.

    Attributes:
        signed: whether every upload carries its client's signature.
    """

    signed = False

    @abstractmethod
    def meet(self, run: bytes, position: Position) -> Met:
        """Connect to both, starting them first where that is to be done; nothing is left open where it fails.

        Args:
            run: 16 bytes, fresh.
            position: of the engine, for errors.

        Raises:
            ConfigError: they cannot be started as they are configured.
            ConsentError: a service refuses the terms.
            ProtocolError: one is not there, or says nothing in time.
        """

    @abstractmethod
    def obituary(self, role: str) -> str:
        """Why the connection to a role has ended, as far as that can be known here."""

    @abstractmethod
    def close(self) -> None:
        """End what was started here; safe to call twice."""

    @property
    def pids(self) -> Mapping[str, int]:
        """Process ids by role, of what was started here."""
        return {}
