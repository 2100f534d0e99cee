"""What checking clients costs: rounds of trusted and of untrusted clients in turn, and hot loops of two ways to check.

python benchmarks/verification.py [--repeats 10] [--honest 10000]

`--honest N` lets N honest updates of every shape be checked, and says how many are refused.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from mpc_programs.lockstep import run_pair
from mpc_programs.rules import RoundParameters
from mpc_programs.verification import ROWS
from orchestrator.agreement.round_plan import RoundPlan
from orchestrator.coordinator.embedded import EmbeddedEngine
from orchestrator.coordinator.engine import RoundCost
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.mpc.offline.correlations import Tally
from orchestrator.mpc.prg import Prg
from orchestrator.mpc.projection import Rows
from orchestrator.mpc.shared_arithmetic import SharedArithmetic
from orchestrator.server.verification import Witness, verify
from orchestrator.wire.message import Place

FORMAT = VectorFormat(25, 32, 6)
CASES = [(3, 22_000), (30, 22_000), (300, 22_000), (3, 1_000_000)]


def updates(cohort: int, d: int, seed: int) -> list[LocalUpdate]:
    rng, made = np.random.default_rng(seed), []
    for _ in range(cohort):
        delta = rng.normal(size=d) * rng.uniform(0.3, 2.0) / d**0.5
        scores = {"balance": rng.random(), "fairness": rng.random()}
        made.append(LocalUpdate(delta, FORMAT.norm(FORMAT.encode_update(delta)), scores))
    return made


def rounds(cohort: int, d: int, repeats: int) -> None:
    found: dict[bool, list[RoundCost]] = {False: [], True: []}
    trusted = RoundParameters("f2gnn", cohort, ratio_max=64.0)
    kinds = {False: trusted, True: replace(trusted, ratio_max=None, bound=1.0)}
    engines = {
        checked: EmbeddedEngine(RoundPlan(kind, FORMAT, clip_norm=1.0), startup_timeout_sec=60, timeout_sec=600)
        for checked, kind in kinds.items()
    }
    try:
        for engine in engines.values():
            engine.start(np.zeros(d))
        for number in range(1, repeats + 2):
            plain = updates(cohort, d, number)
            for checked, engine in engines.items():
                engine.prepare(number, cohort)
                time.sleep(0.2 + 0.04 * cohort)  # for correlations, which are made while clients train
                for slot, update in enumerate(plain):
                    engine.submit(number, slot, slot, engine.encoder(update, Place(number, slot, slot)))
                cost = engine.aggregate(number, list(range(cohort))).cost
                if number > 1:  # the first round starts everything
                    found[checked].append(cost)
    finally:
        for engine in engines.values():
            engine.close()

    def median(checked: bool, what: Callable[[RoundCost], float]) -> float:
        return statistics.median(what(cost) for cost in found[checked])

    rows = {
        "online, ms": lambda cost: 1e3 * cost.online_seconds,
        "sent online, kB": lambda cost: cost.online_bytes[0] / 1e3,
        "exchanges": lambda cost: cost.rounds,
        "preprocessing, ms": lambda cost: 1e3 * cost.preprocessing_seconds,
        "preprocessing, kB": lambda cost: cost.preprocessing_bytes[0] / 1e3,
        "upload, bytes a parameter": lambda cost: cost.upload_bytes / d,
    }
    for name, what in rows.items():
        first, second = median(False, what), median(True, what)
        print(f"| {cohort} | {d:,} | {name} | {first:,.1f} | {second:,.1f} | {second / first:.2f} |", flush=True)


def loops(d: int) -> None:
    """A multiplication of the field of V for each coordinate, and all rows of P."""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 2**64 - 2**32, d, dtype=np.uint64) for _ in range(2))
    rows = Rows(bytes(16), ROWS, d)
    timed = {}
    for name, work in (("field product", lambda: field_product(x, y)), ("128 rows", lambda: rows.times([x, y]))):
        work()
        started = time.perf_counter()
        for _ in range(5):
            work()
        timed[name] = 1e3 * (time.perf_counter() - started) / 5
    print(
        f"d = {d:,}: one field product a coordinate {timed['field product']:.1f} ms, {ROWS} rows times two vectors "
        f"{timed['128 rows']:.1f} ms"
    )


def field_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x y modulo 2^64 - 2^32 + 1, elementwise, by halves of 32 bits in uint64."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a, b, c, e = x >> half, x & low, y >> half, y & low
    bottom, middle, other, top = b * e, a * e, b * c, a * c
    carry = (bottom >> half) + (middle & low) + (other & low)
    lower = (bottom & low) | (carry << half)
    upper = top + (middle >> half) + (other >> half) + (carry >> half)
    first, second = upper >> half, upper & low  # 2^96 = -1, 2^64 = 2^32 - 1
    reduced = lower - first
    reduced -= np.where(lower < first, low, np.uint64(0))
    added = reduced + second * low
    return added + np.where(added < reduced, low, np.uint64(0))


def shapes(rng: np.random.Generator, d: int) -> list[np.ndarray]:
    """Updates of every shape, of norm one or less."""
    dense, one = rng.normal(size=d), np.eye(1, d, rng.integers(d))[0]
    sparse = dense * (rng.random(d) < 0.02)
    found = [dense, one, -one, np.ones(d), sparse if sparse.any() else one]
    return [*(values / np.linalg.norm(values) for values in found), np.zeros(d), 1e-9 * dense]


def count_refusals(number: int) -> None:
    """Both servers' sides of the check, in this process; its correlations are zeros, which hold as well as any."""
    refused, done, rng, bound = 0, 0, np.random.default_rng(0), 2.0**25
    while done < number:
        sides: tuple[list[Witness], list[Witness]] = ([], [])
        for k in range(min(500, number - done)):
            d = (1, 23, 700, 2297)[k % 4]
            made = shapes(rng, d)
            update = np.trunc(made[k % len(made)] * bound * (1 - 1e-12)).astype(np.int64).view(np.uint64)
            rows, first, second, mask = (
                Rows(Prg().bytes(16), ROWS, d),
                Prg().uint64(d),
                Prg().uint64(d),
                Prg().uint64(2),
            )
            product = mask.sum() * update
            for side, share, claimed, own in zip(
                sides, (first, update - first), (second, product - second), mask, strict=True
            ):
                side.append(Witness(*rows.times([share, claimed]), own, 0))
        both = [verify(SharedArithmetic(k, Tally()), bound, (), False, side) for k, side in enumerate(sides)]
        (verdicts, _), _ = run_pair(*both)[0]
        refused += sum(verdict is not None for verdict in verdicts)
        done += len(verdicts)
    print(f"{done:,} honest updates: {refused} refused")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--honest", type=int, default=0)
    options = parser.parse_args()
    threadpool_limits(1)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; medians\n")
    if options.honest:
        count_refusals(options.honest)
        return
    for d in (22_000, 1_000_000):
        loops(d)
    print("\n| q | d | | trusted | untrusted | ratio |\n|---|---|---|---|---|---|")
    for cohort, d in CASES:
        rounds(cohort, d, options.repeats if cohort < 300 else 3)


if __name__ == "__main__":
    main()
