"""What each operation on shares costs: rounds, bytes and correlations, counted by running it.

python benchmarks/operations.py            # the table of docs/protocol.md
python benchmarks/operations.py --write    # puts it there
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpc_programs.arithmetic import CLAMP, clip_factors, divide, exp, maximum, softmax
from mpc_programs.lockstep import run_pair
from mpc_programs.rules import RoundParameters, score_names
from orchestrator.mpc.fixed_point import SCALAR_BITS
from orchestrator.mpc.offline.correlations import Demand, Tally
from orchestrator.mpc.shared_arithmetic import SharedArithmetic
from orchestrator.mpc.shares import BitShare, ScalarShare
from orchestrator.server.aggregation import secret_factors

PAGE = Path(__file__).parent.parent / "docs" / "protocol.md"
BEGIN, END = "<!-- operations: begin -->", "<!-- operations: end -->"


def scalars(ops: SharedArithmetic, count: int) -> ScalarShare:
    return ScalarShare([0] * count, SCALAR_BITS, ops.owner)


def bits(ops: SharedArithmetic, count: int) -> BitShare:
    return BitShare(0, count, ops.owner)


def factors(q: int, rule: str = "f2gnn", **options: Any) -> Callable[[SharedArithmetic], Any]:
    parameters = RoundParameters(rule, q, **options)
    zeros = [[0] * len(score_names(parameters))] * q
    return lambda ops: secret_factors(ops, parameters, zeros)


OPERATIONS: dict[str, Callable[[SharedArithmetic], Any]] = {
    "product": lambda ops: ops.multiply((scalars(ops, 1), scalars(ops, 1))),
    "AND": lambda ops: ops.and_(bits(ops, 1), bits(ops, 1)),
    "comparison": lambda ops: ops.less(scalars(ops, 1), scalars(ops, 1)),
    "bit to number": lambda ops: ops.numbers(bits(ops, 1)),
    "exp on [0, 1]": lambda ops: exp(ops, scalars(ops, 1), 0.0, 1.0),
    f"exp on [-{CLAMP:.0f}, 0]": lambda ops: exp(ops, scalars(ops, 1), -CLAMP, 0.0),
    "division by [1, 3]": lambda ops: divide(ops, scalars(ops, 1), scalars(ops, 1), 1.0, 3.0),
    "division by [1, 1000]": lambda ops: divide(ops, scalars(ops, 1), scalars(ops, 1), 1.0, 1000.0),
    "maximum of 3": lambda ops: maximum(ops, scalars(ops, 3)),
    "maximum of 1,000": lambda ops: maximum(ops, scalars(ops, 1000)),
    "softmax of 3 on [0, 1]": lambda ops: softmax(ops, scalars(ops, 3), 0.0, 1.0),
    "softmax of 3 on [0, 100,000]": lambda ops: softmax(ops, scalars(ops, 3), 0.0, 1e5),
    "clip of 3, norms up to 8 C": lambda ops: clip_factors(ops, scalars(ops, 3), 8.0),
    "round, q = 3, no clip": factors(3),
    "round, q = 3, clip": factors(3, ratio_max=8.0),
    "round, q = 3, clip, scores up to 100,000": factors(3, ratio_max=8.0, fairness_max=1e5),
    "round, q = 30, clip": factors(30, ratio_max=8.0),
    "round, q = 1,000, clip": factors(1000, ratio_max=8.0),
    "round, q = 1,000, clip, fixed denominators": factors(1000, ratio_max=8.0, expected=1000),
    "round, q = 1,000, clip, scores up to 100,000": factors(1000, ratio_max=8.0, fairness_max=1e5),
    "round of FED-PUB, q = 10, embeddings of 128": factors(10, "fedpub", embedding=128),
    "round of FED-PUB, q = 30, embeddings of 128": factors(30, "fedpub", embedding=128),
}
"""Rounds count the weights alone; opening the masked factors adds one exchange and 8 bytes a factor, the handshake
another."""


def measure(operation: Callable[[SharedArithmetic], Any]) -> tuple[int, int, Demand]:
    """Rounds, bytes that each server sends, and the correlations taken."""
    tallies = Tally(), Tally()
    sides = [operation(SharedArithmetic(k, tally)) for k, tally in enumerate(tallies)]
    _, rounds, sent = run_pair(*sides)
    return rounds, sent, tallies[0].taken


def table() -> str:
    lines = [
        "| operation | rounds | bytes sent by each server | triples | bit triples | daBits |",
        "|---|---|---|---|---|---|",
    ]
    for name, operation in OPERATIONS.items():
        rounds, sent, taken = measure(operation)
        lines.append(f"| {name} | {rounds} | {sent:,} | {taken.triples:,} | {taken.bit_triples:,} | {taken.bits:,} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the table in docs/protocol.md")
    if not parser.parse_args().write:
        print(table())
        return
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
