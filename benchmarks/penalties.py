"""FED-PUB's penalties chosen on validation nodes: a table over lambda_1, how it pulls, and lambda_2.

    python benchmarks/penalties.py --preset fedpub-cora-disjoint-10 --data-dir DIR

Seeds are others than those of the reported tables. Test accuracy stands beside, for the reader and not for the choice.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import mean, stdev

from orchestrator.config import Config, load_config
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train

GRID = {
    "proximal": ((0.0, 0.01, 0.1, 0.3), (0.0, 1.0, 10.0, 100.0)),
    "gradient": ((1e-6, 1e-5, 1e-4, 1e-3), (0.0,)),
}
"""lambda_1 and lambda_2. With one step a round the gradient of the distance is 0, whatever lambda_2 is."""


def measure(config: Config, seeds: range) -> tuple[list[float], list[float], float]:
    """Validation and test accuracy by seed in the round of the best validation accuracy, and the last sparsity."""
    best = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as scratch:
            run = config.changed(seed=seed, run={"dir": Path(scratch), "checkpoint_rounds": 10**6})
            folder = RunFolder.create(run)
            train(run, folder)
            records = folder.records()
        best.append(max(records, key=lambda record: record["val"]["accuracy"]))
    return (
        [record["val"]["accuracy"] for record in best],
        [record["test"]["accuracy"] for record in best],
        records[-1].get("mask_sparsity", 0.0),
    )


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
                own = config.changed(method=change)
                validation, test, sparsity = measure(own, range(41, 41 + arguments.seeds))
                cells = [f"{mean(v):.4f} ± {stdev(v):.4f}" if len(v) > 1 else f"{v[0]:.4f}" for v in (validation, test)]
                print(f"| {mask_penalty:g} | {step} | {proximal:g} | {' | '.join(cells)} | {sparsity:.1%} |")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
