"""The backend of `arithmetic` at MP-SPDZ's compile time: fixed-point vectors of registers.

Imported by the `.mpc` programs only, from inside MP-SPDZ's compiler, whose modules are found nowhere else. Nothing is
computed here: every operation becomes instructions. The compiler itself merges what may be opened together, so
coroutines run one after the other (`run_locally`) and still share rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from Compiler.types import cfix, cint, sfix, sint

__all__ = ["Arithmetic", "Numbers", "read_numbers"]


class Vector:
    """A vector of registers, sfix or sint, that can be sliced like the embedded engine's shares."""

    def __init__(self, value: sfix | sint) -> None:
        self.value = value

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, index: slice) -> Vector:
        start, stop, _ = index.indices(len(self))
        return type(self)(self.value.get_vector(start, stop - start))


class Bits(Vector):
    """Secret bits: integers that are 0 or 1."""


class Numbers(Vector):
    """Secret fixed-point numbers, with the operators that `arithmetic` uses."""

    def __add__(self, other: Any) -> Numbers:
        return Numbers(self.value + _operand(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Numbers:
        return Numbers(self.value - _operand(other))

    def __rsub__(self, other: Any) -> Numbers:
        return Numbers(_operand(other) - self.value)


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
    return [_numbers(share) for share in shares]


class Arithmetic:
    """`ops` of `arithmetic`."""

    def constants(self, values: Sequence[float]) -> Numbers:
        return _numbers(sint(_public(values).v))

    def take(self, x: Vector, indices: Sequence[int]) -> Vector:
        return type(x)(type(x.value).concat([x.value.get_vector(i, 1) for i in indices]))

    def sums(self, x: Numbers, groups: int) -> Numbers:
        return _numbers(_fold(x.value.v, groups, lambda left, right: left + right))

    def concat(self, parts: Sequence[Vector]) -> Vector:
        first = parts[0]
        return type(first)(type(first.value).concat([part.value for part in parts]))

    def combine(self, terms: Sequence[tuple[Numbers, float]], constant: float = 0.0) -> Numbers:
        bits = sfix.f
        total = cint(round(constant * 2.0 ** (2 * bits)))
        for x, c in terms:
            total = x.value.v * cint(round(c * 2.0**bits)) + total
        return _numbers(total.round(sfix.k + bits, bits, nearest=sfix.round_nearest))

    def weigh(self, bits: Bits, constants: Sequence[float]) -> Numbers:
        return _numbers(bits.value * _public(constants).v)

    def negate(self, bits: Bits) -> Bits:
        return Bits(1 - bits.value)

    async def multiply(self, *pairs: tuple[Vector, Vector]) -> list[Numbers]:
        return [Numbers(y.value * x.value if isinstance(x, Bits) else x.value * y.value) for x, y in pairs]

    async def less(self, x: Numbers, y: Any) -> Bits:
        return Bits(x.value < _operand(y))

    async def all(self, bits: Bits, groups: int) -> Bits:
        return Bits(_fold(bits.value, groups, lambda left, right: left * right))

    async def numbers(self, bits: Bits) -> Bits:
        return bits


def _numbers(value: sint) -> Numbers:
    return Numbers(sfix._new(value, k=sfix.k, f=sfix.f))


def _fold(x: sint, groups: int, join: Callable[[sint, sint], sint]) -> sint:
    """Element k joins part k mod groups; halves of the vector at a time."""
    while len(x) > groups:
        half, odd = divmod(len(x) // groups, 2)
        size = half * groups
        joined = join(x.get_vector(0, size), x.get_vector(size, size))
        x = sint.concat([joined, x.get_vector(2 * size, groups)]) if odd else joined
    return x
