"""The embedded engine's part in a client's process: encode, share, seal.

Plaintext goes in; what comes out is one envelope for each server, unreadable to whoever carries them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mpc_programs.rules import RULES, RoundParameters
from orchestrator.errors import RangeError
from orchestrator.sharing.envelope import seal
from orchestrator.sharing.fixed_point import VectorFormat
from orchestrator.sharing.upload import UploadHeader, share_update

__all__ = ["SealingEncoder"]


@dataclass(frozen=True)
class SealingEncoder:
    """Callable as `orchestrator.engines.base.Encoder`; returns (envelope for server 0, envelope for server 1)."""

    run: bytes
    public_keys: tuple[bytes, bytes]
    parameters: RoundParameters
    vectors: VectorFormat
    clip_norm: float | None
    program: str = "assisted"

    def __call__(
        self, delta: np.ndarray, norm: float, scores: Mapping[str, float], round: int, slot: int, client: int
    ) -> tuple[bytes, bytes]:
        """Raises RangeError, naming the client but no secret value, where one is not finite or out of range."""
        try:
            update = self.vectors.encode_update(delta, norm)
            values = [_within(name, scores, low, high) for name, (low, high) in self._ranges()]
        except RangeError as error:
            raise RangeError(f"round {round}, client {client}: {error}") from None
        if self.clip_norm is not None:
            values.append(norm / self.clip_norm)
        headers = [UploadHeader(self.run, round, slot, client, server) for server in (0, 1)]
        first, second = share_update(update, values, headers, self.program)
        return seal(first, self.public_keys[0]), seal(second, self.public_keys[1])

    def _ranges(self) -> list[tuple[str, tuple[float, float]]]:
        return list(RULES[self.parameters.rule].ranges(self.parameters).items())


def _within(name: str, scores: Mapping[str, float], low: float, high: float) -> float:
    value = scores[name]
    if not low <= value <= high:
        raise RangeError(f"the {name} score lies outside its public range [{low:g}, {high:g}]")
    return value
