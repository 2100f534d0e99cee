"""What an engine puts into a client's process: whatever leaves the client, or comes back to it, passes through it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from orchestrator.methods.base import LocalUpdate
from orchestrator.wire.envelope import Keypair
from orchestrator.wire.message import Place

__all__ = ["Decoder", "Encoder"]


class Encoder(Protocol):
    """The engine's part inside a client's process; must survive pickling. Its result is all that leaves the client."""

    def __call__(self, update: LocalUpdate, place: Place, reply_key: bytes = b"") -> Any:
        """Encode one update.

        Args:
            reply_key: the public key that the client's answer is sealed to; ignored unless the rule is personal.

        Raises:
            RangeError: it cannot be represented, and the run has no noise.
        """


class Decoder(Protocol):
    """The other part inside a client's process, under personal rules; must survive pickling."""

    def __call__(self, answer: Any, keypair: Keypair, place: Place) -> np.ndarray:
        """The client's own model, float64 (d,), from its element of `Aggregation.answers` (coordinator).

        Args:
            keypair: the one whose public half the client gave to its encoder.

        Raises:
            ProtocolError: the answer is damaged, or meant for another run, round, slot or client.
            RangeError: the model left the representable range.
        """
