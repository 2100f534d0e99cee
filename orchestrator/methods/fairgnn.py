"""FairGNN's client (Dai and Wang, WSDM 2021): an adversary that guesses the group, and a covariance kept small.

With h_v the GNN's representation of node v, y_v its logit, s_v the group and a_v = a . h_v + a_0 the adversary's logit:

    model      minimises  L_C + alpha |Cov(s, sigmoid(y))| - beta L_A
    adversary  minimises  L_A, the cross-entropy of sigmoid(a_v) and s_v

Both step at once, from the same point, as in the authors' code. The adversary's h + 1 weights stand beside the model in
the released vector and are aggregated with it, so that clients share one adversary; a single client has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from orchestrator.config import Config
from orchestrator.errors import ConfigError
from orchestrator.graphs.graph import Graph
from orchestrator.methods.adam_training import AdamTraining, Batch, sum_up
from orchestrator.methods.reference_settings import FairGNNSettings
from orchestrator.models.gcn import blocks

__all__ = ["FairGNN", "covariance"]


def covariance(groups: Tensor, probabilities: Tensor) -> Tensor:
    """``E[(s - E s) (p - E p)]`` over the nodes, a scalar; both of shape (n,)."""
    return ((groups - groups.mean()) * (probabilities - probabilities.mean())).mean()


class FairGNN(AdamTraining):
    """No scores: the rule is the plain mean. The network is ``gcn``, beside whose classifier the adversary stands."""

    settings: FairGNNSettings

    def __init__(self, graph: Graph, config: Config, client: int) -> None:
        if graph.classes != 2 or graph.sensitive is None:
            raise ConfigError("method.name = fairgnn is for two classes and data with a sensitive attribute")
        super().__init__(graph, config, client)
        everybody = np.arange(graph.num_nodes)
        self._known = torch.from_numpy(everybody) if self.settings.known == "all" else self.nodes
        self._groups = torch.from_numpy(graph.sensitive.astype(np.float32))[self._known]

    @classmethod
    def beside(cls, config: Config) -> np.ndarray:
        """The adversary, which begins without an opinion: a and a_0, shape (h + 1,)."""
        return np.zeros(config.model.hidden + 1)

    @classmethod
    def objective(cls, batch: Batch[Self], trained: Tensor, noises: Sequence[np.random.Generator]) -> Tensor:
        method, size = batch.clients[0].settings, batch.network.size
        models, adversaries = trained[:, :size], trained[:, size:]
        same = [deepcopy(noise) for noise in noises]  # the adversary sees the very representation of this step
        predicted = blocks(batch.everywhere(models, noises), batch.sizes)
        body = models[:, : size - adversaries.shape[1]]
        # Value of the body, gradient times -beta: the model climbs what the adversary descends.
        climbing = body.detach() - method.adversary * (body - body.detach())
        guessed = blocks(batch.everywhere(torch.cat([climbing, adversaries], dim=1), same), batch.sizes)
        losses = []
        for client, y, s in zip(batch.clients, predicted, guessed, strict=True):
            fair = covariance(client._groups, torch.sigmoid(y[client._known])).abs()
            adversary = F.binary_cross_entropy_with_logits(s[client._known], client._groups)
            losses.append(client.network.loss(y[client.nodes], client.labels) + method.covariance * fair + adversary)
        return sum_up(losses)
