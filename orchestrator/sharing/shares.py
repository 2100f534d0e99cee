"""Share types. A share belongs to one server and one scale; mixing owners or scales by mistake raises.

There is no method here that reveals anything: see `orchestrator.engines.embedded.openings`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.sharing.ring import MASK128, truncate128

__all__ = ["BitShare", "ScalarShare", "VectorShare"]


@dataclass(frozen=True, eq=False)
class ScalarShare:
    """One server's additive share in Z_2^128 of a vector of fixed-point numbers.

    Attributes:
        values: object array of Python integers in [0, 2^128), shape (n,).
        scale_bits: fractional bits f.
        owner: 0 or 1. Server 0 adds public constants, so that they are added once.
    """

    values: np.ndarray
    scale_bits: int
    owner: int

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: slice) -> ScalarShare:
        return ScalarShare(self.values[index], self.scale_bits, self.owner)

    def __add__(self, other: ScalarShare | float | Sequence[float]) -> ScalarShare:
        if isinstance(other, ScalarShare):
            self._same(other)
            return self._with(self.values + other.values & MASK128)
        if self.owner == 1:
            return self
        return self._with(self.values + encode_public(other, self.scale_bits) & MASK128)

    __radd__ = __add__

    def __neg__(self) -> ScalarShare:
        return self._with(-self.values & MASK128)

    def __sub__(self, other: ScalarShare | float | Sequence[float]) -> ScalarShare:
        if isinstance(other, ScalarShare):
            self._same(other)
            return self._with(self.values - other.values & MASK128)
        if self.owner == 1:
            return self
        return self._with(self.values - encode_public(other, self.scale_bits) & MASK128)

    def __rsub__(self, other: float | Sequence[float]) -> ScalarShare:
        return -self + other

    def __mul__(self, constant: float) -> ScalarShare:
        """Product with a public number, truncated back to this scale.

        A constant below 1 is encoded with as many more bits (up to 16) as it has leading zeros, which leaves the
        size of the product as it is. Error: at most 1 + |x| min(1, max(|constant|, 2^-16)) units.
        """
        bits = self.scale_bits + min(16, max(0, -math.frexp(constant)[1]))
        scaled = self.values * encode_public(constant, bits) & MASK128
        return self._with(truncate128(scaled, bits, self.owner))

    __rmul__ = __mul__

    def _with(self, values: np.ndarray) -> ScalarShare:
        return ScalarShare(values, self.scale_bits, self.owner)

    def _same(self, other: ScalarShare) -> None:
        if self.owner != other.owner or self.scale_bits != other.scale_bits:
            raise TypeError(
                f"shares of owner {self.owner} at scale {self.scale_bits} and of owner {other.owner} "
                f"at scale {other.scale_bits} do not mix"
            )


@dataclass(frozen=True, eq=False)
class BitShare:
    """One server's XOR share of secret bits: uint8 of 0 or 1, shape (n,)."""

    values: np.ndarray
    owner: int

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, eq=False)
class VectorShare:
    """One server's additive share in Z_2^64 of a long vector: uint64, shape (d,), with its scale."""

    values: np.ndarray
    scale_bits: int
    owner: int


def encode_public(constant: float | Sequence[float], bits: int) -> np.ndarray | int:
    """A public number, or a list of them, at a scale, as Python integers (not reduced)."""
    if isinstance(constant, int | float):
        return round(constant * (1 << bits))
    return np.array([round(value * (1 << bits)) for value in constant], dtype=object)
