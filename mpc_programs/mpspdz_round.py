"""What the `.mpc` programs share: precision, arguments, reading and writing shares, and the factors s_i of a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from Compiler.types import sfix, sint

from mpc_programs.lockstep import Protocol, run_locally
from mpc_programs.mpspdz import Arithmetic, read_numbers
from mpc_programs.rules import RULES, RoundParameters, factors

__all__ = ["arguments", "evaluate", "prepare", "secret_factors", "weighted_sum"]

FRACTION_BITS = 32
INTEGER_BITS = 31
"""The range of the embedded engine's scalars. With 23, enough for scores and ratios up to 2^20, products of two numbers
leave a gap of 40 bits in the ring, so that `semi2k` truncates all of them locally; docs/protocol.md says what it saves.
"""

TRUNCATION_SECURITY = 40


def prepare(program: Any) -> None:
    """Set the precision of the embedded engine: 32 bits in Z_2^128.

    With `semi2k` a number that leaves a gap of 40 bits in the ring is truncated locally, and the run needs the option
    -E 40; others take random bits from preprocessing. The dealer's protocol truncates with the dealer's bits (edaBits).
    """
    if program.options.execute == "semi2k":
        program.use_trunc_pr = TRUNCATION_SECURITY
    else:
        program.use_edabit(True)
    sfix.set_precision(FRACTION_BITS, FRACTION_BITS + INTEGER_BITS)


def arguments(program: Any) -> tuple[int, int, RoundParameters]:
    """q, d and the public parameters of a round, in the order that `shape.Shape.arguments` has."""
    q, d, rule, lam, tau, fairness_max, ratio_max = program.args[1:]
    ratio = None if ratio_max == "none" else float(ratio_max)
    return int(q), int(d), RoundParameters(rule, int(q), float(lam), float(tau), float(fairness_max), ratio)


def evaluate(program: Any, operation: Callable[..., Protocol]) -> None:
    """Compute one operation of `arithmetic` on the vector in the file of shares, and write the result behind it.

    The program's arguments are the vector's length and the operation's public numbers.
    """
    prepare(program)
    length, numbers = int(program.args[1]), [float(number) for number in program.args[2:]]
    [vector] = read_numbers(0, 1, length)
    result = run_locally(operation(Arithmetic(), vector, *numbers))
    sint.write_to_file([result.value.v], length)


def secret_factors(parameters: RoundParameters) -> tuple[sfix, int]:
    """The factors s_i, and the position behind the scores in the file of shares."""
    names = list(RULES[parameters.rule].ranges(parameters))
    if parameters.ratio_max is not None:
        names.append("ratio")
    scores = dict(zip(names, read_numbers(0, len(names), parameters.cohort), strict=True)) if names else {}
    ratio = scores.pop("ratio", None)
    return run_locally(factors(Arithmetic(), parameters, scores, ratio)).value, len(names) * parameters.cohort


def weighted_sum(weights: sfix, start: int, length: int) -> None:
    """Write the sum of weights[i] times the i-th vector of integers, and read those at `start` of the file of shares.

    The vectors are shares modulo 2^64 without a sign: what they exceed the ring by stays a multiple of 2^64 in every
    product. The lowest 64 bits of the sums, at the two scales together, are shares of the signed result, with nothing
    to truncate. The result stands behind the vectors.
    """
    q = len(weights)
    vectors = sint.Matrix(q, length)
    vectors.read_from_file(start)
    row = sint.Matrix(1, q)
    row.assign_vector(weights.v)
    sint.write_to_file([row.direct_mul(vectors)], start + q * length)
