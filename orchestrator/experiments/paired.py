"""Differences between two arms of an experiment that were run with the same seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import NamedTuple

from scipy.stats import t as student

__all__ = ["Paired"]


class Paired(NamedTuple):
    """Mean difference to the baseline over the seeds, and its 95 % interval (Student's t, paired by seed).

    Attributes:
        mean: None where a run leaves a value undefined.
        low, high: None of fewer than two seeds.
    """

    mean: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float | None], baseline: Sequence[float | None]) -> Paired:
        """Of an arm and the baseline, in the same order of seeds."""
        differences = [a - b for a, b in zip(values, baseline, strict=True) if a is not None and b is not None]
        if not differences or len(differences) < len(values):
            return cls(None, None, None)
        middle, n = mean(differences), len(differences)
        if n < 2:
            return cls(middle, None, None)
        half = float(student.ppf(0.975, n - 1)) * stdev(differences) / math.sqrt(n)
        return cls(middle, middle - half, middle + half)

    def __str__(self) -> str:
        if self.mean is None:
            return "undefined"
        return f"{self.mean:+.4f}" + ("" if self.low is None else f" ({self.low:+.4f} to {self.high:+.4f})")
