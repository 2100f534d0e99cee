"""Run folders as training leaves them, without training."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import Config
from orchestrator.coordinator.cohorts import fingerprint, sample_cohort
from orchestrator.coordinator.engine import RoundCost
from orchestrator.coordinator.inputs import Inputs
from orchestrator.coordinator.round_result import RoundResult
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.evaluation.figures import Evaluation, of_nodes
from orchestrator.evaluation.group_table import GroupTable
from orchestrator.privacy.budget import Budget

SECRET_ACCURACY = 0.6180339887
"""Of every evaluation; no other figure of a page looks like it."""

DIGEST = "c0ffee" * 10 + "abcd"


def evaluation(rng: np.random.Generator, nodes: int = 200, bias: float = 0.0, constant: bool = False) -> Evaluation:
    sensitive, labels = rng.integers(0, 2, nodes), rng.integers(0, 2, nodes)
    hit = rng.random(nodes) < 0.7 + bias * sensitive
    predicted = np.ones(nodes, dtype=int) if constant else np.where(hit, labels, 1 - labels)
    found = of_nodes(GroupTable.of(sensitive, labels, predicted, 2), 0.5 if constant else 0.71)
    accuracy = found.metrics["accuracy"] if constant else SECRET_ACCURACY
    return Evaluation({**found.metrics, "accuracy": accuracy}, found.gaps, found.counts, found.undefined)


def make_run(
    path: Path,
    config: Config,
    rounds: int = 3,
    *,
    bias: float = 0.0,
    constant: bool = False,
    graph: str = DIGEST,
    left_out: dict[int, str] | None = None,
    notes: tuple[str, ...] = (),
    groups: tuple[str, ...] = (),
) -> RunFolder:
    """A run of so many rounds; with noise it is accounted for."""
    folder = RunFolder.furnish(path, config)
    folder.settle(
        Inputs(
            config.absolute().model_dump(mode="json"),
            {"labels": graph, "classes": "2"},
            graph,
            {"shapes": {"weight": [6, 8], "bias": [8]}},
        )
    )
    folder.save_data(
        {"nodes": 12345, "nodes_read": 12346, "notes": list(notes), "groups": list(groups), "labels": [], "meaning": ""}
    )
    seed, rng = folder.cohort_seed(config), np.random.default_rng(config.seed)
    plan = plan_of(config)
    private = config.privacy.noise_multiplier > 0
    budget = (
        Budget(plan.privacy, config.privacy.epsilon_budget, fingerprint(seed, plan.lasting)) if plan.privacy else None
    )
    if not private:
        sizes = [{"nodes": 20 + k, "edges": 30, "train_nodes": 9, "balance": 0.4, "nodes_s0": 12, "nodes_s1": 8 + k}
                 for k in range(config.clients.count)]  # fmt: skip
        folder.save_clients(sizes)
    with folder.lock:
        for number in range(1, rounds + 1):
            cohort = sample_cohort(config.federation, config.clients.count, seed, number)
            if budget is not None:
                budget.charge(number)
                folder.save_privacy(budget.state())
            evaluations = {mask: evaluation(rng, bias=bias, constant=constant) for mask in ("val", "test")}
            cost = RoundCost(0.0123 * number, (11468, 11468), 23, 0.25, (4000, 4000), 0.01, 1000, 2000, 0.0)
            epsilon = None if budget is None else budget.epsilon
            result = RoundResult(
                number, cohort, np.zeros(1), evaluations, 1.2345 * number, cost, epsilon=epsilon,
                clip_norm=config.privacy.clip_norm, left_out=left_out or {},
            )  # fmt: skip
            record = result.record() | ({} if private else {"cohort": cohort})
            folder.append(record, result.costs())
    return folder
