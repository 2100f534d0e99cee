"""The settings of FedSage+, without torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from orchestrator.config import Section
from orchestrator.methods.settings import GlobalModelSettings

__all__ = ["FedSagePlusSettings", "GeneratorSettings"]


class GeneratorSettings(Section):
    """The missing-neighbour generator of FedSage+; see `orchestrator.methods.fedsage.neighgen`."""

    hidden_share: float = Field(0.1, gt=0, lt=1, description="h: share of the nodes that is hidden to train on")
    hide_from: Literal["all", "validation"] = Field(
        "all",
        description="whose share is hidden; all: of all nodes; validation: of those outside training and test, as the "
        "reference code",
    )
    encoder_hidden: int = Field(64, ge=1, description="hidden units of the encoder")
    latent: int = Field(128, ge=1, description="length of a node's embedding")
    widths: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] = Field(
        (64, 128), description="hidden layers of the feature generator; (256, 2048) in the reference code"
    )
    candidates: int = Field(5, ge=1, description="neighbours generated for a node, of which some are drawn")
    sampler: Literal["random", "first"] = Field(
        "random", description="which candidates are drawn; first: always the first ones, as the reference code"
    )
    dropout: float = Field(0.5, ge=0, lt=1, description="in the encoder")
    learning_rate: float = Field(3e-3, gt=0, description="of Adam")
    weight_decay: float = Field(1e-4, ge=0, description="of Adam: times the weights, added to the gradient")
    local_epochs: int = Field(20, ge=0, description="steps of a client alone, before the exchanges")
    exchanges: int = Field(20, ge=0, description="steps for which the other clients are asked for gradients")
    cross_weight: float = Field(1.0, ge=0, description="alpha: weight of the other clients' features in the loss")

    @property
    def exchanging(self) -> int:
        """Steps in which clients exchange messages: none where others' features have no weight."""
        return self.exchanges if self.cross_weight else 0


class FedSagePlusSettings(GlobalModelSettings):
    """FedSage on graphs that are mended first."""

    generator: GeneratorSettings = GeneratorSettings()
