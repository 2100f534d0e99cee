"""The public side of a round's arithmetic, from the settings: which rule, for how many, clipped by whom."""

from __future__ import annotations

import math
from dataclasses import replace

from mpc_programs.programs import PROGRAMS
from mpc_programs.rules import RULES, RoundParameters, score_widths
from mpc_programs.verification import LARGEST_BOUND, LEAST_BOUND
from orchestrator.agreement.round_plan import LARGEST_RATIO
from orchestrator.config import Config
from orchestrator.errors import ConfigError
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.privacy.sensitivity import bounds_of
from orchestrator.registry import METHODS

__all__ = ["round_parameters"]


def round_parameters(config: Config, vectors: VectorFormat) -> RoundParameters | None:
    """Those of a cohort of the usual size and the usual clip bound; None where nothing is aggregated.

    Args:
        vectors: the format of updates and model.

    Raises:
        ConfigError: naming the settings that nothing can be computed, checked or proven with.
    """
    rule = METHODS[config.method.name].rule
    if rule is None:
        return None
    clip_norm = config.privacy.clip_norm
    if clip_norm is not None and clip_norm * LARGEST_RATIO < vectors.limit:
        raise ConfigError(
            f"privacy.clip_norm = {clip_norm:g} is too small: with sharing.integer_bits = "
            f"{config.sharing.integer_bits} it must be at least {vectors.limit / LARGEST_RATIO:g}"
        )
    if RULES[rule].personal:
        _check_personal(config)
    untrusted = config.federation.clients == "untrusted"
    fixed = config.federation.sampling == "poisson" and config.privacy.sensitivity == "bounded_weights"
    fixed = fixed and not RULES[rule].personal
    parameters = RoundParameters(
        rule=rule,
        cohort=config.federation.cohort,
        ratio_max=None if clip_norm is None or untrusted else vectors.limit / clip_norm,
        expected=config.federation.cohort if fixed else None,
        **config.method.rule_parameters(config.model),
    )
    if untrusted:
        parameters = _verified(config, parameters, vectors)
    if parameters.expected is not None:
        bounds_of(parameters).own(parameters)  # names the setting that a fixed denominator cannot be computed with
    return parameters


def _verified(config: Config, parameters: RoundParameters, vectors: VectorFormat) -> RoundParameters:
    """The same with a bound that the servers check. Raises ConfigError, naming what cannot be checked."""
    bound = config.privacy.clip_norm
    if bound is None:
        raise ConfigError("federation.clients = untrusted: set privacy.clip_norm, which the servers check")
    wrong = {
        f"engine.name = {config.engine.name}": config.engine.name == "masking",
        f"engine.protocol = {config.engine.protocol}": (config.engine.name, config.engine.protocol)
        == ("mpspdz", "dealer-ring"),
        f"engine.program = {config.engine.program}": config.engine.program != "assisted",
        f"method.name = {config.method.name}": parameters.personal,
    }
    if found := [setting for setting, is_set in wrong.items() if is_set]:
        raise ConfigError(f"federation.clients = untrusted: nothing is checked with {', '.join(found)}")
    least, most = (math.ldexp(steps, -vectors.update_bits) for steps in (LEAST_BOUND, LARGEST_BOUND))
    if not least <= bound <= most:
        raise ConfigError(
            f"federation.clients = untrusted: privacy.clip_norm = {bound:g} cannot be checked with "
            f"sharing.update_bits = {vectors.update_bits}; expected {least:g} to {most:g}"
        )
    highest = 2.0 ** math.ceil(math.log2(parameters.fairness_max))  # scores are shared as so many bits
    checked = replace(parameters, bound=bound, fairness_max=highest)
    try:
        score_widths(checked)
    except ValueError as error:
        raise ConfigError(f"federation.clients = untrusted: method.name = {config.method.name}: {error}") from None
    return checked


def _check_personal(config: Config) -> None:
    """Raises ConfigError, naming all settings at fault, where a personal rule meets what it is not defined for."""
    engine, privacy = config.engine, config.privacy
    wrong = {
        "engine.name = mpspdz": engine.name == "mpspdz",
        f"engine.program = {engine.program}": engine.name == "embedded" and not PROGRAMS[engine.program].personal,
        f"privacy.clip_norm = {privacy.clip_norm}": privacy.clip_norm is not None,
        f"privacy.noise_multiplier = {privacy.noise_multiplier:g}": privacy.noise_multiplier > 0,
    }
    if found := [setting for setting, is_set in wrong.items() if is_set]:
        raise ConfigError(
            f"method.name = {config.method.name} gives every client its own model and does not go with "
            f"{', '.join(found)}"
        )
