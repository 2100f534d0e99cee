"""FedAvg whose clients know, before the first round, how many nodes of each class everybody has together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from orchestrator.methods.fedavg import FedAvg
from orchestrator.methods.settings import FedAvgSettings
from orchestrator.secure_sum import SecureSum

__all__ = ["Cohorts", "CohortsSettings", "Counting", "CountingSettings"]


class CountingSettings(FedAvgSettings):
    """Those of FedAvg, and what is public about the sum."""

    most_nodes: float = Field(1000.0, gt=0, description="bound of the Euclidean norm of a client's counts")
    counts_noise: float = Field(0.0, ge=0, description="noise multiplier of the counts")

    def statistics(self) -> Sequence[SecureSum]:
        return [SecureSum("classes", self.most_nodes, lambda sizes: sizes.classes, self.counts_noise)]


class Counting(FedAvg):
    """Here it only keeps what it hears; a method would weigh its loss by it."""

    settings: CountingSettings
    heard: np.ndarray

    def statistic(self, name: str) -> np.ndarray:
        labels = self.graph.labels[self.graph.train]
        return np.bincount(labels, minlength=self.graph.classes).astype(float)

    def hear_total(self, name: str, total: np.ndarray) -> None:
        self.heard = total


class CohortsSettings(FedAvgSettings):
    """Those of FedAvg, and the noise of what cohorts add up."""

    sum_noise: float = Field(0.0, ge=0, description="noise multiplier of the sum")

    def statistics(self) -> Sequence[SecureSum]:
        return [SecureSum("numbers", 20.0, lambda sizes: 2, self.sum_noise, each_round=True)]


class Cohorts(FedAvg):
    """A round's clients add up their numbers, from 1, and how many they are."""

    settings: CohortsSettings

    def statistic(self, name: str) -> np.ndarray:
        return np.array([self.client + 1.0, 1.0])

    def hear_total(self, name: str, total: np.ndarray) -> None:
        self.heard = total
