"""FED-PUB's client (Baek et al., ICML 2023): a model of its own, a mask that stays with it, a functional embedding.

The client's network is theta * mu: the weights theta start from its personalised model, the mean over similar clients,
and are shared; the mask mu says which of them help this client, and never leaves it. Both are trained:

    loss(theta * mu) + lambda_1 ||mu||_1 + lambda_2 ||theta - theta_bar||_2^2

The penalties pull by proximal steps, or, with ``method.penalty_step: gradient``, as parts of the loss. As such they
hardly do what they say: Adam scales the constant gradient of the L1 norm up to the learning rate, whatever lambda_1 is,
and a training of one step starts at theta_bar, where the gradient of the squared distance is 0.

The authors' code builds both penalties from detached tensors, so they have no gradient there; ``method.mask_penalty``
and ``method.proximal`` of 0 are what it does. It also leaves the proximal norm unsquared, and zeroes mask entries below
lambda_1 in predictions, which is `method.mask_threshold` here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Self

import networkx as nx
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from orchestrator.config import Config
from orchestrator.graphs.edges import canonical_edges
from orchestrator.graphs.graph import MISSING, Graph
from orchestrator.methods.adam_training import Batch
from orchestrator.methods.local_only import Alone
from orchestrator.methods.settings import FedPubSettings
from orchestrator.models import Network
from orchestrator.models.classifiers import GCNClassifier
from orchestrator.models.gcn import GraphTensors
from orchestrator.seeding import derived_seed, seeded_generator

__all__ = ["FedPub", "community_graph"]

_COMMUNITIES, _COMMUNITY_SIZE, _EDGE_PROBABILITY = 5, 100, 0.1


class FedPub(Alone):
    """Scores: ``embedding``, float64, shape (h,), of Euclidean norm 1, or 0 where there is none.

    There is a mask entry for every entry of a weight matrix, and none for biases. Until the first model arrives, the
    personalised model is the global one that everybody starts from, without a pull towards it.
    """

    settings: FedPubSettings
    network: GCNClassifier  # the only one that the registry lets it train; it has embeddings

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        super().__init__(graph, config, client)
        self._masked = torch.from_numpy(_weight_places(self.network))
        self._mask = np.ones(len(self._masked))
        self._pulled = False

    @classmethod
    def start(cls, batch: Batch[Self], parameters: np.ndarray, noises: Sequence[np.random.Generator]) -> np.ndarray:
        """The personalised model, and below it the mask."""
        models = super().start(batch, parameters, noises)
        return np.concatenate([models, np.stack([client._mask for client in batch.clients])], axis=1)

    @classmethod
    def objective(cls, batch: Batch[Self], trained: Tensor, noises: Sequence[np.random.Generator]) -> Tensor:
        method, size = batch.clients[0].settings, batch.network.size
        models = torch.stack([client._effective(row) for client, row in zip(batch.clients, trained, strict=True)])
        total = cls.loss(batch, batch.logits(models, noises))
        if method.penalty_step == "gradient":
            for client, row in zip(batch.clients, trained, strict=True):
                total = total + method.mask_penalty * row[size:].abs().sum()
                if method.proximal and (anchor := client._anchor()) is not None:
                    total = total + method.proximal * (row[:size] - anchor).square().sum()
        return total

    @classmethod
    def after_step(cls, batch: Batch[Self], trained: Tensor) -> None:
        """The penalties' proximal steps, of the length of Adam's (Parikh and Boyd, 2014, sections 6.1.1 and 6.5.2).

        With t the learning rate every mask entry moves t lambda_1 towards 0, at most to 0, and theta becomes
        ``(theta + 2 t lambda_2 theta_bar) / (1 + 2 t lambda_2)``.
        """
        method, size = batch.clients[0].settings, batch.network.size
        if method.penalty_step == "gradient":
            return
        shrink, pull = method.learning_rate * method.mask_penalty, 2 * method.learning_rate * method.proximal
        for client, row in zip(batch.clients, trained, strict=True):
            if shrink:
                row[size:] = F.softshrink(row[size:], shrink)
            if pull and (anchor := client._anchor()) is not None:
                row[:size] = anchor + (row[:size] - anchor) / (1 + pull)

    def _anchor(self) -> Tensor | None:
        """theta_bar, float32, shape (d,), once a personalised model has arrived."""
        return torch.tensor(self._own, dtype=torch.float32) if self._pulled else None

    def _effective(self, trained: Tensor, threshold: float = 0.0) -> Tensor:
        """theta * mu, shape (d,), with mask entries below the threshold as 0. Args: trained: shape (e,)."""
        model, mask = trained.split([self.network.size, len(self._masked)])
        if threshold:
            mask = torch.where(mask.abs() < threshold, 0.0, mask)
        factors = torch.ones_like(model).index_copy(0, self._masked, mask)
        return model * factors

    def finish(self, trained: np.ndarray) -> None:
        self._own, mask = np.split(trained, [self.network.size])
        self._mask = mask if len(mask) else self._mask  # a client without training nodes trains no mask

    def receive(self, parameters: np.ndarray) -> None:
        self._own, self._pulled = parameters.copy(), True

    def _predicting(self, model: np.ndarray) -> Tensor:
        """The network that predicts: masked, without entries below the threshold. Args: model: float64, shape (d,)."""
        both = torch.tensor(np.concatenate([model, self._mask]), dtype=torch.float32)
        return self._effective(both, self.settings.mask_threshold)

    @classmethod
    def scores(cls, batch: Batch[Self], trained: Tensor) -> list[Mapping[str, np.ndarray]]:
        threshold = batch.clients[0].settings.mask_threshold
        return [
            {"embedding": client._embedding(client._effective(row, threshold))}
            for client, row in zip(batch.clients, trained, strict=True)
        ]

    def scores_untrained(self, local: np.ndarray) -> Mapping[str, np.ndarray]:
        return {"embedding": self._embedding(self._predicting(local))}

    def _embedding(self, model: Tensor) -> np.ndarray:
        """The mean over the community graph's nodes of the second layer's output, scaled to length 1."""
        with torch.no_grad():
            tensors = _community_tensors(self.network.num_features, self.config.seed)
            mean = self.network.embeddings(model, tensors).double().mean(dim=0).numpy()
        length = np.linalg.norm(mean)
        return mean / length if length > 0 else mean

    def facts(self) -> Mapping[str, float]:
        """``mask_sparsity``: the share of mask entries that predictions take for 0."""
        least = max(self.settings.mask_threshold, np.finfo(np.float32).tiny)
        return {"mask_sparsity": float((np.abs(self._mask) < least).mean())}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"mask": self._mask.astype(np.float32), "pulled": int(self._pulled)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._mask = np.array(state["mask"], np.float64)
        self._pulled = bool(state["pulled"])


def _weight_places(network: Network) -> np.ndarray:
    """Where the weight matrices' entries stand in the vector; int64."""
    flags = [np.full(np.prod(shape), len(shape) > 1) for shape in network.shapes.values()]
    return np.flatnonzero(np.concatenate(flags))


def community_graph(num_features: int, seed: int) -> Graph:
    """The graph on which every client's network is compared: 5 communities of 100 nodes, features from N(0, 1).

    Nodes of one community are neighbours with probability 0.1, those of different ones never, as in the authors' code.
    A function of the arguments alone, so that every client holds the same one.
    """
    drawn = nx.random_partition_graph(
        [_COMMUNITY_SIZE] * _COMMUNITIES, _EDGE_PROBABILITY, 0.0, seed=derived_seed(seed, "community graph") % 2**32
    )
    n = drawn.number_of_nodes()
    features = seeded_generator(seed, "community features").standard_normal((n, num_features), dtype=np.float32)
    edges = canonical_edges(np.array(list(drawn.edges), np.int64).reshape(-1, 2).T, n)
    none = np.zeros(n, bool)
    labels = np.full(n, MISSING, np.int8)
    return Graph(features, edges, labels, np.zeros(n, np.int8), none, none, none, "community graph")


@lru_cache(maxsize=2)
def _community_tensors(num_features: int, seed: int) -> GraphTensors:
    """Those of the community graph, once for all clients of a process."""
    return GraphTensors(community_graph(num_features, seed))
