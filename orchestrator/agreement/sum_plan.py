"""How a secure sum is a round of the engines: weights of one, the clip bound, the noise, a format that holds it.

Clients divide their numbers by the sum's public bound, so that all are clipped on shares at 1, and noise is scaled by
that. The rule is the mean's with a fixed denominator of one: a weight of exactly 1 each. Every round begins at zero;
numbers are negated, as rounds take updates from a model.
"""

from __future__ import annotations

import math

from mpc_programs.rules import RoundParameters
from mpc_programs.verification import KAPPA
from orchestrator.agreement.round_plan import FINEST_NOISE_BITS, HIDING_COHORT, Noise, RoundPlan
from orchestrator.errors import ConfigError
from orchestrator.mpc.fixed_point import SCALAR_BITS, VectorFormat
from orchestrator.privacy.plan import NoisySum, server_stddev
from orchestrator.secure_sum import EVALUATION, SecureSum

__all__ = ["noisy_sum", "plan_of_sum", "sum_plan"]

_NOISE_ROOM = 20
"""Standard deviations of one server's noise for which the format has room."""


def sum_plan(described: SecureSum, clients: int, run: RoundPlan) -> RoundPlan:
    """The plan of a round that adds up numbers of clients, each divided by the bound.

    Exact to `RoundPlan.error_bound(clients, 1)` times the bound, before noise. One client moves the sum by at most the
    bound, errors of the arithmetic included, and twice that where neighbours are populations in which one client is
    another: docs/privacy.md, (9).

    Args:
        clients: of the run; all of them take part, or a cohort.
        run: the plan of the run that the sum belongs to, whose adjacency and servers' noise it shares.

    Raises:
        ConfigError: the noise is too fine for the ring.
    """
    replaced, summands, least = 1.0 if run.sampling == "poisson" else 2.0, clients, min(clients, HIDING_COHORT)
    if described.each_round:
        summands = clients if run.sampling == "poisson" else run.rule.cohort
        least = run.min_cohort
    sigma = replaced * described.noise_multiplier
    untrusted = run.parameters is not None and run.parameters.bound is not None
    longest = KAPPA if untrusted else 1.01
    room = 2.0 * (longest * summands + _NOISE_ROOM * server_stddev(sigma, 1.0, run.noise.servers))
    integer_bits = math.ceil(math.log2(room))
    weight_bits = min(SCALAR_BITS, (63 - integer_bits) // 2)  # updates are rounded to about as much as factors are
    update_bits = 63 - weight_bits - integer_bits
    vectors = VectorFormat(update_bits, weight_bits, integer_bits)
    plan = RoundPlan(
        parameters=RoundParameters(
            "fedavg",
            summands,
            ratio_max=None if untrusted else vectors.limit,
            expected=1,
            bound=1.0 if untrusted else None,
        ),
        vectors=vectors,
        clip_norm=1.0,
        noise=Noise(sigma, run.noise.servers, "bounded_weights", accountant=None),
        sampling="poisson",  # nobody's weight depends on who else takes part
        clients=summands,
        min_cohort=least,
        engine="plaintext" if run.engine == "plaintext" else "embedded",
        accumulates=False,
    )
    if sigma and math.ldexp(plan.terms.noise_stddev, vectors.model_bits) < 2.0**FINEST_NOISE_BITS:
        raise ConfigError(
            f"the sum '{described.name}': a noise multiplier of {described.noise_multiplier:g} is too fine for the "
            "ring's grid; raise it"
        )
    return plan


def noisy_sum(name: str, run: RoundPlan) -> NoisySum:
    """A sum beside a run's rounds as its plan has it. Raises ConfigError for one that the run does not have.

    Tables of counts without noise stand in no plan: nothing is stated of them.
    """
    found = {noisy.name: noisy for noisy in run.sums}
    if name not in found and name != EVALUATION:
        raise ConfigError(f"the run's plan has no sum '{name}'")
    return found.get(name, NoisySum(EVALUATION, 0.0))


def plan_of_sum(name: str, run: RoundPlan) -> RoundPlan:
    """The `sum_plan` of a sum beside a run's rounds, for whoever knows the run's plan alone."""
    noisy = noisy_sum(name, run)
    described = SecureSum(name, 1.0, lambda sizes: 0, noisy.noise_multiplier, noisy.of_cohort)
    return sum_plan(described, run.clients, run)
