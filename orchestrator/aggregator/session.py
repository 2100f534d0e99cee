"""One session at an aggregator's service: terms are judged, a key is signed, and then no order leaves the terms.

Parties: a coordinator, which may lie; the other aggregator, semi-honest; sites of the roster, any of which may send
anything. What each learns: as in `orchestrator.server.aggregation`; the coordinator also which terms this aggregator
refuses, and why. Channels: mutual TLS, each peer by its certificate in the roster.

A coordinator that lies could announce less noise, a clip bound or weights of its own, a cohort of one victim among
clients that it invented, or a round more. Every order is therefore held against the plan that the policy judged and
that sites saw signed, and uploads against the sites' signatures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field

from orchestrator.agreement.announcement import announcement
from orchestrator.agreement.policy import Policy
from orchestrator.agreement.roster import Roster
from orchestrator.agreement.round_plan import RoundPlan
from orchestrator.agreement.sum_plan import noisy_sum, plan_of_sum
from orchestrator.agreement.terms import RunTerms
from orchestrator.errors import ConfigError, ConsentError
from orchestrator.wire.orders import Aggregate, Announcement, Order, Prepare, Propose, Setup, Submit

__all__ = ["Agreed", "judge"]

_SETTINGS = {"name": "embedded", "preprocessing": "ot"}
"""Of an engine whose servers are services: two, and nobody else."""


def judge(proposed: Propose, roster: Roster, policy: Policy) -> Agreed:
    """What is agreed on, if it is.

    Raises:
        ConsentError: in one line, why this aggregator takes no part.
    """
    try:
        terms = RunTerms.from_bytes(proposed.terms)
        plan = plan_of_sum(terms.sum, terms.plan) if terms.sum else terms.plan
        plan.rule, plan.terms, terms.plan.privacy  # noqa: B018 - what does not fit is refused here
        refusal = _unfit(terms, plan, roster) or policy.refusal(terms.plan, terms.rounds, len(roster.sites))
    except (ValueError, ConfigError) as error:
        raise ConsentError(str(error)) from None
    if refusal:
        raise ConsentError(refusal)
    return Agreed(proposed.run, terms, plan)


def _unfit(terms: RunTerms, plan: RoundPlan, roster: Roster) -> str:
    """Why no service could hold a run to these terms, in one line; empty: it can."""
    if terms.consortium != roster.digest:
        return (
            f"the run is of the roster {terms.consortium[:16]}..., and this aggregator's is {roster.digest[:16]}...; "
            "compare `safegnn consortium check`"
        )
    if plan.noise.multiplier == 0 < terms.plan.noise.multiplier:
        return f"the sum '{terms.sum}' would be released without noise beside a run that has noise"
    if terms.plan.adaptive:
        return "privacy.clip = quantile: services hold noise against one clip bound; choose fixed"
    if terms.plan.sampling == "with_replacement":
        return "federation.sampling = with_replacement: a site takes part in a round once; choose another one"
    if terms.plan.engine != "embedded":
        return f"engine.name = {terms.plan.engine}: services compute by the embedded engine"
    return ""


@dataclass
class Agreed:
    """What a session's orders are held against.

    Attributes:
        run: the session's number.
        terms: of the run.
        plan: of the rounds that are computed, or of those of a sum.
        cohort: that of the round which was ordered last.
    """

    run: bytes
    terms: RunTerms
    plan: RoundPlan
    cohort: list[int] = field(default_factory=list)

    def fault(self, order: Order) -> str:
        """What in an order is not what was agreed on, in words; empty: nothing."""
        return (fault := self._fault(order)) and f"gave an order that is not on the run's terms: {fault}"

    def fault_of_release(self, released: int, taken: Mapping[int, int]) -> str:
        """Why the round that was ordered last may not be released, in words; empty: it may.

        One that is repeated counts again, as it does for epsilon.

        Args:
            released: how many were, on these terms and in all sessions.
            taken: in how many of them each client was.
        """
        if released >= self.most:
            what = f"sum '{self.terms.sum}'" if self.terms.sum else "run"
            return f"asks for release {released + 1} of a {what} whose terms have {self.most}"
        if again := [client for client in self.cohort if taken.get(client, 0) >= self.turns]:
            return f"asks client {again[0]} for turn {self.turns + 1} of a run in which a client has {self.turns}"
        return ""

    def _fault(self, order: Order) -> str:
        if isinstance(order, Setup):
            return self._fault_of_setup(order)
        if isinstance(order, Prepare):
            return self._fault_of_round(order.announcement)
        if isinstance(order, Submit):
            known = order.client < self.terms.plan.clients
            return "" if known else f"client {order.client} is no site of the roster"
        if isinstance(order, Aggregate):
            self.cohort = order.cohort
            return self._fault_of_cohort(order.cohort)
        return ""

    def _fault_of_setup(self, order: Setup) -> str:
        plan = self.plan
        held = {
            "run": order.run == self.run,
            "plan": order.plan == plan.digest,
            "program": order.program == plan.program,
            "min_cohort": order.min_cohort == plan.min_cohort,
            "vectors": astuple(order.vectors) == astuple(plan.vectors),
            "accumulates": order.accumulates == plan.accumulates,
            "bands": tuple(order.bands) == plan.bands,
            "model": len(order.model) == 8 * self.terms.length,
            "engine": order.engine == _SETTINGS and order.dealer is None,
        }
        if wrong := [name for name, same in held.items() if not same]:
            return f"another {wrong[0]}"
        return self._fault_of_round(order.announcement)

    def _fault_of_round(self, announced: Announcement) -> str:
        size, plan = announced.parameters.cohort, self.plan
        if size > plan.clients or (plan.sampling != "poisson" and size != plan.rule.cohort):
            return f"a cohort of {size}"
        expected = announcement(plan, size, plan.terms)
        if astuple(announced.parameters) != astuple(expected.parameters):
            return "other parameters of a round"
        if (announced.noise_stddev, announced.count_stddev) != (expected.noise_stddev, expected.count_stddev):
            return f"noise of {announced.noise_stddev:g} instead of {expected.noise_stddev:g}"
        return ""

    def _fault_of_cohort(self, cohort: list[int]) -> str:
        if len(set(cohort)) < len(cohort) or max(cohort, default=0) >= self.terms.plan.clients:
            return "a cohort in which a client stands twice, or that is no site of the roster"
        return ""

    @property
    def turns(self) -> int:
        """In how many releases a client may be: where clients take turns, epsilon counts on no more for everybody."""
        run = self.terms.plan
        of_all = self.terms.sum and not noisy_sum(self.terms.sum, run).of_cohort
        if run.sampling != "cyclic" or of_all:
            return self.most
        return -(-self.terms.rounds * run.rule.cohort // run.clients)

    @property
    def most(self) -> int:
        """How many releases the terms have."""
        terms = self.terms
        if not terms.sum:
            return terms.rounds
        noisy = noisy_sum(terms.sum, terms.plan)
        if noisy.noise_multiplier == 0 and not noisy.of_cohort:
            return terms.rounds + 1  # after every round, and where none was evaluated after the last one
        return terms.rounds if noisy.of_cohort else noisy.releases(terms.rounds)
