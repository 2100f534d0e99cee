"""Rounds with sites: an engine whose servers sign offers and check the sites' signatures, and a loop of rounds."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

import numpy as np

from orchestrator.agreement.round_plan import RoundPlan
from orchestrator.agreement.site_file import SiteFile
from orchestrator.agreement.terms import Offer, RunTerms
from orchestrator.coordinator.cohorts import sample_cohort
from orchestrator.coordinator.embedded import EmbeddedEngine
from orchestrator.coordinator.launch import OwnServers
from orchestrator.coordinator.sites import RemoteSites
from orchestrator.site.worker import open_site, serve
from tests.site.hospitals import Hospitals


class OfferingServers(OwnServers):
    """As services: two organisations that sign their keys. Attributes: offer: the last one."""

    signed = True
    offer: Offer

    def __init__(self, hospitals: Hospitals, terms: RunTerms):
        roles = ("server 0", "server 1")
        command = [sys.executable, "-m", "tests.site.verifying_server", str(hospitals.folder / "consortium.yaml")]
        super().__init__(dict.fromkeys(roles, ""), dict.fromkeys(roles, command), None, None, 120.0, 60.0)
        self._hospitals, self._of = hospitals, terms

    def meet(self, run, position):
        met = super().meet(run, position)
        self.offer = self._hospitals.offer(self._of, run=run, keys=met.public_keys)
        return replace(met, offer=self.offer.to_bytes())


def engine_for(hospitals: Hospitals, terms: RunTerms) -> EmbeddedEngine:
    plan: RoundPlan = terms.plan
    return EmbeddedEngine(plan, servers=OfferingServers(hospitals, terms), timeout_sec=60.0)


def play(sites: RemoteSites, engine: EmbeddedEngine, config, model: np.ndarray, rounds, before=lambda round: None):
    """Rounds from a model, float64 (d,); yields after each (round, missing, model)."""
    for round in rounds:
        cohort = sample_cohort(config.federation, config.clients.count, config.seed, round)
        engine.prepare(round, len(cohort))
        before(round)
        trained = sites.train(round, cohort, model, engine.encoder, partial(engine.submit, round))
        aggregation = engine.aggregate(round, cohort)
        if aggregation.parameters is not None:
            model = aggregation.parameters
        yield round, {cohort[slot]: error for slot, error in trained.missing.items()}, aggregation, model


def worker_process(file, connection):
    """Main function of a worker's process, as the command's; says over the connection that it can be asked."""
    with open_site(SiteFile.read(file)) as (worker, listener):
        connection.send(worker.described)
        serve(listener, worker.reply)
