"""FED-PUB's penalties chosen on validation nodes: a table over lambda_1, how it pulls, and lambda_2.

    python benchmarks/penalties.py --preset fedpub-cora-disjoint-10 --data-dir DIR

Seeds are others than those of the reported tables. Test accuracy stands beside, for the reader and not for the choice.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from orchestrator.config import Config, load_config
from orchestrator.experiments.grid import GridPlan, run_grid
from orchestrator.experiments.methods import best_round
from orchestrator.experiments.tables import Spread

GRID = {
    "proximal": ((0.0, 0.01, 0.1, 0.3), (0.0, 1.0, 10.0, 100.0)),
    "gradient": ((1e-6, 1e-5, 1e-4, 1e-3), (0.0,)),
}
"""lambda_1 and lambda_2. With one step a round the gradient of the distance is 0, whatever lambda_2 is."""


def measure(config: Config, seeds: int) -> tuple[Spread, Spread, float]:
    """Validation and test accuracy in the round of the best validation accuracy, and the last sparsity."""
    with tempfile.TemporaryDirectory() as scratch:
        common = config.changed(run={"dir": Path(scratch), "checkpoint_rounds": 10**6})
        runs = run_grid(GridPlan("penalties", common, {"fedpub": common}, seeds), "penalties").runs("fedpub")
    best = [best_round(run) for run in runs]
    validation, test = (Spread.of([record[mask]["accuracy"] for record in best]) for mask in ("val", "test"))
    return validation, test, runs[-1][-1].get("mask_sparsity", 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", action="append")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    where = [f"data.dir={arguments.data_dir}"] if arguments.data_dir else []
    config = load_config(arguments.preset or (), arguments.config, [*where, "engine.name=plaintext"])
    print("| λ₁ | pull | λ₂ | validation | test | mask entries at 0 |\n|---|---|---|---|---|---|")
    for step, (penalties, proximals) in GRID.items():
        for mask_penalty in penalties:
            for proximal in proximals:
                change = {"mask_penalty": mask_penalty, "penalty_step": step, "proximal": proximal}
                validation, test, sparsity = measure(config.changed(seed=41, method=change), arguments.seeds)
                print(f"| {mask_penalty:g} | {step} | {proximal:g} | {validation} | {test} | {sparsity:.1%} |")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
