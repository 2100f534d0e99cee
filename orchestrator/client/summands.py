"""What a client adds to a secure sum, and how that becomes an update which an engine's encoder takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from orchestrator.errors import RangeError
from orchestrator.evaluation.summed import CountsLayout
from orchestrator.methods.base import LocalUpdate
from orchestrator.secure_sum import EVALUATION

__all__ = ["Answers", "Statistic", "Summand", "TablesOf", "as_update"]

_INSIDE = 1.0 - 2.0**-30
"""Of the bound; rounding to the ring's grid must not lead out of it, or the servers would shorten it again."""


class Summand(Protocol):
    """Which numbers of a client's are added up; must survive pickling.

    Attributes:
        name: of the sum.
    """

    @property
    def name(self) -> str: ...

    def of(self, client: Any) -> np.ndarray:
        """Those of a `LocalMethod`, float64 (m,)."""


@dataclass(frozen=True)
class Statistic:
    """`LocalMethod.statistic` of this name."""

    name: str

    def of(self, client: Any) -> np.ndarray:
        return client.statistic(self.name)


@dataclass(frozen=True)
class Answers:
    """`LocalMethod.answer` to the questions of a step of the preparation, by asker."""

    step: int
    questions: Mapping[int, Mapping[str, np.ndarray]] = field(repr=False)

    @property
    def name(self) -> str:
        """That of no sum which a plan counts: what clients prepare together has no epsilon."""
        return f"answers of step {self.step}"

    def of(self, client: Any) -> np.ndarray:
        return client.answer(self.step, self.questions)


@dataclass(frozen=True)
class TablesOf:
    """What a model, the client's own where it has one, makes of its nodes, counted as the layout says."""

    layout: CountsLayout
    parameters: np.ndarray = field(repr=False)
    own: bool
    name: str = EVALUATION

    def of(self, client: Any) -> np.ndarray:
        return self.layout.of(client.logits(self.parameters, self.own), client.graph)


def as_update(numbers: np.ndarray, bound: float, length: int) -> LocalUpdate:
    """The numbers over their bound, negated, as a round takes updates from a model: of a norm of at most one.

    Raises:
        RangeError: there are not as many as everybody expects.
    """
    if np.shape(numbers) != (length,):
        raise RangeError(f"its numbers for the sum have shape {np.shape(numbers)}, expected ({length},)")
    delta = np.asarray(numbers, dtype=np.float64) / -bound
    norm = float(np.linalg.norm(delta))
    if norm > 1.0 and np.isfinite(norm):
        delta = delta * (_INSIDE / norm)
        norm = float(np.linalg.norm(delta))
    return LocalUpdate(delta, norm, {})
