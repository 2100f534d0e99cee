"""The table of docs/benchmarks.md: what one aggregation costs, by cohort, model size and program, beside its floor.

python benchmarks/rounds.py [--repeats 10]
"""

from __future__ import annotations

import argparse
import os
import platform

from orchestrator.experiments.costs import bench_embedded

CASES = [
    (3, 22_000, "assisted", "ot"),
    (3, 22_000, "assisted", "dealer"),
    (3, 1_000_000, "assisted", "ot"),
    (30, 22_000, "assisted", "ot"),
    (300, 22_000, "assisted", "ot"),
    (1000, 22_000, "assisted", "ot"),
    (3, 22_000, "scalar-first", "ot"),
    (3, 22_000, "faithful", "dealer"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    repeats = parser.parse_args().repeats
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; medians of {repeats}\n")
    columns = [
        "q",
        "d",
        "program",
        "preprocessing",
        "online",
        "floor",
        "sent online",
        "preprocessing time",
        "sent",
        "memory",
        "max error",
    ]
    print(f"| {' | '.join(columns)} |")
    print("|" + "---|" * len(columns))
    for cohort, parameters, program, preprocessing in CASES:
        record = bench_embedded(cohort, parameters, repeats, program, preprocessing)
        print(
            f"| {cohort:,} | {parameters:,} | {program} | {preprocessing} | {1e3 * record.online_seconds:.1f} ms "
            f"| {1e3 * record.floor_seconds:.1f} ms | {record.online_bytes_per_server / 1e3:,.1f} kB "
            f"| {1e3 * record.preprocessing_seconds:,.0f} ms "
            f"| {record.preprocessing_bytes_per_server / 1e3:,.0f} kB "
            f"| {record.memory_bytes_per_server / 1e6:,.0f} MB | {record.max_error:.1e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
