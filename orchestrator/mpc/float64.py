"""The backend of the round's arithmetic that shares are compared with: float64, in the clear."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["Float64"]


class Float64:
    """Backend of `mpc_programs.arithmetic` on float64 vectors, shape (n,); bits are boolean vectors."""

    def constants(self, values: Sequence[float]) -> np.ndarray:
        return np.asarray(values, dtype=np.float64)

    def take(self, x: np.ndarray, indices: Sequence[int]) -> np.ndarray:
        return x[np.asarray(indices, dtype=np.intp)]

    def sums(self, x: np.ndarray, groups: int) -> np.ndarray:
        return x.reshape(-1, groups).sum(axis=0)

    def concat(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(parts)

    def combine(self, terms: Sequence[tuple[np.ndarray, float]], constant: float = 0.0) -> np.ndarray:
        return np.asarray(constant + sum(c * x for x, c in terms))

    def weigh(self, bits: np.ndarray, constants: Sequence[float]) -> np.ndarray:
        return bits * np.asarray(constants, dtype=np.float64)

    def negate(self, bits: np.ndarray) -> np.ndarray:
        return ~bits

    async def multiply(self, *pairs: tuple[np.ndarray, np.ndarray]) -> list[np.ndarray]:
        return [x * y for x, y in pairs]

    async def inner(self, x: np.ndarray, y: np.ndarray, groups: int) -> np.ndarray:
        return self.sums(x * y, groups)

    async def less(self, x: np.ndarray, y: np.ndarray | float | Sequence[float]) -> np.ndarray:
        return x < np.asarray(y, dtype=np.float64)

    async def all(self, bits: np.ndarray, groups: int) -> np.ndarray:
        return np.asarray(bits.reshape(-1, groups).all(axis=0))

    async def numbers(self, bits: np.ndarray) -> np.ndarray:
        return bits.astype(np.float64)
