"""A run between organisations: sites of a roster train, services of two aggregators compute on shares.

Parties, adversary, what each learns: see `services`, `sites`, `orchestrator.aggregator.session` and
`orchestrator.site.consent`. The coordinator has neither data nor shares; what it knows of the data are the shapes that
all sites say alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from orchestrator.agreement.from_settings import plan_of
from orchestrator.agreement.identity import OwnKey
from orchestrator.agreement.roster import Roster
from orchestrator.agreement.round_plan import RoundPlan
from orchestrator.agreement.terms import RunTerms
from orchestrator.client.ledger import Account
from orchestrator.config import Config
from orchestrator.coordinator.embedded import EmbeddedEngine
from orchestrator.coordinator.engine import Engine
from orchestrator.coordinator.factory import refuse_uncovered
from orchestrator.coordinator.inputs import Inputs
from orchestrator.coordinator.population import Hosts, Population
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.services import Services
from orchestrator.coordinator.site_transport import SiteTransport
from orchestrator.coordinator.sites import RemoteSites
from orchestrator.errors import ConfigError
from orchestrator.evaluation.rounds import RoundEvaluation, Tables, round_evaluation
from orchestrator.graphs.scaling import Scaling
from orchestrator.models import create_network
from orchestrator.models.trained import TrainedModel

__all__ = ["Deployed"]


class Deployed(Population):
    """Sites over a transport, and the roster's two services."""

    def __init__(self, config: Config, roster: Roster, own: OwnKey, transport: SiteTransport) -> None:
        """
        Args:
            own: the coordinator's key.

        Raises:
            ConfigError: the settings do not go with sites, or two sites' data do not fit each other.
            PeerLostError: no site is there.
        """
        if config.clients.count != len(roster.sites):
            raise ConfigError(
                f"clients.count = {config.clients.count}, and the roster {roster.name} has {len(roster.sites)} sites"
            )
        self._roster, self._identity = roster, roster.tls(own, "coordinator")
        self._sites = RemoteSites(roster, transport, config)
        self.sizes, self.absent = self._sites.hello()
        self.network = create_network(self.sizes.features, self.sizes.classes, config.model)

    def inputs(self, config: Config) -> Inputs:
        network = {"shapes": {name: list(shape) for name, shape in self.network.shapes.items()}}
        settings = config.absolute().model_dump(mode="json")
        return Inputs(settings, {"roster": self._roster.digest}, self._roster.digest, network)

    def hosts(self, config: Config, account: Account) -> RemoteSites:
        return self._sites

    def engine(self, config: Config, folder: RunFolder, length: int) -> Engine:
        refuse_uncovered(config, plan_of(config))
        return self._engine(config, folder.number, length, plan_of(config), "")

    def sum_engine(self, config: Config, folder: RunFolder, name: str, length: int, plan: RoundPlan) -> Engine:
        return self._engine(config, folder.number, length, plan, name)

    def _engine(self, config: Config, run: str, length: int, plan: RoundPlan, name: str) -> Engine:
        seed = config.seed if config.privacy.noise_multiplier == 0 else None
        terms = RunTerms.of(config, self._roster.digest, run, plan_of(config), length, sum=name, seed=seed)
        chosen = config.engine
        servers = Services(self._roster, self._identity, terms, chosen.startup_timeout_sec)
        return EmbeddedEngine(
            plan, servers=servers, startup_timeout_sec=chosen.startup_timeout_sec, timeout_sec=chosen.timeout_sec
        )

    def begin(self, hosts: Hosts, engine: Engine) -> list[str]:
        return [str(error) for error in self._sites.begin(engine.encoder).values()]

    def evaluation(
        self, config: Config, hosts: Hosts, said: Mapping[int, Mapping[str, Any]], tables: Tables | None, every: int
    ) -> RoundEvaluation:
        return round_evaluation(config, None, hosts, said, (), tables, every)

    def trained(self, parameters: np.ndarray) -> TrainedModel:
        return TrainedModel(self.network, parameters, Scaling("by_client", applied=False))

    def own_model(self, client: int, parameters: np.ndarray) -> TrainedModel:
        """Raises ConfigError: a model of a site's own never leaves it."""
        raise ConfigError("a model that is a site's own stays there")
