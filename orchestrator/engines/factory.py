"""From the settings to an engine; the only place that knows all engines."""

from __future__ import annotations

from orchestrator.config import Config
from orchestrator.engines.alone import NoEngine
from orchestrator.engines.base import Engine
from orchestrator.engines.embedded.engine import EmbeddedEngine
from orchestrator.engines.mpspdz.engine import MpSpdzEngine
from orchestrator.engines.plaintext import PlaintextEngine
from orchestrator.engines.round_plan import RoundPlan

__all__ = ["create_engine"]


def create_engine(config: Config, commands: dict[str, list[str]] | None = None) -> Engine:
    """The engine that `engine.name` asks for, with the plan of the settings; not started yet.

    Args:
        commands: how to start a role's process, as in `TwoServerEngine`.

    Raises:
        ConfigError: the settings do not fit each other, or what the engine needs is not there.
    """
    plan, chosen = RoundPlan.of(config), config.engine
    if plan.parameters is None:
        return NoEngine(plan)
    if chosen.name == "plaintext":
        return PlaintextEngine(plan)
    if chosen.name == "mpspdz":
        return MpSpdzEngine(
            plan,
            home=chosen.mpspdz_home,
            timeout_sec=chosen.timeout_sec,
            ports=chosen.ports,
            certificates=chosen.certificates,
            commands=commands,
        )
    return EmbeddedEngine(
        plan,
        preprocessing=chosen.preprocessing,
        timeout_sec=chosen.timeout_sec,
        ports=chosen.ports,
        certificates=chosen.certificates,
        commands=commands,
    )
