"""The embedded engine's part in a client's process: encode, share, seal.

Plaintext goes in; what comes out is one envelope for each server, unreadable to whoever carries them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mpc_programs.rules import RoundParameters
from orchestrator.client.admission import admit
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import COUNT_BITS, SCALAR_BITS, VectorFormat
from orchestrator.privacy.noise import noise_ring64
from orchestrator.wire.envelope import seal
from orchestrator.wire.message import Place
from orchestrator.wire.upload import Layout, share_update

__all__ = ["SealingEncoder"]


@dataclass(frozen=True)
class SealingEncoder:
    """Callable as `orchestrator.coordinator.engine.Encoder`; returns (envelope for server 0, envelope for server 1).

    Attributes:
        run: the number of the servers' start.
        public_keys: of server 0 and server 1.
        parameters, vectors: the public side of the round, and the format.
        clip_norm: C; None where updates are not clipped.
        program: what the servers do with the vectors.
        confine: whether what cannot be encoded is brought into range, which runs with noise do, or refused.
        noise_stddev: of the noise that the client adds, fresh for each upload; 0 where clients add none.
        counted: whether the client also shares whether its norm is at most C.
        offer: what whoever seals may want to see before it believes the keys; see `coordinator.servers`.
        sign: the client's signature of an upload, which then travels inside its envelope; None: there is none.
    """

    run: bytes
    public_keys: tuple[bytes, bytes]
    parameters: RoundParameters
    vectors: VectorFormat
    clip_norm: float | None
    program: str = "assisted"
    confine: bool = False
    counted: bool = False
    noise_stddev: float = 0.0
    offer: bytes = field(default=b"", repr=False)
    sign: Callable[[bytes], bytes] | None = None

    def __call__(self, update: LocalUpdate, place: Place, reply_key: bytes = b"") -> tuple[bytes, bytes]:
        """The norm that is shared is that of the update as it is shared, not the one given.

        Under a personal rule the update is prepared for as many weights as the cohort has clients, which `parameters`
        say, and the reply key travels inside both envelopes, where whoever carries them cannot change it.

        Raises:
            RangeError: an update is refused; see `admit`.
        """
        encoded, named = admit(self.vectors, self.parameters, update, place, confine=self.confine)
        values = [float(value) for score in named.values() for value in np.ravel(score)]
        if self.clip_norm is not None:
            length, bit = self.vectors.norm(encoded), COUNT_BITS  # at which the servers add these up
            if self.parameters.bound is None:
                values.append(length / self.clip_norm)
            else:
                encoded, bit = self.vectors.shorten_update(encoded, self.parameters.bound), 0
            if self.counted:
                values.append(math.ldexp(length <= self.clip_norm, bit - SCALAR_BITS))
        headers = [place.header(self.run, server) for server in (0, 1)]
        counted = self.counted and self.clip_norm is not None
        layout = Layout.of_round(self.parameters, self.program, len(encoded), counted)
        own_key = reply_key if self.parameters.personal else b""
        noise = None
        if self.noise_stddev:
            noise = noise_ring64(len(encoded), self.noise_stddev, self.vectors.model_bits)
        first, second = share_update(encoded, values, headers, layout, own_key, noise)
        if self.sign is not None:
            first, second = first + self.sign(first), second + self.sign(second)
        return seal(first, self.public_keys[0]), seal(second, self.public_keys[1])
