"""The local training that the methods share: full-batch Adam on the client's training nodes, many clients at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim.adam import adam

from orchestrator.config import Config
from orchestrator.errors import RangeError
from orchestrator.graphs.graph import Graph
from orchestrator.methods.base import LocalMethod, LocalUpdate
from orchestrator.models import GraphTensors, blocks, gcn_logits
from orchestrator.seeding import seeded_generator

__all__ = ["AdamTraining", "Batch", "sum_up"]


class AdamTraining(LocalMethod):
    """LocalUpdate of SaFeGNN, Algorithm 1, lines 28-39, up to where the training starts, its loss and its scores.

    There is one way to train, for a batch of clients that each have parameters of their own; a single client is a
    batch of one. Clients in a batch share no arithmetic: an update differs from that of the client alone by rounding.

    Adam's moments stay with the client between its participations while its weights are replaced, as in the
    reference codes of F2GNN and FED-PUB; with ``method.stateful: false`` they start at zero every time. All
    randomness of a participation derives from the run's seed, the client's number and how often the client took part
    before, so it does not depend on the process or on other clients.

    A client without training nodes trains nothing: its local model is the global one, its update exactly 0.
    """

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        self.config = config
        self.client = client
        self.tensors = GraphTensors(graph)
        nodes = np.flatnonzero(graph.train)
        self.nodes = torch.from_numpy(nodes)
        self.labels = torch.from_numpy(graph.labels[nodes].astype(np.float32))
        self._participations = 0
        self._moments: dict[str, Tensor] = {}

    @classmethod
    def _start(cls, batch: Batch[Self], parameters: np.ndarray, noises: Sequence[np.random.Generator]) -> np.ndarray:
        """The vectors from which the epochs start, float64, shape (b, d); here all are the released global model."""
        return np.broadcast_to(parameters, (len(batch.clients), len(parameters)))

    @classmethod
    def _loss(cls, batch: Batch[Self], logits: Tensor) -> Tensor:
        """The sum of the clients' losses in one epoch; here each is the mean cross-entropy.

        Args:
            logits: of the training nodes, with dropout.
        """
        pairs = zip(batch.each(logits), batch.clients, strict=True)
        return sum_up([F.binary_cross_entropy_with_logits(z, client.labels) for z, client in pairs])

    @classmethod
    @abstractmethod
    def _scores(cls, batch: Batch[Self], local: Tensor) -> list[Mapping[str, float]]:
        """The scores of every update, once training is over. Args: local: the trained models, shape (b, d)."""

    def _scores_untrained(self) -> Mapping[str, float]:
        """The scores of a client without training nodes."""
        return {}

    def _finish(self, local: np.ndarray) -> None:
        """Called with the trained local model, float64, shape (d,)."""

    def train(self, parameters: np.ndarray) -> LocalUpdate:
        return self.train_together([self], parameters)[0]

    @classmethod
    def train_together(cls, clients: Sequence[Self], parameters: np.ndarray) -> list[LocalUpdate]:
        learners = [client for client in clients if len(client.nodes)]
        trained = dict(zip(learners, cls._fit(Batch(learners), parameters), strict=True)) if learners else {}
        updates = []
        for client in clients:
            client._participations += 1
            local, scores = trained.get(client) or (parameters.copy(), client._scores_untrained())
            client._finish(local)
            delta = parameters - local
            norm = float(np.linalg.norm(delta))
            noisy = client.config.privacy.noise_multiplier > 0  # then no update is refused, see `engines.admission`
            if not noisy and not np.isfinite([norm, *scores.values()]).all():
                raise RangeError(
                    f"client {client.client}: its local model is not finite after training; "
                    "check that the global model and method.learning_rate are of ordinary size"
                )
            updates.append(LocalUpdate(delta, norm, scores))
        return updates

    @classmethod
    def _fit(cls, batch: Batch[Self], parameters: np.ndarray) -> list[tuple[np.ndarray, Mapping[str, float]]]:
        """Each client's trained model, float64, shape (d,), and its scores."""
        clients, method = batch.clients, batch.config.method
        noises = [seeded_generator(c.config.seed, "train", c.client, c._participations) for c in clients]
        models = torch.tensor(cls._start(batch, parameters, noises), dtype=torch.float32, requires_grad=True)
        moments = [client._take_moments(len(parameters)) for client in clients]
        for _ in range(method.local_epochs):
            (gradients,) = torch.autograd.grad(cls._loss(batch, batch.logits(models, noises)), models)
            adam(
                list(models.detach().unbind()),
                list(gradients.unbind()),
                *([state[name] for state in moments] for name in ("exp_avg", "exp_avg_sq")),
                [],
                [state["step"] for state in moments],
                fused=True,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=method.learning_rate,
                weight_decay=method.weight_decay,
                eps=1e-8,
                maximize=False,
            )
        return list(zip(models.detach().double().numpy(), cls._scores(batch, models.detach()), strict=True))

    def _take_moments(self, size: int) -> dict[str, Tensor]:
        """Adam's state, to be changed in place."""
        if self._moments:
            return self._moments
        fresh = {"step": torch.tensor(0.0), "exp_avg": torch.zeros(size), "exp_avg_sq": torch.zeros(size)}
        if self.config.method.stateful:
            self._moments = fresh
        return fresh

    def state_dict(self) -> dict[str, Any]:
        moments = {name: value.numpy().copy() for name, value in self._moments.items()}
        return {"participations": self._participations, **moments}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._participations = int(state["participations"])
        names = [name for name in ("step", "exp_avg", "exp_avg_sq") if name in state]
        self._moments = {name: torch.tensor(state[name], dtype=torch.float32) for name in names}


_Client = TypeVar("_Client", bound=AdamTraining)


class Batch(Generic[_Client]):
    """Distinct clients with training nodes, b of them, whose training nodes stand one below the other.

    Attributes:
        clients: the clients.
        config: their configuration.
        counts: training nodes of each client.
    """

    def __init__(self, clients: Sequence[_Client]) -> None:
        self.clients = clients
        self.config = clients[0].config
        self.counts = [len(client.nodes) for client in clients]
        self._graphs = GraphTensors.join([client.tensors for client in clients])
        starts = np.cumsum([0, *self._graphs.sizes]).tolist()
        self._nodes = torch.cat([client.nodes + start for client, start in zip(clients, starts, strict=False)])

    def logits(self, models: Tensor, noises: Sequence[np.random.Generator] | None = None) -> Tensor:
        """Logits of the training nodes, each under its client's model; `models` float32, shape (b, d).

        Dropout is on exactly when there are sources of noise, one a client.
        """
        model = self.config.model
        return gcn_logits(models, model.hidden, self._graphs, model.dropout, noises)[self._nodes]

    def each(self, values: Tensor) -> Sequence[Tensor]:
        """What stands at the training nodes, client by client."""
        return blocks(values, self.counts)


def sum_up(values: Sequence[Tensor]) -> Tensor:
    """The sum of scalars; of one, itself."""
    return values[0] if len(values) == 1 else torch.stack(list(values)).sum()
