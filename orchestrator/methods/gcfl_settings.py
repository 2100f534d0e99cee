"""GCFL's settings, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from orchestrator.config import ModelConfig
from orchestrator.methods.settings import AdamSettings

__all__ = ["GCFLSettings"]


class GCFLSettings(AdamSettings):
    """How updates are compared, and how strongly that decides whose models a client takes from."""

    similarity: float = Field(
        5.0,
        gt=0,
        le=12,
        description="tau: scale of the cosines in the softmax; the larger, the harder the clusters",
    )
    sketch: int = Field(64, ge=2, le=1024, description="numbers that a client's update is sketched by")

    def rule_parameters(self, model: ModelConfig) -> Mapping[str, Any]:
        return {"embedding": self.sketch, "similarity": self.similarity}
