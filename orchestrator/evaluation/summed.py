"""What clients add up where nobody may see a single client's table: counts, in one vector, and what their sum says.

A client's vector is, for each mask, its `GroupTable`, then counts of its nodes by label and by score; and a last number
that is 1. Sums of vectors are the vector of all nodes together. The last number says how many clients there are, or
fewer, where vectors longer than the public bound were shortened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from orchestrator.evaluation.group_table import GroupTable
from orchestrator.graphs.graph import Graph

__all__ = ["MASKS", "Counts", "CountsLayout", "binned_auc"]

MASKS = ("val", "test")


@dataclass(frozen=True)
class Counts:
    """Of one mask.

    Attributes:
        table: float64, shape (G, C, C), as in `GroupTable`.
        scores: float64, shape (2, B): nodes with label 0 and 1 by the bin of their probability; B = 0: not counted.
    """

    table: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True)
class CountsLayout:
    """Which number is what.

    Attributes:
        groups, classes: G and C.
        bins: B, of equal width, of the probability of class 1; 0 with more than two classes.
    """

    groups: int
    classes: int
    bins: int

    @property
    def length(self) -> int:
        return len(MASKS) * sum(self._sizes) + 1

    @property
    def _sizes(self) -> tuple[int, int]:
        return self.groups * self.classes**2, 2 * self.bins

    def of(self, logits: np.ndarray, graph: Graph) -> np.ndarray:
        """One client's vector, float64. Args: logits: of every class and node, shape (n, C)."""
        parts = []
        for name in MASKS:
            mask = getattr(graph, name)
            scores, labels = logits[mask], graph.labels[mask]
            groups = None if graph.sensitive is None else graph.sensitive[mask]
            parts.append(GroupTable.of(groups, labels, scores.argmax(axis=1), self.classes).counts)
            if self.bins:
                parts += [np.bincount(_bins(scores[labels == y], self.bins), minlength=self.bins) for y in (0, 1)]
        return np.concatenate([*map(np.ravel, parts), [1.0]]).astype(np.float64)

    def read(self, vector: np.ndarray) -> tuple[Mapping[str, Counts], float]:
        """What a sum of vectors says: the counts by mask, and how many clients' vectors are in it."""
        ends = [0, *accumulate(self._sizes * len(MASKS))]
        parts = [vector[start:end] for start, end in pairwise(ends)]
        tables = [part.reshape(self.groups, self.classes, self.classes) for part in parts[::2]]
        scores = [part.reshape(2, self.bins) for part in parts[1::2]]
        return {name: Counts(*pair) for name, *pair in zip(MASKS, tables, scores, strict=True)}, float(vector[-1])


def binned_auc(scores: np.ndarray) -> tuple[float | None, float]:
    """The area under the ROC curve where only bins of scores are known, and how far the true one may be from it.

    Nodes of different bins are ordered as their bins; of one bin half of the pairs of labels count, so that what is
    wrong is at most half of the share of such pairs. None where the nodes are of one class.

    Args:
        scores: counts of both labels by bin, at least 0, shape (2, B).
    """
    negative, positive = scores
    pairs = negative.sum() * positive.sum()
    if pairs <= 0:
        return None, 0.0
    below = np.cumsum(negative) - negative
    level = float((positive * negative).sum()) / 2
    return float((positive * below).sum() + level) / pairs, level / pairs


def _bins(logits: np.ndarray, bins: int) -> np.ndarray:
    """The bin of each node's probability of class 1; a logit that is not finite counts as 0."""
    with np.errstate(invalid="ignore"):
        difference = np.nan_to_num(logits[:, 1].astype(np.float64) - logits[:, 0], nan=0.0, posinf=0.0, neginf=0.0)
    probability = 0.5 * (1.0 + np.tanh(difference / 2))
    return np.minimum((probability * bins).astype(np.int64), bins - 1)
