"""The settings of the methods, without torch: commands that only read settings start fast.

A client reads its own class as `settings`; the registry names the two together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from orchestrator.config import MethodSettings, ModelConfig

__all__ = [
    "AdamSettings",
    "AloneSettings",
    "F2GNNSettings",
    "FairDualSettings",
    "FedAvgSettings",
    "FedPubSettings",
    "GlobalModelSettings",
]


class AdamSettings(MethodSettings):
    """What `orchestrator.methods.adam_training.AdamTraining` needs."""

    local_epochs: int = Field(15, ge=1, description="full-batch steps of Adam whenever a client takes part")
    learning_rate: float = Field(1e-4, gt=0, description="of Adam")
    weight_decay: float = Field(1e-4, ge=0, description="of Adam: times the weights, added to the gradient")

    @property
    def keeps_state(self) -> bool:
        """Whether anything stays with a client between its participations."""
        return True


class GlobalModelSettings(AdamSettings):
    """Where clients start from one global model, they may as well forget everything else."""

    stateful: bool = Field(
        True, description="false: every participation of a client is as its first, without moments or a local model"
    )

    @property
    def keeps_state(self) -> bool:
        return self.stateful


class FedAvgSettings(GlobalModelSettings):
    """The plain mean of what clients train by Adam; FedSage is that with GraphSAGE as the network."""


class FairDualSettings(GlobalModelSettings):
    """How strongly clients pull the federation's gaps to zero, and how fast the multipliers follow."""

    step: float = Field(0.1, ge=0, description="by how much a multiplier rises in a round, times the gap")
    proportional: float = Field(1.0, ge=0, description="times the gap itself, added to the multiplier")
    rate: float = Field(0.3, gt=0, le=1, description="of the running means of predictions by group, a round")
    multiplier_max: float = Field(5.0, gt=0, le=16, description="public cap of a multiplier, either sign")
    measured: Literal["train", "train_val"] = Field(
        "train",
        description="nodes on which clients measure the gaps; train_val: the validation nodes too, whose labels then "
        "move the multipliers, though never the weights directly",
    )


class AloneSettings(AdamSettings):
    """Every client trains a model of its own by Adam, and nothing is aggregated."""


class F2GNNSettings(GlobalModelSettings):
    """Fair clients and a fair aggregation; docs/methods/f2gnn.md says how it deviates."""

    alpha: float = Field(1e-6, ge=0, description="weight of the fairness penalty in the local loss")
    tau_fair: float = Field(4.0, gt=0, description="temperature of the predictions inside the penalty")
    tau_combine: float = Field(1e-3, gt=0, description="temperature of the predictions that are compared")
    lam: float = Field(8.0, ge=0, le=64, description="lambda: weight of the balance weights in the final score")
    tau: float = Field(4.0, gt=0, description="temperature of the final softmax")
    penalty: Literal["gaps", "broadcast"] = Field(
        "gaps",
        description="gaps: those of demographic parity and of equal opportunity, added up; broadcast: the "
        "(n,1) x (n,) products of the reference code",
    )
    eo_denominator: Literal["positives", "group"] = Field(
        "positives",
        description="what a group's part of the equal-opportunity gap is divided by; positives: its nodes with y = 1; "
        "group: all its nodes, as the reference code",
    )
    divergence: Literal["js", "js_distance_over_nodes"] = Field(
        "js",
        description="js: mean over nodes of the base-2 divergence of the predicted Bernoulli distributions; "
        "js_distance_over_nodes: distance between softmaxes of hard predictions over the nodes",
    )
    divergence_local_mode: Literal["eval", "train"] = Field(
        "eval", description="eval: the previous local model predicts without dropout; train: with it"
    )
    score: Literal["penalty", "reciprocal"] = Field(
        "penalty",
        description="the fairness score; penalty: that itself, so unfair clients weigh more; reciprocal: "
        "1/(penalty + 1e-5), so fair ones do",
    )
    score_from: Literal["trained_model", "last_epoch"] = Field(
        "trained_model",
        description="where the penalty is taken for the score; trained_model: after training, without dropout; "
        "last_epoch: the training-mode forward before the last step",
    )
    local_init: Literal["global", "own", "trained"] = Field(
        "global",
        description="what a client that never took part starts from; global: the released model alone; own: also a "
        "random local model of its own; trained: also one that it has trained alone from there, for local_epochs "
        "(line 3 of the paper's Algorithm 1)",
    )
    score_max: float = Field(2.0, gt=0, le=2**20, description="public cap of the fairness score")

    @model_validator(mode="after")
    def _final_score_fits(self) -> F2GNNSettings:
        if (self.lam + math.e) / self.tau >= 2**10:
            raise ValueError(
                f"method.tau = {self.tau:g} is too small for method.lam = {self.lam:g}: "
                "(lam + e) / tau must stay below 1024, where the fixed-point arithmetic is exact enough"
            )
        return self

    def rule_parameters(self, model: ModelConfig) -> Mapping[str, Any]:
        return {"lam": self.lam, "tau": self.tau, "fairness_max": self.score_max}


class FedPubSettings(AdamSettings):
    """FED-PUB's masks, its proximal term, and the similarities by which clients take from each other."""

    similarity: float = Field(
        3.0,
        gt=0,
        le=12,
        description="tau: scale of the similarities in the softmax; the larger, the less a client takes from clients "
        "that are unlike it",
    )
    mask_penalty: float = Field(0.0, ge=0, description="lambda_1: weight of the mask's L1 norm")
    proximal: float = Field(0.0, ge=0, description="lambda_2: weight of ||theta - theta_bar||^2")
    penalty_step: Literal["gradient", "proximal"] = Field(
        "proximal",
        description="how the penalties pull; gradient: as parts of the loss, which Adam scales as it scales all "
        "gradients; proximal: by their proximal steps, of length learning_rate, after each step of Adam",
    )
    mask_threshold: float = Field(
        1e-3, ge=0, description="mask entries below it count as 0 in predictions and embeddings"
    )

    def rule_parameters(self, model: ModelConfig) -> Mapping[str, Any]:
        return {"embedding": model.hidden, "similarity": self.similarity}
