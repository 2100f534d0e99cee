"""The encoder of a client that clips its update and adds its part of the noise, under masks that hide it in the sum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpc_programs.rules import RoundParameters
from orchestrator.client.admission import admit
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.privacy.noise import noise_ring64
from orchestrator.wire.message import Place

__all__ = ["NoisyEncoder"]


@dataclass(frozen=True)
class NoisyEncoder:
    """Returns the noisy update, uint64 (d,) at `model_bits`; the noise is that much finer than the update's grid.

    Attributes:
        clip_norm: C; the update as it is encoded is no longer.
        noise_stddev: absolute, of the noise, fresh for each update.
    """

    parameters: RoundParameters
    vectors: VectorFormat
    clip_norm: float
    noise_stddev: float

    def __call__(self, update: LocalUpdate, place: Place, reply_key: bytes = b"") -> np.ndarray:
        encoded, _ = admit(self.vectors, self.parameters, update, place, confine=True)
        clipped = self.vectors.shorten_update(encoded, self.clip_norm) << np.uint64(self.vectors.weight_bits)
        return clipped + noise_ring64(len(clipped), self.noise_stddev, self.vectors.model_bits)
