"""The engine of clients that train alone: nothing is uploaded, nothing comes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from orchestrator.agreement.round_plan import RoundPlan, Terms
from orchestrator.coordinator.engine import Aggregation, Engine, RoundCost
from orchestrator.methods.base import LocalUpdate
from orchestrator.wire.message import Place

__all__ = ["NoEngine"]


def _nothing(update: LocalUpdate, place: Place, reply_key: bytes = b"") -> None:
    """Leaves the update where it is."""


class NoEngine(Engine):
    """Takes part in the round loop and does nothing."""

    def __init__(self, plan: RoundPlan) -> None:
        self.plan = plan

    @property
    def encoder(self) -> Any:
        return _nothing

    @property
    def decoder(self) -> Any:
        return _nothing

    def start(self, parameters: np.ndarray) -> None:
        pass

    def prepare(self, round: int, size: int, terms: Terms | None = None) -> None:
        pass

    def submit(self, round: int, slot: int, client: int, upload: None) -> None:
        pass

    def aggregate(self, round: int, cohort: Sequence[int]) -> Aggregation:
        return Aggregation(None, RoundCost())

    def close(self) -> None:
        pass
