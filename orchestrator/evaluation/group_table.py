"""Counts of nodes by group, label and prediction: what clients hand over, and all figures but AUC follow from."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from orchestrator.evaluation.intervals import difference_interval, size_interval, widened

__all__ = ["GAPS", "Gap", "GroupTable"]

GAPS = ("delta_sp", "delta_eo")


@dataclass(frozen=True)
class Gap:
    """The largest of the differences between two groups, one a class that both have.

    Attributes:
        size: None where there is no such class.
        low, high: 95 % interval of the largest difference; None where the size is.
        nodes: of group 0 and of group 1, in the class that differs most; where none can be compared, in the first.
        of_class: that class.
        compared: classes that both groups have.
        rates: of group 0 and of group 1, in that class: the share of these nodes that is taken for it; None of nothing.
    """

    size: float | None
    low: float | None
    high: float | None
    nodes: tuple[int, int]
    of_class: int
    compared: int
    rates: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True, eq=False)
class GroupTable:
    """One table or, with leading axes, several, e.g. one a client.

    A table is a vector of known length, its whole numbers are no larger than the number of its nodes, and the sum of
    tables is the table of all their nodes.

    Attributes:
        counts: int64, shape (..., G, C, C), nodes of group s and class y that were taken for class c; G is 2, or 1
            where no sensitive attribute is known.
    """

    counts: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, sensitive: np.ndarray | None, labels: np.ndarray, predicted: np.ndarray, classes: int) -> GroupTable:
        """The table of these nodes.

        Args:
            sensitive: 0 or 1, shape (n,); None: unknown.
            labels, predicted: integers in [0, C), shape (n,).
        """
        groups = 1 if sensitive is None else 2
        places = labels.astype(np.int64) * classes + predicted
        if sensitive is not None:
            places += sensitive.astype(np.int64) * classes**2
        return cls(np.bincount(places, minlength=groups * classes**2).reshape(groups, classes, classes))

    def total(self) -> GroupTable:
        """All tables as one, that of the union of their nodes; who is a node of two clients counts twice."""
        return GroupTable(self.counts.reshape(-1, *self.counts.shape[-3:]).sum(axis=0))

    @property
    def groups(self) -> int:
        """G."""
        return self.counts.shape[-3]

    @property
    def classes(self) -> int:
        """C."""
        return self.counts.shape[-1]

    @cached_property
    def confusion(self) -> np.ndarray:
        """Shape (..., C, C), of both groups together."""
        return self.counts.sum(axis=-3)

    @property
    def nodes(self) -> np.ndarray:
        """Shape (...)."""
        return self.confusion.sum(axis=(-2, -1))

    @property
    def accuracy(self) -> np.ndarray:
        """Share of nodes whose predicted class is the label, shape (...); NaN without nodes."""
        return _share(np.trace(self.confusion, axis1=-2, axis2=-1), self.nodes)

    @property
    def balanced_accuracy(self) -> np.ndarray:
        """Mean over the classes that have nodes of the share that is taken for it, shape (...); NaN without nodes.

        A model that takes every node for the same class has 1 / C, whatever its accuracy, and no gap either.
        """
        return np.nanmean(_share(np.diagonal(self.confusion, axis1=-2, axis2=-1), self.confusion.sum(axis=-1)), axis=-1)

    @property
    def macro_f1(self) -> np.ndarray:
        """Mean of ``2 TP / (2 TP + FP + FN)`` over the classes among labels or predictions, shape (...); or NaN."""
        appearances = self.confusion.sum(axis=-1) + self.confusion.sum(axis=-2)
        scores = _share(2 * np.diagonal(self.confusion, axis1=-2, axis2=-1), appearances)
        return _share(np.nansum(scores, axis=-1), (appearances > 0).sum(axis=-1))

    def sizes(self, gap: str) -> np.ndarray:
        """The gap of each table, shape (...); NaN where no class can be compared."""
        return np.fmax.reduce(_differences(*self._rates(gap)), axis=-1)

    def largest(self, gap: str) -> int | None:
        """Which of several tables has the largest gap, of equal ones that of the most nodes; None: none has one."""
        sizes = self.sizes(gap)
        order = np.lexsort((self.nodes, np.where(np.isnan(sizes), -1, sizes)))
        return None if np.isnan(sizes).all() else int(order[-1])

    def gap(self, gap: str, independent: float = 1.0, noise_stddev: float = 0.0) -> Gap:
        """The gap of a single table, with its interval.

        With several classes the interval is of the largest of their differences: each is within its own interval but
        for a share of the 5 % (Bonferroni), so the largest lies between the largest lower and the largest upper end.

        Args:
            independent: the share of nodes that the interval counts, where a table counts some nodes several times.
            noise_stddev: of the Gaussian noise on every count, by which the interval is wider, to first order.
        """
        hits, totals = self._rates(gap)
        differences = _differences(hits, totals)
        compared = ~np.isnan(differences)
        place = int(np.argmax(np.where(compared, differences, -1)))
        of_class = place + self._first
        nodes, count = (int(totals[0, place]), int(totals[1, place])), int(compared.sum())
        each = [float(hits[g, place] / totals[g, place]) if totals[g, place] > 0 else None for g in (0, 1)]
        rates = each[0], each[1]
        if not count:
            return Gap(None, None, None, nodes, of_class, 0, rates)
        hits, totals, error = hits[:, compared], totals[:, compared], 0.05 / count
        ends = difference_interval(independent * hits, independent * totals, error)
        if noise_stddev:
            ends = widened(hits, totals, ends, noise_stddev * self._cells(gap), error)
        low, high = (float(end.max()) for end in size_interval(*ends))
        return Gap(float(differences[place]), low, high, nodes, of_class, count, rates)

    @property
    def _first(self) -> int:
        """The first class that is compared: of two classes it is the second one alone, the positive."""
        return 1 if self.classes == 2 else 0

    def _cells(self, gap: str) -> np.ndarray:
        """Square roots of how many counts a rate's hits, and what it has besides, are sums of; shape (2,)."""
        hits = self.classes if gap == "delta_sp" else 1
        total = self.classes**2 if gap == "delta_sp" else self.classes
        return np.sqrt([hits, total - hits])

    def _rates(self, gap: str) -> tuple[np.ndarray, np.ndarray]:
        """By group and class, of how many nodes the gap's rate is, and how many count as hits; shape (..., 2, K)."""
        if gap == "delta_sp":
            hits, totals = self.counts.sum(axis=-2), self.counts.sum(axis=(-2, -1))[..., None]
            totals = np.broadcast_to(totals, hits.shape)
        else:
            hits, totals = np.diagonal(self.counts, axis1=-2, axis2=-1), self.counts.sum(axis=-1)
        return hits[..., self._first :], totals[..., self._first :]


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """NaN of nothing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return part / whole


def _differences(hits: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """|p1 - p0| by class, shape (..., K); NaN where a group has none."""
    rates = _share(hits, totals)
    return np.abs(rates[..., 1, :] - rates[..., 0, :])
