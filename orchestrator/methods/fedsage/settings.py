"""The settings of FedSage+, without torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from orchestrator.config import Section
from orchestrator.methods.settings import GlobalModelSettings
from orchestrator.secure_sum import SecureSum

__all__ = ["FedSagePlusSettings", "GeneratorSettings"]


class GeneratorSettings(Section):
    """The missing-neighbour generator of FedSage+; see `orchestrator.methods.fedsage.neighgen`."""

    hidden_share: float = Field(
        0.1, gt=0, lt=1, description="h: share of the nodes that is held out, and of the others that each step hides"
    )
    hide_from: Literal["all", "validation"] = Field(
        "all",
        description="whose share is hidden; all: of all nodes; validation: of those outside training and test, as the "
        "reference code",
    )
    encoder_hidden: int = Field(64, ge=1, description="hidden units of the encoder")
    latent: int = Field(64, ge=1, description="length of a node's embedding")
    widths: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] = Field(
        (64, 64), description="hidden layers of the feature generator; (256, 2048) in the reference code"
    )
    noise: float = Field(
        0.1, ge=0, description="added to embeddings, in units of their standard deviation; the reference code adds 1"
    )
    candidates: int = Field(10, ge=1, description="most neighbours that a node is given; 5 in the reference code")
    dropout: float = Field(0.5, ge=0, lt=1, description="in the encoder")
    learning_rate: float = Field(3e-3, gt=0, description="of Adam")
    weight_decay: float = Field(1e-4, ge=0, description="of Adam: times the weights, added to the gradient")
    local_epochs: int = Field(
        200, ge=0, description="most steps of a client alone, before the exchanges; it stops when it learns no more"
    )
    exchanges: int = Field(20, ge=0, description="steps for which the other clients are asked for gradients")
    cross_weight: float = Field(1.0, ge=0, description="alpha: weight of the other clients' features in the loss")

    bound: float = Field(
        10.0,
        gt=0,
        description="public bound of the Euclidean norm of a client's answers in a step, all together; longer ones are "
        "shortened to it",
    )

    @property
    def exchanging(self) -> int:
        """Steps in which clients exchange messages: none where others' features have no weight."""
        return self.exchanges if self.cross_weight else 0

    @property
    def answers(self) -> SecureSum:
        """What is public of a step's answers, to all askers one after the other."""
        return SecureSum("answers", self.bound, lambda sizes: sizes.clients * self.parameters(sizes.features))

    def parameters(self, features: int) -> int:
        """d, of the feature generator."""
        first, second = self.widths
        return (self.latent + 1) * first + (first + 1) * second + (second + 1) * features


class FedSagePlusSettings(GlobalModelSettings):
    """FedSage on graphs that are mended first."""

    generator: GeneratorSettings = GeneratorSettings()

    def answers(self) -> SecureSum | None:
        return self.generator.answers if self.generator.exchanging else None
