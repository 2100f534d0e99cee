"""What one completed round gave: the records of a run, its costs, and what observers are called with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from orchestrator.coordinator.engine import RoundCost
from orchestrator.errors import ProtocolError, SafeGNNError
from orchestrator.evaluation.figures import Evaluation

__all__ = ["RoundResult", "reason_of"]


@dataclass(frozen=True)
class RoundResult:
    """One completed round.

    Attributes:
        round: from 1.
        cohort: client numbers by slot; none, where a Poisson sample is empty.
        parameters: the released model, float64 (d,); the initial one where every client has a model of its own.
        evaluations: by mask, "val" and "test".
        training_seconds: local training of the cohort.
        cost: the engine's.
        difference: where the run is audited, the largest |released - float64 aggregation of the same uploads|.
        bound: the fixed-point bound that `difference` must keep.
        clip_norm: C of this round; None where updates are not clipped.
        within: the released, noisy number of updates whose norm was at most C, where C follows their quantile.
        epsilon: an outsider's, after this round, at the delta of the settings; None where none can be stated.
        facts: further figures, means over the clients or of the evaluation.
        weights: how much each client that took part took from each, float64 (q, q), as far as anybody knows.
        left_out: by slot, why a client of the cohort had no part in the aggregate.
        sums_cost: of what clients add up besides the model; None where they do not.
    """

    round: int
    cohort: list[int]
    parameters: np.ndarray
    evaluations: Mapping[str, Evaluation]
    training_seconds: float
    cost: RoundCost
    difference: float | None = None
    bound: float | None = None
    clip_norm: float | None = None
    within: float | None = None
    epsilon: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    weights: np.ndarray | None = None
    left_out: Mapping[int, str] = field(default_factory=dict)
    sums_cost: RoundCost | None = None

    def record(self) -> dict[str, Any]:
        """What `metrics.jsonl` holds; the same keys in every round, audited or not, for the columns of the CSV."""
        evaluations = {mask: evaluation.as_dict() for mask, evaluation in self.evaluations.items()}
        audit = {"model_difference": self.difference, "model_difference_bound": self.bound}
        clip = {"clip_norm": self.clip_norm, "updates_within_clip_norm": self.within}
        left_out = [{"client": self.cohort[slot], "reason": reason} for slot, reason in sorted(self.left_out.items())]
        who = {"clients_left_out": len(left_out), "left_out": left_out}
        return {"round": self.round, **evaluations, **audit, **clip, "epsilon": self.epsilon, **who, **self.facts}

    def costs(self) -> dict[str, float]:
        """What `costs.csv` holds; bytes per server, or per client of the cohort."""
        cost = self.cost
        costs = {
            "round": self.round,
            "training_seconds": self.training_seconds,
            "online_seconds": cost.online_seconds,
            "online_bytes_server0": cost.online_bytes[0],
            "online_bytes_server1": cost.online_bytes[1],
            "online_rounds": cost.rounds,
            "preprocessing_seconds": cost.preprocessing_seconds,
            "preprocessing_bytes_server0": cost.preprocessing_bytes[0],
            "preprocessing_bytes_server1": cost.preprocessing_bytes[1],
            "preprocessing_wait_seconds": cost.waited_seconds,
            "startup_seconds": cost.startup_seconds,
            "upload_bytes_per_client": cost.upload_bytes,
            "download_bytes_per_client": cost.download_bytes,
        }
        if (sums := self.sums_cost) is not None:
            costs |= {
                "sums_online_seconds": sums.online_seconds,
                "sums_online_bytes_server0": sums.online_bytes[0],
                "sums_online_bytes_server1": sums.online_bytes[1],
                "sums_upload_bytes_per_client": sums.upload_bytes,
            }
        return costs


def reason_of(error: SafeGNNError) -> str:
    """Why a client has no upload, for the record, which names client and round itself."""
    return f"{error.phase}: {error.reason}" if isinstance(error, ProtocolError) else str(error)
