"""What an aggregator or a site asks of a run, whoever proposes it, and whatever the coordinator says.

A policy is its owner's file, not a part of the run. Nothing in a run's plan is taken for granted: epsilon is computed
from its mechanisms by an accountant and at a delta of the policy's own, for whoever sees most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from pydantic import Field, field_validator

from mpc_programs.programs import PROGRAMS
from mpc_programs.rules import RULES
from orchestrator.agreement.round_plan import HIDING_COHORT, RoundPlan
from orchestrator.errors import ConfigError
from orchestrator.privacy.plan import VIEWS
from orchestrator.section import Section

__all__ = ["Policy", "SitePolicy"]

_ACCOUNTANT = "tightest"
_DEPLOYED = ("embedded", "mpspdz")
"""Engines of two servers, which alone keep what a client sends from both."""


class Policy(Section):
    """What a run must keep to. Noise and epsilon have no defaults: whoever writes a policy decides about them."""

    min_cohort: int = Field(
        HIDING_COHORT,
        ge=1,
        le=10**6,
        description="least clients whose round may be released",
    )
    noise_multiplier: float = Field(
        ge=0, le=1e6, description="least noise of models and sums, relative to how far one client moves them; 0: any"
    )
    largest_epsilon: float | None = Field(
        gt=0, description="largest epsilon of the whole run for whoever sees most; null: any, and runs without one"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="at which that epsilon is computed, whatever the run says")
    rules: tuple[str, ...] | None = Field(None, description=f"of {', '.join(RULES)}; null: all")
    programs: tuple[str, ...] | None = Field(None, description=f"of {', '.join(PROGRAMS)}; null: all")
    clients: Literal["any", "untrusted"] = Field(
        "any", description="untrusted: only runs in which the servers check what clients send"
    )
    most_rounds: int | None = Field(None, ge=1, le=10**9, description="rounds of a run; null: any number")

    @field_validator("rules", "programs")
    @classmethod
    def _are_known(cls, names: tuple[str, ...] | None, info: object) -> tuple[str, ...] | None:
        known = RULES if getattr(info, "field_name", "") == "rules" else PROGRAMS
        if wrong := [name for name in names or () if name not in known]:
            raise ValueError(f"expected some of {', '.join(known)}, got {wrong[0][:80]!r}")
        return names

    def refusal(self, plan: RoundPlan, rounds: int, sites: int) -> str | None:
        """Why a run is refused, in one line that says what is needed and what the run says; None where it is not.

        Args:
            plan: of the run; from a coordinator who may lie.
            rounds: of the run.
            sites: of the consortium: a run cannot draw its cohorts of more.
        """
        try:
            faults = list(self._plain_faults(plan, rounds, sites)) or list(self._epsilon_faults(plan, rounds))
        except (ConfigError, ArithmeticError, ValueError) as error:  # no such run can be made from settings
            faults = [f"needs a run that can be accounted for: {error}"]
        return " ".join("; ".join(faults).split()) or None

    def _plain_faults(self, plan: RoundPlan, rounds: int, sites: int) -> Iterator[str]:
        if plan.engine not in _DEPLOYED:
            yield f"needs engine.name = {' or '.join(_DEPLOYED)}, the run says {plan.engine}"
        if plan.rule.rule not in RULES or plan.rule.rule not in (self.rules or RULES):
            yield f"needs a rule of {', '.join(self.rules or RULES)}, the run says {plan.rule.rule}"
        if plan.program not in PROGRAMS or plan.program not in (self.programs or PROGRAMS):
            yield f"needs a program of {', '.join(self.programs or PROGRAMS)}, the run says {plan.program}"
        if not 1 <= plan.clients <= sites:
            yield f"needs clients of the consortium's {sites} sites, the run says {plan.clients}"
        if plan.min_cohort < self.min_cohort:
            yield f"needs min_cohort >= {self.min_cohort}, the run says {plan.min_cohort}"
        if not 1 <= rounds <= (self.most_rounds or math.inf):
            yield f"needs rounds <= {self.most_rounds or 'any'}, the run says {rounds}"
        if self.clients == "untrusted" and plan.rule.bound is None:
            yield "needs clients: untrusted, the run says trusted"
        if plan.noise.multiplier > 0 and plan.clip_norm is None:
            yield "needs clip_norm where there is noise, the run says none"
        noises = {
            "": plan.noise.multiplier,
            " for the count of norms": plan.noise.count_multiplier if plan.adaptive else None,
            **{f" for the sum '{noisy.name}'": noisy.noise_multiplier for noisy in plan.sums},
        }
        for what, multiplier in noises.items():
            if multiplier is not None and not multiplier >= self.noise_multiplier:
                yield f"needs noise_multiplier >= {self.noise_multiplier:g}, the run says {multiplier:g}{what}"

    def _epsilon_faults(self, plan: RoundPlan, rounds: int) -> Iterator[str]:
        if self.largest_epsilon is None:
            return
        if plan.privacy is None:
            why = f"states none: {plan.unproven}" if plan.noise.multiplier else "has no noise"
            yield f"needs largest_epsilon <= {self.largest_epsilon:g}, the run {why}"
            return
        ours = replace(plan.privacy, accountant=_ACCOUNTANT, delta=self.delta)
        seen = {view: ours.epsilon(rounds, view) for view in VIEWS}
        view, most = max(seen.items(), key=lambda item: math.inf if item[1] is None else item[1])
        if most is None or not most <= self.largest_epsilon:
            yield (
                f"needs largest_epsilon <= {self.largest_epsilon:g}, the run comes to {most or math.inf:.4g} in "
                f"{rounds} rounds, for a {view}, at delta {self.delta:g}"
            )


class SitePolicy(Policy):
    """A site's, who is also asked for metrics."""

    exact_metrics: bool = Field(False, description="whether the coordinator hears this site's own metrics exactly")
