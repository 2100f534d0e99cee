"""The plan that settings make. Whoever has a run's settings makes it anew, and sees whether it is the one told."""

from __future__ import annotations

from orchestrator.agreement.client_noise import honest_clients
from orchestrator.agreement.evaluation_sum import noisy_evaluation
from orchestrator.agreement.round_parameters import round_parameters
from orchestrator.agreement.round_plan import HIDING_COHORT, Noise, RoundPlan
from orchestrator.config import Config
from orchestrator.errors import ConfigError
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.privacy.bands import optimal_bands
from orchestrator.privacy.plan import NoisySum
from orchestrator.registry import METHODS

__all__ = ["plan_of"]

_USUAL_BANDS = 64
"""A server keeps as many vectors; more lower the error little."""


def plan_of(config: Config) -> RoundPlan:
    """The plan of the settings.

    Raises:
        ConfigError: the settings do not fit each other, naming those at fault.
    """
    federation, privacy, chosen = config.federation, config.privacy, config.engine
    vectors = VectorFormat(config.sharing.update_bits, config.sharing.weight_bits, config.sharing.integer_bits)
    least = _min_cohort(config)
    plan = RoundPlan(
        parameters=round_parameters(config, vectors),
        vectors=vectors,
        clip_norm=privacy.clip_norm,
        noise=Noise(
            privacy.noise_multiplier,
            privacy.noise,
            privacy.sensitivity,
            privacy.quantile.bit_noise_multiplier if privacy.clip == "quantile" else None,
            privacy.accountant,
            privacy.delta,
            privacy.epsilon_budget,
            honest_clients(config, least),
        ),
        sampling=federation.sampling,
        clients=config.clients.count,
        min_cohort=least,
        engine=chosen.name,
        program=chosen.program,
        protocol=chosen.protocol,
        adaptive=privacy.clip == "quantile",
        unaccounted=METHODS[config.method.name].unaccounted,
        sums=_sums(config),
        stateful=getattr(config.method, "keeps_state", True),  # unless a method says that nothing does
        bands=_bands(config),
    )
    if plan.parameters is not None:
        plan.privacy, plan.terms  # noqa: B018 - what cannot be accounted for, or does not fit, is refused here
    return plan


def _sums(config: Config) -> tuple[NoisySum, ...]:
    """What is released besides, but for exact metrics, of which others ask (`exact_metrics`)."""
    statistics = [NoisySum(s.name, s.noise_multiplier, of_cohort=s.each_round) for s in config.method.statistics()]
    found = (*statistics, *noisy_evaluation(config))
    if again := [noisy.name for k, noisy in enumerate(found) if noisy.name in {other.name for other in found[:k]}]:
        raise ConfigError(f"method.name = {config.method.name}: there are two sums '{again[0]}'")
    return found


def _bands(config: Config) -> tuple[int, ...]:
    """Of the noise: as many as the cycle of cohorts allows, unless the settings say how many."""
    federation, privacy = config.federation, config.privacy
    own = privacy.clip == "quantile" or privacy.noise == "clients"  # and nobody keeps a round's noise
    if federation.sampling != "cyclic" or privacy.noise_multiplier == 0 or own:
        return ()
    between = config.clients.count // federation.cohort  # rounds from a client's turn to its next one, at least
    return optimal_bands(federation.rounds, min(privacy.bands or _USUAL_BANDS, between, federation.rounds))


def _min_cohort(config: Config) -> int:
    """The least number of clients whose round is released; see `FederationConfig.min_cohort`."""
    federation, privacy = config.federation, config.privacy
    if federation.min_cohort is not None:
        return federation.min_cohort
    if federation.sampling == "poisson":
        return 0
    if privacy.noise_multiplier > 0 and privacy.sensitivity == "bounded_weights":
        return federation.cohort
    return min(federation.cohort, HIDING_COHORT)
