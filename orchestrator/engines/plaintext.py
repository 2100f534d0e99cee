"""The plaintext reference: the round's arithmetic in float64. It protects nothing."""

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
        return x.reshape(groups, -1).sum(axis=1)

    def concat(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(parts)

    def weigh(self, bits: np.ndarray, constants: Sequence[float]) -> np.ndarray:
        return bits * np.asarray(constants, dtype=np.float64)

    def negate(self, bits: np.ndarray) -> np.ndarray:
        return ~bits

    async def multiply(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x * y

    async def less(self, x: np.ndarray, y: np.ndarray | float | Sequence[float]) -> np.ndarray:
        return x < np.asarray(y, dtype=np.float64)

    async def all(self, bits: np.ndarray, groups: int) -> np.ndarray:
        return bits.reshape(groups, -1).all(axis=1)

    async def numbers(self, bits: np.ndarray) -> np.ndarray:
        return bits.astype(np.float64)
