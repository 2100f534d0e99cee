"""The embedded engine's other part in a client's process: open both servers' answers and add them.

It is the one place where a personalised model becomes known. What both shares show together: see `server.aggregation`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.errors import DisagreementError
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.mpc.openings import release
from orchestrator.mpc.shares import VectorShare
from orchestrator.wire.answer import open_answer
from orchestrator.wire.envelope import Keypair
from orchestrator.wire.message import Place

__all__ = ["OpeningDecoder"]


@dataclass(frozen=True)
class OpeningDecoder:
    """Callable as `orchestrator.coordinator.engine.Decoder`, on (envelope of server 0, envelope of server 1).

    Attributes:
        run: the number of the servers' start.
        vectors: the format of the model.
        length: d.
    """

    run: bytes
    vectors: VectorFormat
    length: int

    def __call__(self, answer: tuple[bytes, bytes], keypair: Keypair, place: Place) -> np.ndarray:
        """
        Raises:
            DisagreementError: naming the server whose envelope is damaged, or meant for another client or round.
            RangeError: the model left the range that the format can carry.
        """
        shares = []
        for server, envelope in enumerate(answer):
            try:
                share = open_answer(envelope, keypair, place.header(self.run, server), self.length)
            except ValueError as error:
                raise DisagreementError(
                    f"server {server}", "release", place.round, f"client {place.client}: {error}"
                ) from None
            shares.append(VectorShare(share, self.vectors.model_bits, server))
        return self.vectors.decode_model(release(*shares, reason="a client's own model is its result of the round"))
