"""Whoever holds exact weighted sums of integer vectors, and some of the vectors, finds the others: the attack.

V_r = sum_i s_ri D_i for r = 1, 2, ..., with secret weights of 32 bits and updates D_i of some 18 (orthogonal lattices:
Nguyen and Stern, 1999, "The hardness of the hidden subset sum problem"):

1. A short integer vector u that is orthogonal to all V_r and to all known updates is orthogonal to the unknown ones
   too, because sum_i s_ri (u . D_i) = 0 has no small solution but zero. LLL finds d - q of them.
2. The integer vectors that are orthogonal to those are a lattice of rank q, in which the updates are a basis.
3. Of its short bases that hold the known updates, the right one gives positive weights which sum to one.

`rounded` is the same for sums that are known up to rounding: u need no longer be orthogonal to V_r, but must be short
together with its products with V_r, taken in units of 2^shift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from flint import fmpz_mat

__all__ = ["WEIGHT_BITS", "Finding", "exact", "residual", "rounded"]

WEIGHT_BITS = 32

Vector = Sequence[int]

_PENALTY = 2**200
"""Of a product that must vanish."""

_SHORT = 40
"""So many short vectors of the lattice are tried as updates."""


@dataclass(frozen=True)
class Finding:
    """What the attack found.

    Attributes:
        orthogonal: the d - q vectors of step 1.
        span: the basis of step 2.
        updates, weights: of step 3; none where no basis gives weights that sum to one.
    """

    orthogonal: list[list[int]]
    span: list[list[int]]
    updates: list[tuple[int, ...]]
    weights: np.ndarray


def exact(sums: Sequence[Vector], known: Sequence[Vector], q: int) -> Finding:
    return _finish(_short([*sums, *known]), sums, known, q)


def rounded(sums: Sequence[Vector], known: Sequence[Vector], q: int, shift: int) -> Finding:
    return _finish(_short(known, [[x >> shift for x in row] for row in sums], len(sums[0])), sums, known, q)


def residual(vector: Vector, span: Sequence[Vector]) -> float:
    """The share of a vector that real multiples of others leave unexplained, in norm."""
    basis, vector = np.array(span, dtype=float).T, np.array(vector, dtype=float)
    fit = np.linalg.lstsq(basis / np.linalg.norm(basis, axis=0), vector, rcond=None)[0]
    return np.linalg.norm(vector - basis / np.linalg.norm(basis, axis=0) @ fit) / np.linalg.norm(vector)


def _short(vanishing: Sequence[Vector], small: Sequence[Vector] = (), length: int = 0) -> list[list[int]]:
    """Reduced basis of the integer vectors orthogonal to all of `vanishing`, short with their products with `small`."""
    d = length or len(vanishing[0])
    rows = [
        [int(i == j) for j in range(d)] + [int(row[i]) for row in small] + [_PENALTY * int(row[i]) for row in vanishing]
        for i in range(d)
    ]
    reduced = [[int(x) for x in row] for row in fmpz_mat(rows).lll().tolist()]
    kept = [row for row in reduced if not any(row[d + len(small) :])]
    return [row[:d] for row in sorted(kept, key=lambda row: sum(x * x for x in row))]


def _finish(found: list[list[int]], sums: Sequence[Vector], known: Sequence[Vector], q: int) -> Finding:
    orthogonal = found[: len(sums[0]) - q]
    span = _short(orthogonal)
    basis = np.array(span, dtype=float)

    def coordinates(vectors: Sequence[Vector]) -> np.ndarray:
        return np.linalg.lstsq(basis.T, np.array(vectors, dtype=float).reshape(-1, basis.shape[1]).T, rcond=None)[0].T

    fixed, targets = np.rint(coordinates(known)), coordinates(sums)
    tries = np.array([z for z in product((-1, 0, 1), repeat=q) if any(z)], dtype=float)
    tries = tries[np.argsort(np.linalg.norm(tries @ basis, axis=1))][:_SHORT]
    best, updates, weights = np.inf, [], np.zeros((len(sums), 0))
    for chosen in combinations(range(len(tries)), q - len(known)):
        rows = np.vstack([tries[list(chosen)], fixed])
        if abs(abs(np.linalg.det(rows)) - 1) > 1e-6:
            continue
        factors = np.linalg.solve(rows.T, targets.T).T
        candidates = np.rint(tries[list(chosen)] @ basis)
        size = float((candidates**2).sum())
        if (factors > 0).all() and (abs(np.ldexp(factors.sum(axis=1), -WEIGHT_BITS) - 1) < 1e-5).all() and size < best:
            best, updates = size, [tuple(map(int, row)) for row in candidates]
            weights = np.ldexp(factors[:, : len(chosen)], -WEIGHT_BITS)
    return Finding(orthogonal, span, updates, weights)
