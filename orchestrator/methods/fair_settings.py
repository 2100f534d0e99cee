"""The settings of FedProx and of the fair methods that SaFeGNN's table 1 compares itself with; see `settings`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from orchestrator.config import ModelConfig
from orchestrator.methods.settings import GlobalModelSettings
from orchestrator.secure_sum import SecureSum

__all__ = [
    "FAIRFED_RANGE",
    "AFedSettings",
    "F2PGNNSettings",
    "FairFedSettings",
    "FedFairGNNSettings",
    "FedProxSettings",
    "GLocalFairSettings",
    "PrivFairFLSettings",
]


class FedProxSettings(GlobalModelSettings):
    """Those of FedAvg, and the pull towards the global model."""

    mu: float = Field(0.01, ge=0, description="weight of half the squared distance to the global model, in the loss")


FAIRFED_RANGE = (0.25, 4.0)
"""Public range of a client's weight, whose mean over clients is one."""


class FairFedSettings(GlobalModelSettings):
    """How fast a client's weight follows its distance from the federation, and which distance."""

    beta: float = Field(
        1.0, ge=0, description="times the client's distance less the mean one, taken off its weight; mean weight 1"
    )
    metric: Literal["sp", "eo"] = Field("eo", description="gap of demographic parity, or of equal opportunity")
    rate: float = Field(0.3, gt=0, le=1, description="of the federation's running means, a round; the paper's is 1")
    debias: Literal["none", "reweighing"] = Field(
        "reweighing", description="of the local loss; reweighing: by the client's own counts of group and label"
    )

    @property
    def score_max(self) -> float:
        """The score is the logarithm of the weight's ratio to the least one."""
        return math.log(FAIRFED_RANGE[1] / FAIRFED_RANGE[0])

    def rule_parameters(self, model: ModelConfig) -> Mapping[str, Any]:
        return {"fairness_max": self.score_max}


class GLocalFairSettings(GlobalModelSettings):
    """The clients' constraints on their own gaps, and how much fair local models weigh."""

    tolerance: float = Field(0.02, ge=0, le=1, description="gap that a client's constraints allow")
    step: float = Field(
        0.1, ge=0, description="by how much a multiplier rises in an epoch, times what the gap exceeds it"
    )
    multiplier_max: float = Field(5.0, gt=0, description="cap of a multiplier")
    sharpness: float = Field(
        2.0, gt=0, le=8, description="a client without gaps weighs e^sharpness times as much as one with gaps of 1"
    )
    aggregation: Literal["scores", "clusters"] = Field(
        "scores", description="clusters: the paper's, of models that a server sees; refused, as none does here"
    )

    @model_validator(mode="after")
    def _no_server_sees_a_model(self) -> GLocalFairSettings:
        if self.aggregation == "clusters":
            raise ValueError(
                "method.aggregation = clusters needs a server that sees every client's model; here servers hold shares "
                "of them: leave it at scores"
            )
        return self

    def rule_parameters(self, model: ModelConfig) -> Mapping[str, Any]:
        return {"fairness_max": self.sharpness}


class PrivFairFLSettings(GlobalModelSettings):
    """Those of FedAvg, and what is public about the counts that clients sum on shares before the first round."""

    most_nodes: float = Field(
        1000.0, gt=0, description="bound of the Euclidean norm of a client's four counts by group and label"
    )
    counts_noise: float = Field(
        0.0, ge=0, description="noise multiplier of the summed counts; with privacy.noise_multiplier it is needed too"
    )

    def statistics(self) -> Sequence[SecureSum]:
        return [SecureSum("cells", self.most_nodes, lambda sizes: 4, self.counts_noise)]


class F2PGNNSettings(GlobalModelSettings):
    """How much less the better group learns, and the noise that clients add themselves."""

    scale: float = Field(
        0.5,
        ge=0,
        le=1,
        description="beta: how much less the group that does better learns, and how much more the other",
    )
    power: float = Field(
        1.0, ge=1, le=4, description="alpha, of the difference of the groups' performance; 1: its sign alone counts"
    )
    rate: float = Field(0.3, gt=0, le=1, description="of the federation's running means, a round; the paper's is 1")
    local_clip: float | None = Field(
        None, gt=0, description="bound of the Euclidean norm of a client's upload, which the client keeps to itself"
    )
    local_noise: float = Field(
        0.0,
        ge=0,
        description="standard deviation of the noise that a client adds to its upload, relative to 2 local_clip; from "
        "the operating system, so that a run is not repeatable",
    )

    @model_validator(mode="after")
    def _noise_has_a_bound(self) -> F2PGNNSettings:
        if self.local_noise > 0 and self.local_clip is None:
            raise ValueError("method.local_noise is relative to method.local_clip: set that too")
        return self


class FedFairGNNSettings(GlobalModelSettings):
    """The two gradients of the clients, and how servers trade performance for fairness."""

    parity: float = Field(0.5, ge=0, description="lambda: weight of the client's soft gap of demographic parity")
    fair_clip: float = Field(1.0, gt=0, description="bound of the Euclidean norm of the fairness gradient of a step")
    budget: float = Field(0.05, ge=0, le=1, description="tau: the weighted mean of clients' gaps that is allowed")
    dual_step: float = Field(0.1, ge=0, description="by how much the multiplier mu rises in a round, times the excess")
    multiplier_max: float = Field(1.0, gt=0, le=16, description="cap of mu")
    temperature: float = Field(
        0.5, ge=0.05, description="T: the smaller, the more the best client weighs; the paper's linear program is T = 0"
    )

    def rule_parameters(self, model: ModelConfig) -> Mapping[str, Any]:
        return {"fairness_max": (1 + self.multiplier_max) / self.temperature}


class AFedSettings(GlobalModelSettings):
    """How many embeddings a client generates, and how much they count."""

    samples: int = Field(
        32,
        ge=4,
        le=2**16,
        multiple_of=4,
        description="generated embeddings of a step, a quarter of each group and label",
    )
    augment: float = Field(0.5, ge=0, description="weight of their cross-entropy beside that of the training nodes")
    matching: float = Field(
        10.0, ge=0, description="in the generator's loss: weight of the distance of each cell's mean from the true one"
    )
    variant: Literal["gan", "g"] = Field(
        "gan",
        description="gan: clients train the generator; g: the paper's other one, which its server trains on clients' "
        "models; refused, as none sees them here",
    )

    @model_validator(mode="after")
    def _no_server_sees_a_model(self) -> AFedSettings:
        if self.variant == "g":
            raise ValueError(
                "method.variant = g needs a server that sees every client's model; here servers hold shares of them: "
                "leave it at gan"
            )
        return self
