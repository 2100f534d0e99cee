"""F2GNN's client (SaFeGNN, section 3.1 and Algorithm 1, lines 28-39)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from orchestrator.config import Config
from orchestrator.fairness import gap_coefficients, gaps, js_distance_over_nodes, js_divergence
from orchestrator.graphs.balance import group_balance
from orchestrator.graphs.graph import Graph
from orchestrator.methods.local import AdamTraining
from orchestrator.models import initial_parameters, load_vector
from orchestrator.seeding import derived_seed

__all__ = ["F2GNN"]

_DIVERGENCES = {"js": js_divergence, "js_distance_over_nodes": js_distance_over_nodes}


class F2GNN(AdamTraining):
    """Interpolates between its previous and the global model, then trains with a fairness penalty.

    Scores: ``balance``, B in [0, 1], and ``fairness``, in [0, ``method.score_max``]; 0 without training nodes. Both
    gaps, and the comparison of the two models, are over the client's training nodes, as in the reference code.
    """

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        super().__init__(graph, config, client)
        method = config.method
        self._coefficients = gap_coefficients(
            self._labels, torch.from_numpy(graph.sensitive)[self._nodes], method.penalty, method.eo_denominator
        ).float()
        self._balance = float(np.clip(group_balance(graph, config.clients.balance_self_loops), 0, 1))
        self._local: np.ndarray | None = None
        if method.local_init == "own":
            self._local = initial_parameters(
                graph.num_features, config.model, derived_seed(config.seed, "local model", client)
            )
        self._last_penalty = 0.0

    def _start(self, parameters: np.ndarray, noise: np.random.Generator) -> np.ndarray:
        """``(1 - js) w_local + js w`` (line 30)."""
        if self._local is None:
            return parameters
        method = self._config.method
        load_vector(self._model, self._local)
        local = self._logits(noise if method.divergence_local_mode == "train" else None).numpy()
        load_vector(self._model, parameters)
        released = self._logits().numpy()
        js = _DIVERGENCES[method.divergence](local, released, method.tau_combine)
        return (1 - js) * self._local + js * parameters

    def _loss(self, logits: Tensor) -> Tensor:
        """Cross-entropy plus alpha times the penalty (line 33)."""
        penalty = self._penalty(logits)
        self._last_penalty = penalty.detach()
        return F.binary_cross_entropy_with_logits(logits, self._labels) + self._config.method.alpha * penalty

    def _penalty(self, logits: Tensor) -> Tensor:
        return gaps(torch.sigmoid(logits / self._config.method.tau_fair), self._coefficients).sum()

    def _finish(self, local: np.ndarray) -> None:
        self._local = local

    def _scores(self) -> Mapping[str, float]:
        return {"balance": self._balance, "fairness": self._fairness() if len(self._nodes) else 0.0}

    def _fairness(self) -> float:
        method = self._config.method
        penalty = float(self._last_penalty if method.score_from == "last_epoch" else self._penalty(self._logits()))
        score = penalty if method.score == "penalty" else 1 / (penalty + 1e-5)
        return float(np.clip(score, 0, method.score_max))

    def state_dict(self) -> dict[str, Any]:
        local = {} if self._local is None else {"local": self._local.copy()}
        return super().state_dict() | local

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._local = np.array(state["local"], np.float64) if "local" in state else None
