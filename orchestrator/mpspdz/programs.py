"""What MP-SPDZ's parties read and compute in a round, for each of the programs: the other side of the `.mpc` files."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpc_programs.programs import FAITHFUL_BITS
from mpc_programs.rules import RoundParameters
from orchestrator.errors import ConfigError
from orchestrator.mpc.fixed_point import SCALAR_BITS, VectorFormat
from orchestrator.mpc.ring import truncate
from orchestrator.mpspdz.persistence import words

__all__ = ["ROUNDS", "RoundProgram"]

_FAITHFUL_LIMIT = 2.0**13
"""`faithful` computes with 31 bits, 16 of them behind the point: sums and differences of two must stay below 2^14."""


class RoundProgram:
    """Computes the factors s_i, as `assisted`, or what a subclass says.

    Attributes:
        ring_bits: of the ring.
        fraction_bits: of the scalars in the file of shares, and of what the program makes of them.
        sums: whether the parties also read the updates, and write d weighted sums in place of q factors.
    """

    ring_bits = 128
    fraction_bits = SCALAR_BITS
    sums = False

    def check(self, parameters: RoundParameters) -> None:
        """Raises ConfigError naming the setting that the program cannot compute with."""
        if parameters.personal:
            raise ConfigError(f"MP-SPDZ: no program computes the personal rule {parameters.rule}")

    def check_format(self, vectors: VectorFormat) -> None:
        """Raises ConfigError where the program cannot keep the format of vectors."""

    def words(self, update: Any, vectors: VectorFormat, owner: int) -> np.ndarray:
        """A party's share of an update as the program reads it; uint64, shape (d or 0, ring_bits / 64)."""
        return words([], self.ring_bits)

    def sum_bits(self, vectors: VectorFormat) -> int:
        """Fractional bits of the sums."""
        return self.fraction_bits


class _ScalarFirst(RoundProgram):
    sums = True

    def check_format(self, vectors: VectorFormat) -> None:
        if vectors.weight_bits != SCALAR_BITS:
            raise ConfigError(f"sharing.weight_bits: scalar-first on MP-SPDZ takes {SCALAR_BITS}")

    def words(self, update: np.ndarray, vectors: VectorFormat, owner: int) -> np.ndarray:
        """Without a sign: what two shares exceed 2^64 by stays a multiple of it in every product."""
        return np.stack([update, np.zeros_like(update)], axis=1)

    def sum_bits(self, vectors: VectorFormat) -> int:
        return self.fraction_bits + vectors.update_bits


class _Faithful(RoundProgram):
    ring_bits = 64
    fraction_bits = FAITHFUL_BITS
    sums = True

    def check(self, parameters: RoundParameters) -> None:
        """What 16 + 15 bits cannot hold, and what the program does not compute."""
        super().check(parameters)
        if parameters.rule != "f2gnn":
            raise ConfigError("engine.program: 'faithful' computes the paper's rule only; set method.name to f2gnn")
        for setting, value in (
            ("method.score_max", parameters.fairness_max),
            ("2^sharing.integer_bits / privacy.clip_norm", parameters.ratio_max or 0.0),
            ("method.lam", parameters.lam),
        ):
            if value > _FAITHFUL_LIMIT:
                raise ConfigError(
                    f"{setting} = {value:g}: 'faithful' on MP-SPDZ has 16 fractional bits and takes at most "
                    f"{_FAITHFUL_LIMIT:g}; choose another engine.program"
                )

    def words(self, update: list[int], vectors: VectorFormat, owner: int) -> np.ndarray:
        return words(truncate(update, vectors.update_bits - self.fraction_bits, owner), self.ring_bits)


ROUNDS: dict[str, RoundProgram] = {
    "assisted": RoundProgram(),
    "scalar-first": _ScalarFirst(),
    "faithful": _Faithful(),
}
"""By program."""
