"""What an engine puts into a client's process: whatever leaves the client, or comes back to it, passes through it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from orchestrator.wire.envelope import Keypair

__all__ = ["Decoder", "Encoder"]


class Encoder(Protocol):
    """The engine's part inside a client's process; must survive pickling. Its result is all that leaves the client."""

    def __call__(
        self,
        delta: np.ndarray,
        norm: float,
        scores: Mapping[str, float | np.ndarray],
        round: int,
        slot: int,
        client: int,
        reply_key: bytes = b"",
    ) -> Any:
        """Encode one update.

        Args:
            scores: what the rule takes: numbers, or float64 vectors.
            reply_key: the public key that the client's answer is sealed to; ignored unless the rule is personal.

        Raises:
            RangeError: it cannot be represented, and the run has no noise.
        """


class Decoder(Protocol):
    """The other part inside a client's process, under personal rules; must survive pickling."""

    def __call__(self, answer: Any, keypair: Keypair, round: int, slot: int, client: int) -> np.ndarray:
        """The client's own model, float64 (d,), from its element of `Aggregation.answers` (coordinator).

        Args:
            keypair: the one whose public half the client gave to its encoder.

        Raises:
            ProtocolError: the answer is damaged, or meant for another run, round, slot or client.
            RangeError: the model left the representable range.
        """
