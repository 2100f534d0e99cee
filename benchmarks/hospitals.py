"""The table of docs/privacy.md, "What thirty hospitals can reach": noise and AUC of 30 clients, by epsilon.

python benchmarks/hospitals.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from statistics import mean

from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import Config, load_config
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train
from orchestrator.privacy.statement import calibrate
from orchestrator.reports.run import summarise_run

TARGETS = (8.0, 4.0, 2.0, 1.0)
SEEDS = (31, 32)
PARTICIPATION = {"all 30 in each of 6 rounds": (30, 6), "10 in turn, 18 rounds": (10, 18)}

_SETTINGS = (
    "engine={name: plaintext, client_processes: 1}",
    "method={name: fedavg, stateful: false, learning_rate: 2.0e-2}",
    "data.scaling=none",
    "model.hidden=4",  # noise in the model grows with the square root of its parameters
    "clients={hops: 2, batch: 30}",
    "sharing={integer_bits: 10, update_bits: 21}",
    "evaluation.exact_beside_noise=true",
)


def settings(cohort: int, rounds: int, seed: int, multiplier: float, folder: str) -> Config:
    privacy = "clip_norm: 1, sensitivity: bounded_weights, delta: 1.0e-3" if multiplier else ""
    turns = f"federation={{cohort: {cohort}, rounds: {rounds}, sampling: cyclic}}"
    noise = f"privacy={{{privacy}{', ' if privacy else ''}noise_multiplier: {multiplier}}}"
    return load_config(["demo"], overrides=[*_SETTINGS, f"seed={seed}", f"run.dir='{folder}'", turns, noise])


def auc(config: Config) -> float:
    """Of the last model on test nodes."""
    folder = RunFolder.create(config)
    train(config, folder)
    return float(summarise_run(folder)["test"]["auc"])


def rows() -> Iterator[str]:
    """A Markdown table, line by line; ten minutes at most."""
    yield "| who takes part | ε, everybody | σ | AUC, by seed | mean |"
    yield "|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        for label, (cohort, rounds) in PARTICIPATION.items():
            plan = plan_of(settings(cohort, rounds, SEEDS[0], 1.0, folder)).privacy
            assert plan is not None
            for target in (None, *TARGETS):
                sigma = 0.0 if target is None else calibrate(plan, rounds, target).noise_multiplier
                found = [auc(settings(cohort, rounds, seed, sigma, folder)) for seed in SEEDS]
                stated = ("–", "–") if target is None else (f"{target:g}", f"{sigma:.4g}")
                yield f"| {label} | {' | '.join(stated)} | {', '.join(f'{a:.3f}' for a in found)} | {mean(found):.3f} |"


if __name__ == "__main__":
    for line in rows():
        print(line, flush=True)
