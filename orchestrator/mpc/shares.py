"""Share types. A share belongs to one server and one scale; mixing owners or scales by mistake raises.

There is no method here that reveals anything: see `orchestrator.mpc.openings`. No `repr` shows a share's
values, so that none gets into a log, a traceback or the text of a failed assertion. The types of scalars and bits are
made some hundred times a round and are not frozen, which would make that three times as dear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from orchestrator.mpc.ring import MASK128

__all__ = ["BitShare", "ScalarShare", "VectorShare", "encode_public"]


@dataclass(slots=True, eq=False)
class ScalarShare:
    """One server's additive share in Z_2^128 of a vector of n fixed-point numbers.

    Attributes:
        values: n integers in [0, 2^128).
        scale_bits: fractional bits f.
        owner: 0 or 1. Server 0 adds public constants, so that they are added once.
    """

    values: list[int] = field(repr=False)
    scale_bits: int
    owner: int

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: slice) -> ScalarShare:
        return self._with(self.values[index])

    def __add__(self, other: ScalarShare | float | Sequence[float]) -> ScalarShare:
        if isinstance(other, ScalarShare):
            self._same(other)
            return self._with([x + y & MASK128 for x, y in zip(self.values, other.values, strict=True)])
        if self.owner == 1:
            return self
        return self._with([x + c & MASK128 for x, c in zip(self.values, self._encode(other), strict=True)])

    __radd__ = __add__

    def __neg__(self) -> ScalarShare:
        return self._with([-x & MASK128 for x in self.values])

    def __sub__(self, other: ScalarShare | float | Sequence[float]) -> ScalarShare:
        if isinstance(other, ScalarShare):
            self._same(other)
            return self._with([x - y & MASK128 for x, y in zip(self.values, other.values, strict=True)])
        if self.owner == 1:
            return self
        return self._with([x - c & MASK128 for x, c in zip(self.values, self._encode(other), strict=True)])

    def __rsub__(self, other: float | Sequence[float]) -> ScalarShare:
        return -self + other

    def _with(self, values: list[int]) -> ScalarShare:
        return ScalarShare(values, self.scale_bits, self.owner)

    def _encode(self, constants: float | Sequence[float]) -> list[int]:
        if isinstance(constants, int | float):
            return [encode_public(constants, self.scale_bits)] * len(self.values)
        return [encode_public(constant, self.scale_bits) for constant in constants]

    def _same(self, other: ScalarShare) -> None:
        if self.owner != other.owner or self.scale_bits != other.scale_bits:
            raise TypeError(
                f"shares of owner {self.owner} at scale {self.scale_bits} and of owner {other.owner} "
                f"at scale {other.scale_bits} do not mix"
            )


@dataclass(slots=True, eq=False)
class BitShare:
    """One server's XOR share of a vector of secret bits.

    Attributes:
        bits: all of them in one integer, in [0, 2^count); bit i is element i.
        count: how many.
        owner: 0 or 1. Server 0 flips bits where a public 1 is added.
    """

    bits: int = field(repr=False)
    count: int
    owner: int

    def __len__(self) -> int:
        return self.count


@dataclass(frozen=True, eq=False)
class VectorShare:
    """One server's additive share in Z_2^64 of a long vector: uint64, shape (d,), with its scale."""

    values: np.ndarray = field(repr=False)
    scale_bits: int
    owner: int


def encode_public(constant: float, bits: int) -> int:
    """A public number at a scale, not reduced; below half a unit off."""
    return round(constant * (1 << bits))
