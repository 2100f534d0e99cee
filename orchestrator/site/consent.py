"""Whether a site takes part: what it checks of a run before anything of its data moves.

Parties: a site, and a coordinator that may lie in whatever it says. What is believed: the roster on the site's disk,
and what both aggregators of it signed. All else is made anew from the run's settings and compared: the plan, the length
of an update, a round's size and clip bound. Then the site's own policy is asked, and its own ledger.

What leaves here is one line for both ends, made of what is public and of the site's own policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from orchestrator.agreement.deployment import refuse_undeployable
from orchestrator.agreement.evaluation_sum import EVALUATION, counts_layout, exact_metrics, summed_tables
from orchestrator.agreement.from_settings import plan_of
from orchestrator.agreement.roster import Roster
from orchestrator.agreement.round_plan import RoundPlan
from orchestrator.agreement.site_file import SiteFile
from orchestrator.agreement.sum_plan import sum_plan
from orchestrator.agreement.terms import Offer, RunTerms
from orchestrator.client.sealing import SealingEncoder
from orchestrator.client.summands import Statistic, Summand, TablesOf
from orchestrator.config import Config, validated
from orchestrator.errors import ConfigError, ConsentError
from orchestrator.graphs.graph import Graph
from orchestrator.methods import method_class
from orchestrator.models import create_network
from orchestrator.registry import METHODS
from orchestrator.secure_sum import SecureSum, Sizes
from orchestrator.site.messages import vector

__all__ = ["Agreed", "AgreedSum", "Consent"]

_KEPT = 16
"""Offers of which the answer is remembered: a run has one for its rounds and one for each sum."""


@dataclass(frozen=True)
class Agreed:
    """A run's rounds that the site takes part in.

    Attributes:
        offer, terms: as they were checked.
        config: the run's settings, with the site's own where they are its business.
        plan: of these rounds, as the site makes it.
    """

    offer: Offer = field(repr=False)
    terms: RunTerms = field(repr=False)
    config: Config = field(repr=False)
    plan: RoundPlan = field(repr=False)

    def encoder(self, round: int, slot: int, cohort: int, clip_norm: float | None) -> SealingEncoder:
        """With which an update of this round is sealed to the keys of the offer.

        Raises:
            ConsentError: the plan has no such round.
        """
        self.check_round(round)
        plan, fixed = self.plan, self.plan.sampling != "poisson"
        if fixed and cohort != plan.rule.cohort:
            raise ConsentError(f"the round asks {cohort} clients, and the plan has cohorts of {plan.rule.cohort}")
        if cohort < plan.min_cohort:
            raise ConsentError(f"the round asks {cohort} clients, fewer than the plan's min_cohort = {plan.min_cohort}")
        if not slot < cohort <= plan.clients:
            raise ConsentError(f"place {slot} of {cohort} clients is none among {plan.clients}")
        if clip_norm != plan.clip_norm:
            low, high = plan.clip_limits() if plan.adaptive else (0.0, 0.0)
            if clip_norm is None or not low <= clip_norm <= high:
                raise ConsentError(f"the round clips at {clip_norm}, and the plan at {plan.clip_norm}")
        terms = plan.at(clip_norm).terms
        return SealingEncoder(
            self.offer.run,
            self.offer.keys,
            plan.parameters_of(cohort, clip_norm),
            plan.vectors,
            clip_norm,
            plan.program,
            confine=plan.noise.multiplier > 0,
            counted=terms.count_stddev is not None,
            noise_stddev=terms.client_stddev,
        )

    def check_round(self, round: int) -> None:
        """Raises ConsentError where the run has no such round."""
        if not 1 <= round <= self.terms.rounds:
            raise ConsentError(f"there is no round {round}: the run has {self.terms.rounds}")

    def model(self, data: bytes) -> np.ndarray:
        """Float64 (d,). Raises ConsentError for another length, and for NaN or infinity."""
        return _vector(data, self.terms.length, "a model")


@dataclass(frozen=True)
class AgreedSum(Agreed):
    """The rounds of a secure sum of such a run. Attributes: described: the sum."""

    described: SecureSum = field(repr=False)


class Consent:
    """One site's judgement."""

    def __init__(self, site: SiteFile, roster: Roster, graph: Graph) -> None:
        """Args: graph: the site's own, of which only its shape is used."""
        self._site, self._roster = site, roster
        groups = 1 if graph.sensitive is None else 2
        self._sizes = Sizes(0, graph.num_features, graph.classes, groups, len(roster.sites))
        self._known: dict[bytes, Agreed] = {}
        self._known_sums: dict[tuple[bytes, bytes], AgreedSum] = {}

    def to(self, offer: bytes) -> Agreed:
        """What the site takes part in. Raises ConsentError, saying why in nothing of it."""
        if offer not in self._known:
            _remember(self._known, offer, self._judged(offer))
        return self._known[offer]

    def to_sum(self, offer: bytes, run: Agreed) -> AgreedSum:
        """The same of a sum. Args: run: whose sum it has to be."""
        key = (run.offer.to_bytes(), offer)
        if key not in self._known_sums:
            _remember(self._known_sums, key, self._judged_sum(offer, run))
        return self._known_sums[key]

    def summand(self, agreed: AgreedSum, model: bytes) -> Summand:
        """What the site adds to a sum. Args: model: which is evaluated, where that is the sum."""
        if agreed.described.name != EVALUATION:
            return Statistic(agreed.described.name)
        layout, own = counts_layout(agreed.config, self._sizes), METHODS[agreed.config.method.name].personal
        return TablesOf(layout, _vector(model, self._length(agreed.config), "a model"), own)

    def total(self, run: Agreed, name: str, data: bytes) -> np.ndarray:
        """What a sum of a run's method came to. Raises ConsentError where it has none of that name and length."""
        found = [described for described in run.config.method.statistics() if described.name == name]
        if not found:
            raise ConsentError("the method of the run has no sum of the name that was told")
        return _vector(data, self._length_of(found[0]), f"the sum '{name}'")

    def check_metrics(self, plan: RoundPlan, what: str = "evaluation") -> None:
        """Raises ConsentError where what the site's own nodes say stays with it. Args: what: asks for it."""
        if not self._site.policy.exact_metrics:
            raise ConsentError(f"{what}: exact counts of its own nodes would leave it (policy.exact_metrics is false)")
        if plan.privacy is not None:
            raise ConsentError(f"{what}: exact counts of its own nodes are no part of the epsilon that it counts")

    def _judged(self, data: bytes) -> Agreed:
        offer, terms = self._signed(data)
        if terms.sum:
            raise ConsentError(f"the offer is of the sum '{terms.sum}', and is given as that of a run's rounds")
        try:
            config = self._config(terms)
            refuse_undeployable(config)
            plan, length = plan_of(config), self._length(config)
        except ConfigError as error:
            raise ConsentError(str(error)) from None
        if (count := config.clients.count) != self._sizes.clients:
            raise ConsentError(f"the run has {count} clients, and the roster {self._sizes.clients} sites")
        _compare(terms, plan, length)
        self._check_counted(config, plan)
        if (reason := self._site.policy.refusal(plan, terms.rounds, self._sizes.clients)) is not None:
            raise ConsentError(reason)
        if plan.privacy is not None:
            own = {"ledger": self._site.ledger, "ledger_limit": self._site.ledger_limit}
            config = config.model_copy(update={"privacy": config.privacy.model_copy(update=own)})
        return Agreed(offer, terms, config, plan)

    def _judged_sum(self, data: bytes, run: Agreed) -> AgreedSum:
        offer, terms = self._signed(data)
        if replace(terms, sum="", length=run.terms.length) != run.terms:
            raise ConsentError(f"the sum '{terms.sum}' is another run's, or on other terms")
        config = run.config
        found = [described for described in config.method.statistics() if described.name == terms.sum]
        if config.evaluation.tables == "summed" and terms.sum == EVALUATION:
            found = [summed_tables(config)]
        if not found:
            raise ConsentError(f"the run has no sum '{terms.sum}'")
        try:
            plan = sum_plan(found[0], config.clients.count, run.plan)
        except ConfigError as error:
            raise ConsentError(str(error)) from None
        if terms.length != (length := self._length_of(found[0])):
            raise ConsentError(f"the sum '{terms.sum}' has {terms.length} numbers, expected {length}")
        return AgreedSum(offer, terms, config, plan, found[0])

    def _signed(self, data: bytes) -> tuple[Offer, RunTerms]:
        try:
            offer = Offer.from_bytes(data)
        except ValueError as error:
            raise ConsentError(str(error)) from None
        return offer, offer.check(self._roster)

    def _config(self, terms: RunTerms) -> Config:
        """The run's settings with the site's own data, and what the plan says of the engine.

        Raises:
            ConfigError: they are none.
        """
        plan = terms.plan
        engine = {"name": plan.engine, "program": plan.program, "protocol": plan.protocol}
        tree = {**terms.settings, "engine": engine, "seed": 0 if terms.seed is None else terms.seed}
        return validated(tree).model_copy(update={"data": self._site.data})

    def _length(self, config: Config) -> int:
        """How many numbers an update of the run has, by the shape of the site's own data."""
        network = create_network(self._sizes.features, self._sizes.classes, config.model)
        return network.size + len(method_class(config.method.name).beside(config))

    def _length_of(self, described: SecureSum) -> int:
        return described.length(self._sizes)

    def _check_counted(self, config: Config, plan: RoundPlan) -> None:
        """Raises ConsentError for what the site's ledger could not count, and for numbers that are to stay with it."""
        if self._site.ledger_limit is not None and plan.privacy is None:
            why = "it has no noise" if plan.noise.multiplier == 0 else plan.unproven
            raise ConsentError(f"needs an epsilon that its ledger can count, the run states none: {why}")
        released = exact_metrics(config)
        if released is not None and (plan.noise.multiplier > 0 or config.evaluation.tables == "each"):
            self.check_metrics(plan, released)


def _compare(terms: RunTerms, plan: RoundPlan, length: int) -> None:
    """Raises ConsentError where what was signed is not what the settings make, naming the first thing that differs."""
    signed, made = dict(_leaves(asdict(terms.plan))), dict(_leaves(asdict(plan)))
    if differing := [name for name in {**made, **signed} if signed.get(name) != made.get(name)]:
        name = differing[0]
        raise ConsentError(
            f"the plan that was signed has {name} = {signed.get(name)}, and the run's settings make it {made.get(name)}"
        )
    if terms.length != length:
        raise ConsentError(
            f"the run's updates have {terms.length} numbers, and of this site's data they have {length}; the features, "
            "classes or groups differ"
        )


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _vector(data: bytes, length: int, what: str) -> np.ndarray:
    try:
        return vector(data, length, what)
    except ValueError as error:
        raise ConsentError(f"was given {error}") from None


def _remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    while len(known) >= _KEPT:
        del known[next(iter(known))]
    known[key] = value
