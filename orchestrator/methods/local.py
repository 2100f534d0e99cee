"""The local training that the methods share: full-batch Adam on the client's training nodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from orchestrator.config import Config
from orchestrator.errors import RangeError
from orchestrator.graphs.graph import Graph
from orchestrator.methods.base import LocalMethod, LocalUpdate
from orchestrator.models import GCN, GraphTensors, load_vector, ordered_parameters, parameters_to_vector
from orchestrator.seeding import seeded_generator

__all__ = ["AdamTraining"]


class AdamTraining(LocalMethod):
    """LocalUpdate of SaFeGNN, Algorithm 1, lines 28-39, up to where the training starts, its loss and its scores.

    Adam's moments stay with the client between its participations while its weights are replaced, as in the
    reference codes of F2GNN and FED-PUB. All randomness of a participation derives from the run's seed, the client's
    number and how often the client took part before, so it does not depend on the process or on other clients.

    A client without training nodes trains nothing: its local model is the global one, its update exactly 0.
    """

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        self._config = config
        self._client = client
        self._tensors = GraphTensors(graph)
        self._model = GCN(graph.num_features, config.model)
        self._optimiser = torch.optim.Adam(
            ordered_parameters(self._model),
            lr=config.method.learning_rate,
            weight_decay=config.method.weight_decay,
            fused=True,
        )
        nodes = np.flatnonzero(graph.train)
        self._nodes = torch.from_numpy(nodes)
        self._labels = torch.from_numpy(graph.labels[nodes].astype(np.float32))
        self._participations = 0

    @abstractmethod
    def _start(self, parameters: np.ndarray, noise: np.random.Generator) -> np.ndarray:
        """The vector from which the epochs start, shape (d,). Args: parameters: the released global model."""

    @abstractmethod
    def _loss(self, logits: Tensor) -> Tensor:
        """The loss of one epoch. Args: logits: of the training nodes, with dropout, shape (number of them,)."""

    @abstractmethod
    def _scores(self) -> Mapping[str, float]:
        """The scores of the update, once training is over."""

    def _finish(self, local: np.ndarray) -> None:
        """Called with the trained local model, float64, shape (d,)."""

    def train(self, parameters: np.ndarray) -> LocalUpdate:
        noise = seeded_generator(self._config.seed, "train", self._client, self._participations)
        self._participations += 1
        if len(self._nodes):
            load_vector(self._model, self._start(parameters, noise))
            for _ in range(self._config.method.local_epochs):
                self._optimiser.zero_grad()
                self._loss(self._model(self._tensors, noise)[self._nodes]).backward()
                self._optimiser.step()
            local = parameters_to_vector(self._model)
        else:
            local = parameters.copy()
        self._finish(local)
        delta = parameters - local
        norm = float(np.linalg.norm(delta))
        scores = self._scores()
        if not np.isfinite([norm, *scores.values()]).all():
            raise RangeError(
                f"client {self._client}: its local model is not finite after training; "
                "check that the global model and method.learning_rate are of ordinary size"
            )
        return LocalUpdate(delta, norm, scores)

    def _logits(self, noise: np.random.Generator | None = None) -> Tensor:
        """Logits of the training nodes under the loaded parameters, without gradient; see `GCN.forward`."""
        with torch.no_grad():
            return self._model(self._tensors, noise)[self._nodes]

    def state_dict(self) -> dict[str, Any]:
        return {"participations": self._participations, "adam": self._adam_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._participations = int(state["participations"])
        self._load_adam_state(state["adam"])

    def _adam_state(self) -> dict[str, Any]:
        """``step`` and both moments, float32, shape (d,), in the order of the parameters; empty before any step."""
        moments = [self._optimiser.state[p] for p in ordered_parameters(self._model) if p in self._optimiser.state]
        if not moments:
            return {}
        flat = {name: torch.cat([m[name].reshape(-1) for m in moments]).numpy() for name in _MOMENTS}
        return {"step": int(moments[0]["step"]), **flat}

    def _load_adam_state(self, state: Mapping[str, Any]) -> None:
        self._optimiser.state.clear()
        if not state:
            return
        offset = 0
        for parameter in ordered_parameters(self._model):
            part = slice(offset, offset + parameter.numel())
            offset = part.stop
            self._optimiser.state[parameter] = {
                "step": torch.tensor(float(state["step"]), dtype=torch.float32),
                **{name: torch.tensor(state[name][part], dtype=torch.float32).view_as(parameter) for name in _MOMENTS},
            }


_MOMENTS = ("exp_avg", "exp_avg_sq")
