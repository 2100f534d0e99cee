"""From the configuration to an engine; the only place that knows all engines."""

from __future__ import annotations

from mpc_programs.rules import RoundParameters
from orchestrator.config import Config
from orchestrator.engines.base import Engine
from orchestrator.engines.embedded.engine import EmbeddedEngine
from orchestrator.engines.mpspdz.engine import MpSpdzEngine
from orchestrator.engines.mpspdz.shape import Shape
from orchestrator.engines.plaintext import PlaintextEngine
from orchestrator.errors import ConfigError
from orchestrator.sharing.fixed_point import VectorFormat

__all__ = ["create_engine", "error_bound", "round_parameters", "vector_format"]

_LARGEST_RATIO = 2.0**20
"""Update norms up to this many times the clip norm are clipped on shares; the documented domain of the clip."""


def vector_format(config: Config) -> VectorFormat:
    """Raises ConfigError where the bits do not fit, naming the setting."""
    sharing = config.sharing
    return VectorFormat(sharing.update_bits, sharing.weight_bits, sharing.integer_bits)


def round_parameters(config: Config) -> RoundParameters:
    """The public side of the round's arithmetic."""
    clip_norm, limit = config.privacy.clip_norm, vector_format(config).limit
    if clip_norm is not None and clip_norm * _LARGEST_RATIO < limit:
        raise ConfigError(
            f"privacy.clip_norm = {clip_norm:g} is too small: with sharing.integer_bits = "
            f"{config.sharing.integer_bits} it must be at least {limit / _LARGEST_RATIO:g}"
        )
    return RoundParameters(
        rule=config.method.name,
        cohort=config.federation.cohort,
        lam=config.method.lam,
        tau=config.method.tau,
        fairness_max=config.method.score_max,
        ratio_max=None if clip_norm is None else limit / clip_norm,
    )


def create_engine(config: Config, commands: dict[str, list[str]] | None = None) -> Engine:
    """The engine that `engine.name` asks for; not started yet.

    Args:
        commands: how to start a role's process, as in `TwoServerEngine`.

    Raises:
        ConfigError: the settings do not fit each other, or what the engine needs is not there.
    """
    parameters, privacy, chosen = round_parameters(config), config.privacy, config.engine
    if chosen.name == "plaintext":
        return PlaintextEngine(parameters, clip_norm=privacy.clip_norm, noise_multiplier=privacy.noise_multiplier)
    kind = {"embedded": EmbeddedEngine, "mpspdz": MpSpdzEngine}[chosen.name]
    own = {
        "embedded": {"preprocessing": chosen.preprocessing},
        "mpspdz": {"protocol": chosen.protocol, "home": chosen.mpspdz_home},
    }
    return kind(
        parameters,
        vector_format(config),
        clip_norm=privacy.clip_norm,
        noise_multiplier=privacy.noise_multiplier,
        program=chosen.program,
        timeout_sec=chosen.timeout_sec,
        ports=chosen.ports,
        certificates=chosen.certificates,
        commands=commands,
        **own[chosen.name],
    )


def error_bound(config: Config, largest_coordinate: float) -> float:
    """Bound on |released - float64| per coordinate and round, without noise, for the configured engine.

    Args:
        largest_coordinate: of the round's updates, in size.
    """
    parameters, vectors, chosen = round_parameters(config), vector_format(config), config.engine
    if chosen.name == "mpspdz":
        return Shape(chosen.program, chosen.protocol, parameters, 0).error_bound(vectors, largest_coordinate)
    return vectors.error_bound(parameters.cohort, largest_coordinate, parameters.gain)
