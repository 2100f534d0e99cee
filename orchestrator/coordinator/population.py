"""Whom a run trains with: clients that are cut out of one graph here, or sites that nobody else sees the data of.

The round loop is the same for both. What differs is here: where sizes and the network's shape come from, who hosts the
clients, whose servers aggregate, what can be evaluated, and what a model is saved with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from orchestrator.agreement.round_plan import RoundPlan
from orchestrator.client.ledger import Account
from orchestrator.config import Config
from orchestrator.coordinator.client_pool import ClientPool
from orchestrator.coordinator.engine import Engine
from orchestrator.coordinator.factory import create_engine, create_sum_engine
from orchestrator.coordinator.inputs import Inputs
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.simulated_clients import SimulatedClients
from orchestrator.coordinator.sites import RemoteSites
from orchestrator.evaluation.rounds import RoundEvaluation, Tables, round_evaluation
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.graphs.graph import Graph
from orchestrator.models import Network, create_network
from orchestrator.models.trained import TrainedModel
from orchestrator.secure_sum import Sizes

__all__ = ["Hosts", "Population", "Simulated"]

Hosts = SimulatedClients | RemoteSites
"""What the round loop asks of the clients' side."""


class Population(ABC):
    """The clients of one run, and whose servers they upload to.

    Attributes:
        network: that all train.
        sizes: what everybody knows of the data.
        simulated: whether it is one graph of which this process has everything.
    """

    network: Network
    sizes: Sizes
    simulated = False

    @abstractmethod
    def inputs(self, config: Config) -> Inputs:
        """What has to be the same when the run goes on."""

    @abstractmethod
    def hosts(self, config: Config, account: Account) -> Hosts:
        """Whoever asks the clients. Args: config: what clients are told of the settings."""

    @abstractmethod
    def engine(self, config: Config, folder: RunFolder, length: int) -> Engine:
        """Of the rounds; not started. Args: folder: the run's, which has its number; length: of an update."""

    @abstractmethod
    def sum_engine(self, config: Config, folder: RunFolder, name: str, length: int, plan: RoundPlan) -> Engine:
        """Of a sum beside the rounds. Args: plan: of the sum."""

    def begin(self, hosts: Hosts, engine: Engine) -> list[str]:
        """The engine has started: who takes no part, and why; a line each."""
        return []

    @abstractmethod
    def evaluation(
        self, config: Config, hosts: Hosts, said: Mapping[int, Mapping[str, Any]], tables: Tables | None, every: int
    ) -> RoundEvaluation:
        """As `round_evaluation`."""

    @abstractmethod
    def trained(self, parameters: np.ndarray) -> TrainedModel:
        """The common model, float64 (d,), with what it takes to predict."""

    @abstractmethod
    def own_model(self, client: int, parameters: np.ndarray) -> TrainedModel:
        """The same of a model that is a client's own."""


class Simulated(Population):
    """Clients that are cut out of a graph, hosted by processes of this machine."""

    simulated = True

    def __init__(self, config: Config, graph: Graph | None = None, clients: Sequence[Graph] | None = None) -> None:
        """Args: graph, clients: instead of what the settings name. Raises SafeGNNError where data are not there."""
        self._graph = graph or load_graph(config.data, config.seed)
        self._clients = clients or client_graphs(self._graph, config.clients, config.seed)
        graph = self._graph
        self.network = create_network(graph.num_features, graph.classes, config.model)
        groups = 1 if graph.sensitive is None else 2
        self.sizes = Sizes(graph.num_nodes, graph.num_features, graph.classes, groups, len(self._clients))

    def inputs(self, config: Config) -> Inputs:
        return Inputs.of(config, self._graph, self._clients, self.network)

    def hosts(self, config: Config, account: Account) -> SimulatedClients:
        return ClientPool(self._clients, config, account=account)

    def engine(self, config: Config, folder: RunFolder, length: int) -> Engine:
        return create_engine(config)

    def sum_engine(self, config: Config, folder: RunFolder, name: str, length: int, plan: RoundPlan) -> Engine:
        return create_sum_engine(plan, config.engine)

    def evaluation(
        self, config: Config, hosts: Hosts, said: Mapping[int, Mapping[str, Any]], tables: Tables | None, every: int
    ) -> RoundEvaluation:
        return round_evaluation(config, self._graph, hosts, said, self._clients, tables, every)

    def trained(self, parameters: np.ndarray) -> TrainedModel:
        return TrainedModel(self.network, parameters, self._graph.scaling.carried, self._graph.meaning)

    def own_model(self, client: int, parameters: np.ndarray) -> TrainedModel:
        scaling = self._clients[client].scaled_to_train().scaling
        return TrainedModel(self.network, parameters, scaling, self._graph.meaning)
