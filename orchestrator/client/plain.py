"""Encoders and decoder of a client whose update is not protected: the plaintext engine's, and those of an audit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mpc_programs.rules import RoundParameters
from orchestrator.client.admission import admit
from orchestrator.errors import RangeError
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.wire.envelope import Keypair
from orchestrator.wire.message import Place

__all__ = ["AuditEncoder", "SimulatingEncoder", "is_finite", "plain_decoder", "plain_encoder"]


def plain_encoder(update: LocalUpdate, place: Place, reply_key: bytes = b"") -> LocalUpdate:
    """The encoder of the plaintext engine. Raises RangeError for an update that is not finite."""
    if not is_finite(update):
        raise RangeError(f"{place}: the update holds NaN or infinity")
    return update


def is_finite(update: LocalUpdate) -> bool:
    """Whether neither the update nor a score holds NaN or infinity."""
    return all(np.isfinite(value).all() for value in (update.delta, update.norm, *update.scores.values()))


def plain_decoder(answer: np.ndarray, keypair: Keypair, place: Place) -> np.ndarray:
    """The decoder of the plaintext engine, whose answers are the models themselves."""
    return answer


@dataclass(frozen=True)
class AuditEncoder:
    """What another engine's encoder is given, in plaintext, with the norm that this shares: the encoded update's."""

    vectors: VectorFormat

    def __call__(self, update: LocalUpdate, place: Place, reply_key: bytes = b"") -> LocalUpdate:
        return replace(plain_encoder(update, place), norm=self.vectors.norm(self.vectors.encode_update(update.delta)))


@dataclass(frozen=True)
class SimulatingEncoder:
    """What shares of an update in a run with noise would hold: on their grid, in their ranges, never refused."""

    parameters: RoundParameters
    vectors: VectorFormat

    def __call__(self, update: LocalUpdate, place: Place, reply_key: bytes = b"") -> LocalUpdate:
        encoded, values = admit(self.vectors, self.parameters, update, place, confine=True)
        return LocalUpdate(self.vectors.decode_update(encoded), self.vectors.norm(encoded), values)
