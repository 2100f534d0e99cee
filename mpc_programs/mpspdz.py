"""The backend of `arithmetic` at MP-SPDZ's compile time: fixed-point vectors of registers.

Imported by the `.mpc` programs only, from inside MP-SPDZ's compiler, whose modules are found nowhere else. Nothing is
computed here: every operation becomes instructions. The compiler itself merges what may be opened together, so
coroutines run one after the other (`run_locally`) and still share rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from Compiler.types import cfix, cint, sfix, sint

__all__ = ["Arithmetic", "Numbers", "read_numbers"]


class Numbers:
    """A vector of secret fixed-point numbers with the operators that `arithmetic` uses."""

    def __init__(self, value: sfix) -> None:
        self.value = value

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, index: slice) -> Numbers:
        start, stop, _ = index.indices(len(self))
        return Numbers(self.value.get_vector(start, stop - start))

    def __add__(self, other: Any) -> Numbers:
        return Numbers(self.value + _operand(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Numbers:
        return Numbers(self.value - _operand(other))

    def __rsub__(self, other: Any) -> Numbers:
        return Numbers(_operand(other) - self.value)

    def __mul__(self, constant: float) -> Numbers:
        return Numbers(self.value * float(constant))

    __rmul__ = __mul__


def _operand(other: Any) -> Any:
    if isinstance(other, Numbers):
        return other.value
    return other if isinstance(other, int | float) else _public(other)


def _public(values: Sequence[float]) -> cfix:
    """Public numbers as one vector at the program's precision."""
    encoded = [cint(round(value * (1 << sfix.f))) for value in values]
    return cfix._new(cint.concat(encoded) if len(encoded) > 1 else encoded[0], k=sfix.k, f=sfix.f)


def read_numbers(start: int, columns: int, size: int) -> list[Numbers]:
    """Consecutive vectors of a party's file of shares, at the program's precision."""
    _, shares = sint.read_from_file(start, n_items=columns, size=size)
    return [Numbers(sfix._new(share, k=sfix.k, f=sfix.f)) for share in shares]


class Arithmetic:
    """`ops` of `arithmetic`; secret bits are `sint` vectors of 0 and 1, and `numbers` leaves them as they are."""

    def constants(self, values: Sequence[float]) -> Numbers:
        return Numbers(sfix._new(sint(_public(values).v), k=sfix.k, f=sfix.f))

    def take(self, x: Numbers | sint, indices: Sequence[int]) -> Numbers | sint:
        if isinstance(x, Numbers):
            return Numbers(sfix.concat([x.value.get_vector(i, 1) for i in indices]))
        return sint.concat([x.get_vector(i, 1) for i in indices])

    def sums(self, x: Numbers, groups: int) -> Numbers:
        size = len(x) // groups
        return Numbers(sfix.concat([x.value.get_vector(k * size, size).sum() for k in range(groups)]))

    def concat(self, parts: Sequence[Numbers] | Sequence[sint]) -> Numbers | sint:
        if isinstance(parts[0], Numbers):
            return Numbers(sfix.concat([part.value for part in parts]))
        return sint.concat(list(parts))

    def weigh(self, bits: sint, constants: Sequence[float]) -> Numbers:
        return Numbers(sfix._new(bits * _public(constants).v, k=sfix.k, f=sfix.f))

    def negate(self, bits: sint) -> sint:
        return 1 - bits

    async def multiply(self, x: Numbers | sint, y: Numbers | sint) -> Numbers:
        if not isinstance(x, Numbers):
            x, y = y, x
        return Numbers(x.value * (y.value if isinstance(y, Numbers) else y))

    async def less(self, x: Numbers, y: Any) -> sint:
        return x.value < _operand(y)

    async def all(self, bits: sint, groups: int) -> sint:
        size = len(bits) // groups
        while size > 1:
            half, odd = divmod(size, 2)
            starts = range(0, len(bits), size)
            left = sint.concat([bits.get_vector(start, half) for start in starts])
            right = sint.concat([bits.get_vector(start + half, half) for start in starts])
            products = left * right
            parts = []
            for group, start in enumerate(starts):
                parts.append(products.get_vector(group * half, half))
                if odd:
                    parts.append(bits.get_vector(start + size - 1, 1))
            bits, size = sint.concat(parts), half + odd
        return bits

    async def numbers(self, bits: sint) -> sint:
        return bits
