"""PrivFairFL's client (Pentyala et al., 2022), by pre-processing: the federation's counts, and weights that follow.

Before the first round clients add up their training nodes by group and label on shares. Each then weighs every node by
P(s) P(y) / P(s, y) of the federation (`reweighing`), so that group and label are independent in what all train on
together, and trains as FedAvg does.
"""

from __future__ import annotations

import numpy as np

from orchestrator.methods.fair_settings import PrivFairFLSettings
from orchestrator.methods.fair_training import FairTraining
from orchestrator.methods.reweighing import reweighing

__all__ = ["PrivFairFL"]


class PrivFairFL(FairTraining):
    """Until the counts are heard all nodes weigh one. The rule is FedAvg's plain mean."""

    settings: PrivFairFLSettings

    def statistic(self, name: str) -> np.ndarray:
        return self.cells.ravel()

    def hear_total(self, name: str, total: np.ndarray) -> None:
        self.weigh(reweighing(total.reshape(2, 2)))
