"""What the `.mpc` programs of a round share: arguments, precision, and the factors s_i."""

from __future__ import annotations

from typing import Any

from Compiler.types import sfix

from mpc_programs.lockstep import run_locally
from mpc_programs.mpspdz import Arithmetic, read_numbers
from mpc_programs.rules import RULES, RoundParameters, factors

__all__ = ["arguments", "prepare", "secret_factors"]

FRACTION_BITS = 32
TRUNCATION_SECURITY = 40


def arguments(program: Any) -> tuple[int, int, RoundParameters]:
    """q, d and the public parameters from a program's arguments, in the order that `compiler.Shape.arguments` has."""
    q, d, rule, lam, tau, fairness_max, ratio_max = program.args[1:]
    ratio = None if ratio_max == "none" else float(ratio_max)
    return int(q), int(d), RoundParameters(rule, int(q), float(lam), float(tau), float(fairness_max), ratio)


def prepare(program: Any) -> tuple[int, int, RoundParameters]:
    """Set the precision of the embedded engine, 32 bits in Z_2^128, and read the arguments.

    With `semi2k` truncation is probabilistic with a gap of 40 bits, and the run needs the option -E 40. The dealer's
    protocol has no such truncation; it takes correlated bits from the dealer (edaBits).
    """
    if program.options.execute == "semi2k":
        program.use_trunc_pr = TRUNCATION_SECURITY
    else:
        program.use_edabit(True)
    sfix.set_precision(FRACTION_BITS, 2 * FRACTION_BITS - 1)
    return arguments(program)


def secret_factors(parameters: RoundParameters) -> tuple[sfix, int]:
    """The factors s_i, and the position behind the scores in the file of shares."""
    names = list(RULES[parameters.rule].ranges(parameters))
    if parameters.ratio_max is not None:
        names.append("ratio")
    scores = dict(zip(names, read_numbers(0, len(names), parameters.cohort), strict=True)) if names else {}
    ratio = scores.pop("ratio", None)
    return run_locally(factors(Arithmetic(), parameters, scores, ratio)).value, len(names) * parameters.cohort
