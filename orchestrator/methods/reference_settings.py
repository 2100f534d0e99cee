"""The settings of the fair methods that were made for one owner of the whole graph; without torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from orchestrator.methods.settings import GlobalModelSettings

__all__ = ["EditsSettings", "FairGNNSettings"]


class FairGNNSettings(GlobalModelSettings):
    """FairGNN's two weights, alpha and beta; the defaults are those of the authors' script for NBA."""

    covariance: float = Field(10.0, ge=0, description="alpha: weight of the covariance of group and prediction")
    adversary: float = Field(1.0, ge=0, description="beta: weight of the adversary's loss, which the model makes large")
    known: Literal["train", "all"] = Field(
        "train",
        description="nodes whose group the covariance and the adversary see; train: training nodes; all: every node, "
        "of which those for validation and test have no label here but a group",
    )


class EditsSettings(GlobalModelSettings):
    """What EDITS takes away from the graph before training begins."""

    masked: int = Field(4, ge=0, description="attributes that are set to 0: those in which the groups differ most")
    hops: int = Field(2, ge=1, le=8, description="propagations along edges over which differences are added up")
    edge_steps: int = Field(100, ge=0, le=10_000, description="steps of Adam on the edges' weights; 0: all edges stay")
    edge_rate: float = Field(0.01, gt=0, description="learning rate of these steps")
    edge_penalty: float = Field(
        1.0, ge=0, description="weight of the share of edges that go, beside the share of structural bias that stays"
    )
