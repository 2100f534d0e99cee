"""From the configuration to an engine; the only place that knows all engines."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

from mpc_programs.rules import RoundParameters
from orchestrator.config import Config
from orchestrator.engines.alone import NoEngine
from orchestrator.engines.base import Engine, Terms
from orchestrator.engines.embedded.engine import EmbeddedEngine
from orchestrator.engines.mpspdz.engine import MpSpdzEngine
from orchestrator.engines.mpspdz.shape import Shape
from orchestrator.engines.plaintext import PlaintextEngine
from orchestrator.errors import ConfigError
from orchestrator.privacy.plan import PrivacyPlan, server_stddev
from orchestrator.privacy.quantile import COUNT_SENSITIVITY
from orchestrator.privacy.sensitivity import check_fixed_denominator, fixed_weight, l2_sensitivity, weights_error
from orchestrator.registry import METHODS
from orchestrator.sharing.fixed_point import COUNT_BITS, SCALAR_BITS, VectorFormat, clip_error

__all__ = [
    "clip_limits",
    "create_engine",
    "error_bound",
    "privacy_plan",
    "round_parameters",
    "round_terms",
    "vector_format",
    "with_clip_norm",
]

_LARGEST_RATIO = 2.0**20
"""Update norms up to this many times the clip norm are clipped on shares; the documented domain of the clip."""

_SAMPLERS = {"distinct": "fixed", "poisson": "poisson"}
"""What accountants know the ways of sampling as; there is none for sampling with replacement."""

_FINEST_NOISE_BITS = 40
"""Noise of an accounted run is at least this many bits above the ring's grid; docs/privacy.md says what that gives."""


def vector_format(config: Config) -> VectorFormat:
    """Raises ConfigError where the bits do not fit, naming the setting."""
    sharing = config.sharing
    return VectorFormat(sharing.update_bits, sharing.weight_bits, sharing.integer_bits)


def round_parameters(config: Config) -> RoundParameters:
    """The public side of the round's arithmetic."""
    if METHODS[config.method.name].rule is None:
        raise ConfigError(f"method.name = {config.method.name} aggregates nothing: there is no round to compute")
    clip_norm, limit = config.privacy.clip_norm, vector_format(config).limit
    if clip_norm is not None and clip_norm * _LARGEST_RATIO < limit:
        raise ConfigError(
            f"privacy.clip_norm = {clip_norm:g} is too small: with sharing.integer_bits = "
            f"{config.sharing.integer_bits} it must be at least {limit / _LARGEST_RATIO:g}"
        )
    _check_personal(config)
    fixed = config.federation.sampling == "poisson" and config.privacy.sensitivity == "bounded_weights"
    parameters = RoundParameters(
        rule=METHODS[config.method.name].rule,
        cohort=config.federation.cohort,
        lam=config.method.lam,
        tau=config.method.tau,
        fairness_max=config.method.score_max,
        ratio_max=None if clip_norm is None else limit / clip_norm,
        expected=config.federation.cohort if fixed else None,
        embedding=config.model.hidden if METHODS[config.method.name].rule == "fedpub" else 0,
        similarity=config.method.similarity,
    )
    check_fixed_denominator(parameters)
    return parameters


def _check_personal(config: Config) -> None:
    """Raises ConfigError, naming all settings at fault, where a personal rule meets what it is not defined for."""
    if not METHODS[config.method.name].personal:
        return
    engine, privacy = config.engine, config.privacy
    wrong = {
        "engine.name = mpspdz": engine.name == "mpspdz",
        f"engine.program = {engine.program}": engine.name == "embedded" and engine.program != "assisted",
        f"privacy.clip_norm = {privacy.clip_norm}": privacy.clip_norm is not None,
        f"privacy.noise_multiplier = {privacy.noise_multiplier:g}": privacy.noise_multiplier > 0,
    }
    if found := [setting for setting, is_set in wrong.items() if is_set]:
        raise ConfigError(
            f"method.name = {config.method.name} gives every client its own model and does not go with "
            f"{', '.join(found)}"
        )


def error_bound(config: Config, cohort: int, largest_coordinate: float) -> float:
    """Bound on |released - float64| per coordinate of a round, without noise, for the configured engine.

    By `VectorFormat.error_bound`, from the sum of the factors' errors: of FED-PUB's personal models
    `Similarity.error_ulp`, of other rules that of the weights and `clip_error`. `faithful` also truncates elements,
    when they are lifted, clipped and then weighed, and their sum: (q + 2) 2^-32 + 2^-model_bits more.

    Args:
        cohort: how many clients take part.
        largest_coordinate: of their updates, in size.
    """
    parameters, vectors, chosen = round_parameters(config), vector_format(config), config.engine
    if chosen.name == "mpspdz":
        shape = Shape(chosen.program, chosen.protocol, replace(parameters, cohort=cohort), 0)
        return shape.error_bound(vectors, largest_coordinate)
    if parameters.personal:
        error_ulp = replace(parameters, cohort=max(1, cohort)).similarities.error_ulp
        return vectors.error_bound(cohort, largest_coordinate, factors=error_ulp * 2.0**-SCALAR_BITS)
    if parameters.expected is None:
        total, weights = 1.0, weights_error(parameters, cohort)
    else:
        weight, error = fixed_weight(parameters)
        total, weights = cohort * weight, cohort * error
    factors = weights + clip_error(cohort, total)
    bound = vectors.error_bound(cohort, largest_coordinate, factors=factors, total=total)
    if chosen.program == "faithful":
        bound += (cohort + 2 * total) * 2.0**-SCALAR_BITS + 2.0**-vectors.model_bits
    return bound


def privacy_plan(config: Config) -> PrivacyPlan | None:
    """What the run may claim; None without noise, without an accountant, or where none is valid for what is run.

    Raises:
        ConfigError: the noise is too fine for the ring's grid, the budget does not allow a single round, or nothing can
            watch over it.
    """
    privacy, sampler = config.privacy, _SAMPLERS.get(config.federation.sampling)
    if privacy.noise_multiplier == 0 or privacy.accountant is None or sampler is None:
        return None
    if not _proven(config):
        if privacy.epsilon_budget is not None:
            raise ConfigError(
                "privacy.epsilon_budget: no epsilon is proven for MP-SPDZ's arithmetic and for engine.program = "
                "faithful; choose engine.name = embedded with another program"
            )
        return None
    plan = PrivacyPlan(
        sampler=sampler,
        clients=config.clients.count,
        cohort=config.federation.cohort,
        noise_multiplier=privacy.noise_multiplier,
        delta=privacy.delta,
        accountant=privacy.accountant,
        noise=privacy.noise,
        sensitivity=_sensitivity(config),
        bit_noise_multiplier=privacy.quantile.bit_noise_multiplier if privacy.clip == "quantile" else None,
    )
    if math.ldexp(plan.server_stddev, vector_format(config).model_bits) < 2.0**_FINEST_NOISE_BITS:
        raise ConfigError(
            f"privacy.noise_multiplier = {privacy.noise_multiplier:g}: each server's noise of {plan.server_stddev:.3g} "
            f"is below 2^{_FINEST_NOISE_BITS} steps of the ring's grid, too coarse to be accounted as Gaussian; "
            "raise it, or set privacy.accountant to null"
        )
    if privacy.epsilon_budget is not None and (first := plan.epsilon(1)) is not None and first > privacy.epsilon_budget:
        raise ConfigError(
            f"privacy.epsilon_budget = {privacy.epsilon_budget:g} does not allow a single round, which costs epsilon "
            f"{first:.4g} at privacy.delta = {privacy.delta:g}"
        )
    return plan


def _proven(config: Config) -> bool:
    """Whether the sensitivity's proof covers the arithmetic, see docs/privacy.md: what plaintext simulates it does."""
    chosen = config.engine
    return chosen.name == "plaintext" or (chosen.name == "embedded" and chosen.program != "faithful")


def with_clip_norm(config: Config, clip_norm: float | None) -> Config:
    """The settings of a round whose clip bound is another one: everything that follows from it follows."""
    return config.model_copy(update={"privacy": config.privacy.model_copy(update={"clip_norm": clip_norm})})


def round_terms(config: Config) -> Terms:
    """What is public about a round with the clip bound that the settings name.

    Raises:
        ConfigError: the noise of the count of updates within the bound is too coarse, or does not fit.
    """
    privacy, quantile = config.privacy, config.privacy.quantile
    if privacy.clip == "fixed":
        return Terms(privacy.clip_norm, _noise_stddev(config))
    if privacy.noise_multiplier == 0:
        return Terms(privacy.clip_norm, 0.0, 0.0)
    count_stddev = server_stddev(quantile.bit_noise_multiplier, COUNT_SENSITIVITY, privacy.noise)
    finest, largest = 2.0 ** (_FINEST_NOISE_BITS - COUNT_BITS), 2.0 ** (63 - COUNT_BITS) / 40
    if not finest <= count_stddev <= largest:
        raise ConfigError(
            f"privacy.quantile.bit_noise_multiplier = {quantile.bit_noise_multiplier:g}: noise of {count_stddev:g} on "
            f"the count from each server; expected {finest:g} to {largest:g}"
        )
    return Terms(privacy.clip_norm, _noise_stddev(config), count_stddev)


def clip_limits(config: Config) -> tuple[float, float]:
    """The least and the largest adaptive clip bound.

    Norms of up to 2^20 times the bound can be clipped on shares, no norm reaches the format's limit, and the noise that
    belongs to the bound must be fine enough and fit.
    """
    vectors = vector_format(config)
    low, high = vectors.limit / _LARGEST_RATIO, vectors.limit
    # Noise is an affine function of the bound; see `l2_sensitivity`.
    least, most = (_noise_stddev(with_clip_norm(config, bound)) for bound in (low, high))
    if slope := (most - least) / (high - low):
        finest, largest = 2.0 ** (_FINEST_NOISE_BITS - vectors.model_bits), vectors.limit / 10
        at = [low + (stddev - least) / slope for stddev in (finest * (1 + 1e-9), largest * (1 - 1e-9))]
        low, high = max(low, at[0]), min(high, at[1])
    return low, high


def _noise_stddev(config: Config) -> float:
    """Absolute standard deviation of each server's noise on the aggregate; 0 for none."""
    privacy = config.privacy
    if privacy.noise_multiplier == 0:
        return 0.0
    return server_stddev(privacy.noise_multiplier, _sensitivity(config), privacy.noise)


def _sensitivity(config: Config) -> float:
    """Of one round's aggregate, absolute; the configuration has a clip norm wherever it has noise."""
    assert config.privacy.clip_norm is not None
    poisson = config.federation.sampling == "poisson"
    return l2_sensitivity(
        round_parameters(config),
        config.privacy.clip_norm,
        vector_format(config),
        config.privacy.sensitivity,
        "poisson" if poisson else "fixed",
        largest_cohort=config.clients.count if poisson else None,
    )


def create_engine(config: Config, commands: dict[str, list[str]] | None = None) -> Engine:
    """The engine that `engine.name` asks for; not started yet.

    Args:
        commands: how to start a role's process, as in `TwoServerEngine`.

    Raises:
        ConfigError: the settings do not fit each other, or what the engine needs is not there.
    """
    if METHODS[config.method.name].rule is None:
        return NoEngine()
    parameters, usual, chosen = round_parameters(config), asdict(round_terms(config)), config.engine
    privacy_plan(config)  # refuses what cannot be accounted for
    if chosen.name == "plaintext":
        return PlaintextEngine(parameters, **usual, vectors=vector_format(config) if usual["noise_stddev"] else None)
    kind = {"embedded": EmbeddedEngine, "mpspdz": MpSpdzEngine}[chosen.name]
    own = {
        "embedded": {"preprocessing": chosen.preprocessing},
        "mpspdz": {"protocol": chosen.protocol, "home": chosen.mpspdz_home},
    }
    return kind(
        parameters,
        vector_format(config),
        **usual,
        program=chosen.program,
        timeout_sec=chosen.timeout_sec,
        ports=chosen.ports,
        certificates=chosen.certificates,
        commands=commands,
        **own[chosen.name],
    )
