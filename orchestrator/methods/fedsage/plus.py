"""FedSage+'s client (Zhang et al., NeurIPS 2021): generate the neighbours that lie with other clients, then FedSage.

Before the first round every client trains a generator of missing neighbours: alone, then with the gradients of all
others, see `neighgen`. Then it mends its graph with generated neighbours, and from there on it is FedSage's client on
the mended graph. Metrics are of the classes of its own nodes; generated ones have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from orchestrator.config import Config
from orchestrator.graphs.graph import Graph
from orchestrator.methods.fedavg import FedAvg
from orchestrator.methods.fedsage.impairment import mend
from orchestrator.methods.fedsage.neighgen import QUALITY, NeighbourGenerator
from orchestrator.methods.fedsage.settings import FedSagePlusSettings

__all__ = ["FedSagePlus"]


class FedSagePlus(FedAvg):
    """What other clients see of this one: its feature generator, noisy embeddings, and gradients; see `neighgen`."""

    settings: FedSagePlusSettings

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        super().__init__(graph, config, client)
        self._unmended = graph
        self._generator: NeighbourGenerator | None = None
        self._generated: tuple[np.ndarray, np.ndarray] | None = None
        self._quality = dict.fromkeys(QUALITY, np.nan)

    @classmethod
    def preparations(cls, config: Config) -> int:
        """At least one step, in which nothing is asked where generators learn alone."""
        assert isinstance(config.method, FedSagePlusSettings)
        return max(1, config.method.generator.exchanging)

    def ask(self, step: int) -> Mapping[str, np.ndarray]:
        if step == 0:
            settings = self.settings.generator
            self._generator = NeighbourGenerator(self._unmended, settings, self.config.seed, self.client)
            self._generator.train_locally(settings.local_epochs)
        return self._in_training().question() if self.settings.generator.exchanging else {}

    def answer(self, step: int, questions: Mapping[int, Mapping[str, np.ndarray]]) -> np.ndarray:
        generator = self._in_training()
        answers = [
            np.zeros(question["parameters"].shape) if asker == self.client else generator.answer(question)
            for asker, question in questions.items()
        ]
        return np.concatenate(answers)

    def hear(self, step: int, answer: np.ndarray | None) -> None:
        generator = self._in_training()
        if answer is not None:
            generator.learn(answer)
        if step == self.preparations(self.config) - 1:
            self._generator = None  # it has done its work, and is the largest thing that a client holds
            self._quality = generator.finish()
            self._mend(*generator.generated())

    def _in_training(self) -> NeighbourGenerator:
        if self._generator is None:
            raise RuntimeError("the clients' preparation has not begun, or is over")
        return self._generator

    def _mend(self, owners: np.ndarray, features: np.ndarray) -> None:
        """Learn from the graph with these neighbours: int64, shape (g,), and float32, shape (g, f)."""
        self._generated = owners, features
        self.see(mend(self._unmended, owners, features))

    def facts(self) -> Mapping[str, float]:
        """How good the generator is beside trivial ones, see `NeighbourGenerator.finish`; NaN before it."""
        return self._quality

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict() | self._quality
        if self._generated is not None:
            state["owners"], state["generated"] = self._generated
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._quality = {name: float(state[name]) for name in QUALITY}
        if "owners" in state:
            self._mend(np.array(state["owners"], np.int64), np.array(state["generated"], np.float32))
