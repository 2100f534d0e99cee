"""F2GNN's client (SaFeGNN, section 3.1 and Algorithm 1, lines 28-39)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from orchestrator.config import Config
from orchestrator.errors import ConfigError
from orchestrator.graphs.balance import group_balance
from orchestrator.graphs.graph import Graph
from orchestrator.methods.adam_training import AdamTraining, Batch, no_moments, sum_up
from orchestrator.methods.fairness import gap_coefficients, gaps, js_distance_over_nodes, js_divergence
from orchestrator.methods.settings import F2GNNSettings
from orchestrator.seeding import derived_seed, seeded_generator

__all__ = ["F2GNN"]

_DIVERGENCES = {"js": js_divergence, "js_distance_over_nodes": js_distance_over_nodes}


class F2GNN(AdamTraining):
    """Interpolates between its previous and the global model, then trains with a fairness penalty.

    Scores: ``balance``, B in [0, 1], and ``fairness``, in [0, ``method.score_max``]; 0 without training nodes. Both
    gaps, and the comparison of the two models, are over the client's training nodes, as in the reference code. With
    ``method.stateful: false`` the previous model is always that of a client that never took part.
    """

    settings: F2GNNSettings

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        super().__init__(graph, config, client)
        if graph.classes != 2:
            raise ConfigError(f"method.name = f2gnn is for two classes, but the data have {graph.classes}")
        self._balance = float(np.clip(group_balance(graph, config.clients.balance_self_loops), 0, 1))
        method = self.settings
        self._coefficients = gap_coefficients(
            self.labels, torch.from_numpy(graph.sensitive)[self.nodes], method.penalty, method.eo_denominator
        ).float()
        self._local: np.ndarray | None = None
        if method.local_init == "own":
            self._local = self._random_model()
        self._last_penalty = 0.0

    def _random_model(self) -> np.ndarray:
        return self.network.initial_parameters(derived_seed(self.config.seed, "local model", self.client))

    @classmethod
    def _train_first_models(cls, clients: Sequence[Self]) -> None:
        """Line 3, when a client is first asked: it takes nothing from anyone, so this is as good as before round 1.

        From a random model, as the first released one is not sent before line 5; the moments of Adam are not kept.
        """
        due = [client for client in clients if client.settings.local_init == "trained" and client._local is None]
        if due:
            starts = np.stack([client._random_model() for client in due])
            noises = [seeded_generator(client.config.seed, "first local model", client.client) for client in due]
            trained = cls._epochs(Batch(due), starts, [no_moments(starts.shape[1]) for _ in due], noises)
            for client, model in zip(due, trained.double().numpy(), strict=True):
                client._local = model.copy()

    @classmethod
    def start(cls, batch: Batch[Self], parameters: np.ndarray, noises: Sequence[np.random.Generator]) -> np.ndarray:
        """``(1 - js) w_local + js w`` (line 30) for the clients that have a previous model."""
        starts = super().start(batch, parameters, noises)
        cls._train_first_models(batch.clients)
        previous = {i: client._local for i, client in enumerate(batch.clients) if client._local is not None}
        if not previous:
            return starts
        places = list(previous)
        known = batch if len(places) == len(batch.clients) else Batch([batch.clients[i] for i in places])
        method = batch.clients[0].settings
        noisy = [noises[i] for i in places] if method.divergence_local_mode == "train" else None
        local, released = (
            known.each(known.logits(torch.tensor(models, dtype=torch.float32), noise))
            for models, noise in ((np.stack(list(previous.values())), noisy), (starts[places], None))
        )
        starts = starts.copy()
        for i, own, theirs in zip(places, local, released, strict=True):
            js = _DIVERGENCES[method.divergence](own.numpy(), theirs.numpy(), method.tau_combine)
            starts[i] = (1 - js) * previous[i] + js * parameters
        return starts

    @classmethod
    def loss(cls, batch: Batch[Self], logits: Tensor) -> Tensor:
        """Cross-entropy plus alpha times the penalty (line 33)."""
        method, penalties = batch.clients[0].settings, cls._penalties(batch, logits)
        if method.score_from == "last_epoch":
            for client, penalty in zip(batch.clients, penalties, strict=True):
                client._last_penalty = float(penalty.detach())
        return super().loss(batch, logits) + method.alpha * sum_up(penalties)

    @classmethod
    def _penalties(cls, batch: Batch[Self], logits: Tensor) -> list[Tensor]:
        """The penalty of each client."""
        probabilities = batch.each(torch.sigmoid(logits / batch.clients[0].settings.tau_fair))
        return [gaps(p, client._coefficients).sum() for p, client in zip(probabilities, batch.clients, strict=True)]

    def finish(self, trained: np.ndarray) -> None:
        if self.settings.stateful:
            self._local = trained.copy()

    @classmethod
    def scores(cls, batch: Batch[Self], trained: Tensor) -> list[Mapping[str, float]]:
        if batch.clients[0].settings.score_from == "last_epoch":
            penalties: Sequence[float | Tensor] = [client._last_penalty for client in batch.clients]
        else:
            penalties = cls._penalties(batch, batch.logits(trained))
        return [
            {"balance": client._balance, "fairness": client._fairness(float(penalty))}
            for client, penalty in zip(batch.clients, penalties, strict=True)
        ]

    def scores_untrained(self, local: np.ndarray) -> Mapping[str, float]:
        return {"balance": self._balance, "fairness": 0.0}

    def _fairness(self, penalty: float) -> float:
        method = self.settings
        score = penalty if method.score == "penalty" else 1 / (penalty + 1e-5)
        return float(np.clip(score, 0, method.score_max))

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self.settings.stateful and self._local is not None:
            state["local"] = self._local.copy()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self.settings.stateful:
            self._local = np.array(state["local"], np.float64) if "local" in state else None
