"""The programs: what a round does with the updates, as far as all parties know it.

`assisted` multiplies each update by its factor, with a correlation that its client supplies. `scalar-first` multiplies
without the clients' help, `faithful` clips and weighs every element as SaFeGNN's text has it; both exist to compare
costs on the same work. What a party does for a program is an object of the party's own: `wire.update.CARRIERS`, how an
upload brings an update; `server.aggregation.SUMS`, how servers add updates up; `mpspdz.programs.ROUNDS` and the `.mpc`
file of the same name, how MP-SPDZ does.
"""

from __future__ import annotations

from mpc_programs.rules import RoundParameters

__all__ = ["FAITHFUL_BITS", "PROGRAMS", "Program"]

FAITHFUL_BITS = 16
"""Fractional bits of everything in `faithful.mpc`, MP-SPDZ's default."""

_FAITHFUL_FACTOR_ULP = 2
"""Bound on the error of one factor by MP-SPDZ's softmax, exponential and division, in 2^-16 and before gain.

Measured, not derived: over q from 1 to 30, gains from 1 to 107, clipped and unclipped updates, equal and far scores,
at most a tenth of it was seen.
"""


class Program:
    """Multiplies by factors that were computed on scalars, and truncates nothing of the vectors.

    Attributes:
        personal: whether an update can meet a factor for every client, as personal rules ask.
        proven: whether the sensitivity's proof covers the embedded engine's arithmetic, docs/privacy.md.
    """

    personal = False
    proven = True

    def error(self, clients: int, total: float, model_bits: int) -> float:
        """Bound on |error| of an element of the sum by the embedded engine, besides `VectorFormat.error_bound`.

        Args: total: the largest sum of factors; model_bits: fractional bits of the sum.
        """
        return 0.0

    def mpspdz_error(self, parameters: RoundParameters, clients: int, largest: float) -> float:
        """The same by MP-SPDZ. Args: largest: coordinate of an update, in size."""
        return 0.0


class _Assisted(Program):
    personal = True


class _Faithful(Program):
    proven = False

    def error(self, clients: int, total: float, model_bits: int) -> float:
        """Elements are truncated at 2^-32 when they are lifted, clipped and then weighed, and so is their sum."""
        return (clients + 2 * total) * 2.0**-32 + 2.0**-model_bits

    def mpspdz_error(self, parameters: RoundParameters, clients: int, largest: float) -> float:
        """Factors as measured; updates are rounded when they enter and in each of two products, weights sum to one."""
        factor = (1 + parameters.gain) * _FAITHFUL_FACTOR_ULP
        return (clients * largest * factor + 3 * clients) * 2.0**-FAITHFUL_BITS


PROGRAMS: dict[str, Program] = {"assisted": _Assisted(), "scalar-first": Program(), "faithful": _Faithful()}
