"""Run a program on real parties, all of them threads of this process, from float64 to float64."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from orchestrator.mpspdz.compiler import compile_program
from orchestrator.mpspdz.installation import Installation
from orchestrator.mpspdz.output import PartyCost
from orchestrator.mpspdz.party import Party
from orchestrator.mpspdz.persistence import integers, read_shares, words, write_shares
from orchestrator.mpspdz.ports import free_ports
from orchestrator.mpspdz.shape import Job
from tests.support import share_units


def compute(
    installation: Installation, cache: Path, scratch: Path, job: Job, inputs: list[int], outputs: int
) -> tuple[list[int], list[PartyCost]]:
    """What the program writes behind `inputs`, signed integers in the job's ring, and each party's costs."""
    compiled, port = compile_program(installation, job, cache), free_ports(job.parties)
    sides = [words(side.values, job.ring_bits) for side in share_units(inputs)]

    def run(index: int) -> tuple[list[int], PartyCost]:
        with Party(installation, job, compiled, index, scratch) as party:
            if index < 2:
                write_shares(party.shares, sides[index])
            cost = party.run("127.0.0.1", port, 60.0)
            shares = read_shares(party.shares, job.ring_bits, len(inputs), outputs) if index < 2 else words([], 128)
            return integers(shares), cost

    with ThreadPoolExecutor() as pool:
        results = list(pool.map(run, range(job.parties)))
    modulus = 1 << job.ring_bits
    sums = [(one + two) % modulus for one, two in zip(results[0][0], results[1][0], strict=True)]
    return [value - modulus if value >= modulus // 2 else value for value in sums], [cost for _, cost in results]


def evaluate(installation: Installation, cache: Path, scratch: Path, job: Job, values: np.ndarray) -> np.ndarray:
    """A small program that turns one vector into another of the same length."""
    encoded = [round(float(value) * 2**job.fraction_bits) for value in values]
    results, _ = compute(installation, cache, scratch, job, encoded, len(values))
    return np.array(results, dtype=float) * 2.0**-job.fraction_bits
