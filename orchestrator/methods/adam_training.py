"""The local training that the methods share: full-batch Adam on the client's training nodes, many clients at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.optim.adam import adam

from orchestrator.config import Config
from orchestrator.errors import RangeError
from orchestrator.graphs.graph import Graph
from orchestrator.methods.base import LocalMethod, LocalUpdate
from orchestrator.methods.settings import AdamSettings
from orchestrator.models import create_network
from orchestrator.models.gcn import GCN, blocks
from orchestrator.seeding import seeded_generator

__all__ = ["AdamTraining", "Batch", "no_moments", "sum_up"]


class AdamTraining(LocalMethod):
    """LocalUpdate of SaFeGNN, Algorithm 1, lines 28-39, up to where the training starts, its loss and its scores.

    There is one way to train, for a batch of clients that each have parameters of their own; a single client is a
    batch of one. Clients in a batch share no arithmetic: an update differs from that of the client alone by rounding.

    Adam's moments stay with the client between its participations while its weights are replaced, as in the
    reference codes of F2GNN and FED-PUB; with ``method.stateful: false`` they start at zero every time. All
    randomness of a participation derives from the run's seed, the client's number and how often the client took part
    before, so it does not depend on the process or on other clients.

    What is trained is a vector of e >= d numbers, the model's d first: a method may train others beside them.

    A client without training nodes trains nothing: its local model is the one that it starts from.

    Attributes:
        settings: the method's own, of the class that the registry names beside the client's.
    """

    settings: AdamSettings

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        # Features and edges are in the network's tensors; a second copy would double what large clients hold.
        nothing = np.empty((graph.num_nodes, 0), np.float32)
        self.graph = replace(graph, features=nothing, edges=np.empty((2, 0), np.int64))
        assert isinstance(config.method, AdamSettings)
        self.config, self.settings = config, config.method
        self.client = client
        self.see(graph)
        self._participations = 0
        self._moments: dict[str, Tensor] = {}
        self._trained: np.ndarray | None = None

    def see(self, graph: Graph) -> None:
        """Learn from this graph, whose first nodes are those of the client's own."""
        self.network = create_network(graph.num_features, graph.classes, self.config.model)
        self.tensors = self.network.tensors(graph)
        nodes = np.flatnonzero(graph.train)
        self.nodes = torch.from_numpy(nodes)
        self.labels = self.network.targets(graph.labels[nodes])

    @classmethod
    def start(cls, batch: Batch[Self], parameters: np.ndarray, noises: Sequence[np.random.Generator]) -> np.ndarray:
        """The vectors from which the epochs start, float64, shape (b, e); here all are the released global model."""
        return np.broadcast_to(parameters, (len(batch.clients), len(parameters)))

    @classmethod
    def objective(cls, batch: Batch[Self], trained: Tensor, noises: Sequence[np.random.Generator]) -> Tensor:
        """What an epoch minimises: the sum of the clients' losses. Args: trained: float32, shape (b, e)."""
        return cls.loss(batch, batch.logits(trained, noises))

    @classmethod
    def gradients(cls, batch: Batch[Self], trained: Tensor, noises: Sequence[np.random.Generator]) -> Tensor:
        """What Adam steps along, shape (b, e); here the objective's gradient."""
        return torch.autograd.grad(cls.objective(batch, trained, noises), trained)[0]

    @classmethod
    def loss(cls, batch: Batch[Self], logits: Tensor) -> Tensor:
        """The sum of the clients' losses of their predictions; here each is the mean cross-entropy.

        Args:
            logits: of the training nodes, with dropout.
        """
        pairs = zip(batch.each(logits), batch.clients, strict=True)
        return sum_up([client.network.loss(z, client.labels) for z, client in pairs])

    @classmethod
    def after_step(cls, batch: Batch[Self], trained: Tensor) -> None:
        """Called after every step of Adam; may change `trained`, shape (b, e), in place."""

    @classmethod
    def scores(cls, batch: Batch[Self], trained: Tensor) -> Sequence[Mapping[str, float | np.ndarray]]:
        """The scores of every update, once training is over; here none. Args: trained: shape (b, e)."""
        return [{} for _ in batch.clients]

    def scores_untrained(self, local: np.ndarray) -> Mapping[str, float | np.ndarray]:
        """The scores of a client without training nodes, whose local model is the given one, float64, shape (d,)."""
        return {}

    def finish(self, trained: np.ndarray) -> None:
        """Called with what was trained, float64, shape (e,); (d,) of a client without training nodes."""

    def train(self, parameters: np.ndarray) -> LocalUpdate:
        return self.train_together([self], parameters)[0]

    @classmethod
    def train_together(cls, clients: Sequence[Self], parameters: np.ndarray) -> list[LocalUpdate]:
        learners = [client for client in clients if len(client.nodes)]
        fitted = dict(zip(learners, cls._fit(Batch(learners), parameters), strict=True)) if learners else {}
        updates = []
        for client in clients:
            client._participations += 1
            if client in fitted:
                trained, scores = fitted[client]
            else:
                trained = client.start_untrained(parameters)
                scores = client.scores_untrained(trained)
            if client.config.evaluation.model == "trained":
                client._trained = trained.copy()
            client.finish(trained)
            delta = parameters - trained[: len(parameters)]
            norm = float(np.linalg.norm(delta))
            noisy = client.config.privacy.noise_multiplier > 0  # then no update is refused, see `client.admission`
            if not noisy and not all(np.isfinite(value).all() for value in (norm, *scores.values())):
                raise RangeError(
                    f"client {client.client}: its local model is not finite after training; "
                    "check that the global model and method.learning_rate are of ordinary size"
                )
            updates.append(LocalUpdate(delta, norm, scores))
        return updates

    def start_untrained(self, parameters: np.ndarray) -> np.ndarray:
        """The local model of a client without training nodes."""
        return parameters.copy()

    @classmethod
    def _fit(cls, batch: Batch[Self], parameters: np.ndarray) -> list[tuple[np.ndarray, Mapping[str, Any]]]:
        """What each client trained, float64, shape (e,), and its scores."""
        clients = batch.clients
        batch.released = torch.tensor(parameters, dtype=torch.float32)
        noises = [seeded_generator(c.config.seed, "train", c.client, c._participations) for c in clients]
        starts = cls.start(batch, parameters, noises)
        moments = [client._take_moments(starts.shape[1]) for client in clients]
        trained = cls._epochs(batch, starts, moments, noises)
        return list(zip(trained.double().numpy(), cls.scores(batch, trained), strict=True))

    @classmethod
    def _epochs(
        cls,
        batch: Batch[Self],
        starts: np.ndarray,
        moments: Sequence[Mapping[str, Tensor]],
        noises: Sequence[np.random.Generator],
    ) -> Tensor:
        """What each client has after its epochs, float32, shape (b, e); changes the moments."""
        method = batch.clients[0].settings
        trained = torch.tensor(starts, dtype=torch.float32, requires_grad=True)
        for _ in range(method.local_epochs):
            gradients = cls.gradients(batch, trained, noises)
            adam(
                list(trained.detach().unbind()),
                list(gradients.unbind()),
                [state["exp_avg"] for state in moments],
                [state["exp_avg_sq"] for state in moments],
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
            cls.after_step(batch, trained.detach())
        return trained.detach()

    def logits(self, parameters: np.ndarray, own: bool) -> np.ndarray:
        """Without dropout."""
        with torch.no_grad():
            logits = self.network.logits(self.predictor(parameters, own)[None], self.tensors)
        return self.network.by_class(logits)[: self.graph.num_nodes]

    def model(self, parameters: np.ndarray) -> np.ndarray:
        return self.predictor(parameters, own=True).double().numpy()

    def predictor(self, parameters: np.ndarray, own: bool) -> Tensor:
        """What predicts, float32, shape (d,); arguments as for `predict`."""
        vector = self._trained if own and self._trained is not None else parameters
        return torch.tensor(vector[: self.network.size], dtype=torch.float32)

    def _take_moments(self, size: int) -> dict[str, Tensor]:
        """Adam's state, to be changed in place."""
        if self._moments:
            return self._moments
        fresh = no_moments(size)
        if self.settings.keeps_state:
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
        counts: training nodes of each client.
        sizes: nodes of each client, training nodes or not.
        network: the same for all.
        released: the vector that was released, from which they train; float32, empty while they do not.
    """

    released = torch.empty(0)

    def __init__(self, clients: Sequence[_Client]) -> None:
        self.clients = clients
        self.counts = [len(client.nodes) for client in clients]
        self.network = clients[0].network
        self._graphs = self.network.join([client.tensors for client in clients])
        self.sizes: Sequence[int] = self._graphs.sizes
        starts = np.cumsum([0, *self.sizes]).tolist()
        self._nodes = torch.cat([client.nodes + start for client, start in zip(clients, starts, strict=False)])

    def logits(self, models: Tensor, noises: Sequence[np.random.Generator] | None = None) -> Tensor:
        """Logits of the training nodes, each under its client's model; `models` float32, shape (b, d).

        Dropout, and sampling, are on exactly when there are sources of noise, one a client.
        """
        return self.everywhere(models, noises)[self._nodes]

    def everywhere(self, models: Tensor, noises: Sequence[np.random.Generator] | None = None) -> Tensor:
        """As `logits`, of all nodes: `sizes` of them, client by client."""
        return self.network.logits(models, self._graphs, noises)

    def embeddings(self, models: Tensor) -> Tensor:
        """`GCN.embeddings` of the training nodes; of that network alone."""
        assert isinstance(self.network, GCN)
        return self.network.embeddings(models, self._graphs)[self._nodes]

    def each(self, values: Tensor) -> Sequence[Tensor]:
        """What stands at the training nodes, client by client."""
        return blocks(values, self.counts)


def no_moments(size: int) -> dict[str, Tensor]:
    """Adam's state before the first step on a vector of this length."""
    return {"step": torch.tensor(0.0), "exp_avg": torch.zeros(size), "exp_avg_sq": torch.zeros(size)}


def sum_up(values: Sequence[Tensor]) -> Tensor:
    """The sum of scalars; of one, itself."""
    return values[0] if len(values) == 1 else torch.stack(list(values)).sum()
