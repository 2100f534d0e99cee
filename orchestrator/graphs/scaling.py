"""How features are brought to comparable ranges, and over whose nodes that is fitted.

| `data.scaling` | a feature becomes               | mean and deviation are of                                      |
|----------------|---------------------------------|----------------------------------------------------------------|
| by_client      | (x - mean) / standard deviation | a client's own nodes that are for neither validation nor test  |
| pooled         | (x - mean) / standard deviation | all nodes of all clients, test nodes too, as in the papers     |
| row_normalised | x / sum of the node's features  |                                                                |
| none           | x                               |                                                                |

Outside of a simulation nobody could pool: whoever does sees all clients' features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from orchestrator.errors import DataError

__all__ = ["AS_GIVEN", "POLICIES", "Policy", "Scaling"]

Policy = Literal["by_client", "pooled", "row_normalised", "none"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

_MOST = 10.0
"""Deviations from the mean that ``by_client`` gives at most: over a few nodes a deviation may be far too small."""

_ROWS = 4096
"""Rows scaled at a time in float64, so that memory stays at one float32 copy."""


@dataclass(frozen=True, eq=False)
class Scaling:
    """A policy, and what was fitted for it.

    Attributes:
        policy: see the module's text.
        mean, deviation: float64, shape (f,); None: nothing is fitted. A deviation is infinite where a feature did not
            vary: ``pooled`` leaves it out, and of ``by_client`` it is 0.
        applied: whether features that carry this are scaled already.
    """

    policy: Policy = "none"
    mean: np.ndarray | None = None
    deviation: np.ndarray | None = None
    applied: bool = True

    @classmethod
    def of(cls, policy: Policy, features: np.ndarray) -> Scaling:
        """What is known of a policy where the whole graph is: all but what each client fits by itself.

        ``pooled``: fitted over all rows; constant features go.
        """
        if policy != "pooled":
            return cls(policy, applied=policy != "by_client")
        return cls("pooled", *_moments(features))

    @classmethod
    def by_client(cls, features: np.ndarray, fitted_on: np.ndarray) -> Scaling:
        """Fitted over the rows of a mask, shape (n,).

        Every feature stays, so that all clients have the same. One that does not vary over these rows is 0 at every
        node, as nothing says in which range it varies; with fewer than two rows that is all of them. Others stay within
        10 deviations of the mean.
        """
        return cls("by_client", *_moments(features[fitted_on]))

    @property
    def carried(self) -> Scaling:
        """What a model brings for graphs that are not scaled: itself, or ``by_client`` for each of them to fit."""
        return Scaling("by_client", applied=False) if self.policy == "by_client" and self.mean is None else self

    def apply(self, features: np.ndarray, name: str) -> np.ndarray:
        """Features as they came, (n, f), scaled: float32, (n, f'). As they came where that is left to their holder.

        Raises:
            DataError: a feature is negative where rows are to be normalised.
        """
        if self.policy == "none" or not self.applied:
            return features
        if self.policy == "row_normalised":
            return _row_normalised(features, name)
        assert self.mean is not None and self.deviation is not None  # as of everything that is fitted and applied
        stays = ~np.isinf(self.deviation) | (self.policy == "by_client")  # NaN stays, for the graph to refuse
        scaled = np.empty((len(features), stays.sum()), np.float32)
        for start in range(0, len(features), _ROWS):
            rows = slice(start, start + _ROWS)
            values = features[rows, stays].astype(np.float64)
            scores = (values - self.mean[stays]) / self.deviation[stays]
            scaled[rows] = np.clip(scores, -_MOST, _MOST) if self.policy == "by_client" else scores
        return scaled

    def loss(self, names: Sequence[str]) -> str:
        """A note of the features that go, by their names or, without, numbers; empty where none do."""
        shown = ", ".join(str(names[k] if names else k) for k in self.gone)
        return f"left out constant features: {shown}" if shown else ""

    @property
    def gone(self) -> list[int]:
        """Numbers of the features, as they came, that are left out."""
        if self.policy != "pooled" or self.deviation is None:
            return []
        return np.flatnonzero(np.isinf(self.deviation)).tolist()

    def __eq__(self, other: object) -> bool:
        """The same policy, fitted to the same values."""
        if not isinstance(other, Scaling):
            return NotImplemented
        pairs = ((getattr(self, field), getattr(other, field)) for field in ("mean", "deviation"))
        return (self.policy, self.applied) == (other.policy, other.applied) and all(_same(*pair) for pair in pairs)

    def __hash__(self) -> int:
        return hash((self.policy, self.applied))


AS_GIVEN = Scaling()


def _moments(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and (n - 1) standard deviations by column, float64; 0 and infinity of no rows.

    A column that does not vary has an infinite deviation.
    """
    mean, deviation = np.zeros(features.shape[1]), np.full(features.shape[1], np.inf)
    for column in range(features.shape[1] if len(features) else 0):
        values = features[:, column].astype(np.float64)
        mean[column] = values.mean()
        if values.min() != values.max():
            deviation[column] = values.std(ddof=1)
    return mean, deviation


def _row_normalised(features: np.ndarray, name: str) -> np.ndarray:
    """Every row divided by its sum, a row of zeros left as it is."""
    if features.min(initial=0) < 0:
        raise DataError(f"{name}: data.scaling = row_normalised needs features that are not negative")
    total = features.sum(axis=1, keepdims=True, dtype=np.float64)
    return (features / np.where(total > 0, total, 1)).astype(np.float32)


def _same(one: Any, other: Any) -> bool:
    return one is other or (one is not None and other is not None and np.array_equal(one, other))
