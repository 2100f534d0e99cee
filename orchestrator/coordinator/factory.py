"""From the settings to an engine; the only place that knows all engines."""

from __future__ import annotations

from typing import Any

from orchestrator.agreement.evaluation_sum import exact_metrics, summed_tables
from orchestrator.agreement.from_settings import plan_of
from orchestrator.agreement.round_plan import RoundPlan
from orchestrator.agreement.sum_plan import sum_plan
from orchestrator.config import Config, EngineConfig
from orchestrator.coordinator.alone import NoEngine
from orchestrator.coordinator.embedded import EmbeddedEngine
from orchestrator.coordinator.engine import Engine
from orchestrator.coordinator.masking import MaskingEngine, refuse_unmaskable
from orchestrator.coordinator.mpspdz import MpSpdzEngine
from orchestrator.coordinator.plaintext import PlaintextEngine
from orchestrator.errors import ConfigError

__all__ = ["create_engine", "create_sum_engine", "refuse_uncovered"]


def create_engine(config: Config, commands: dict[str, list[str]] | None = None) -> Engine:
    """The engine that `engine.name` asks for, with the plan of the settings; not started yet.

    Args:
        commands: how to start a role's process, as in `TwoServerEngine`.

    Raises:
        ConfigError: the settings do not fit each other, or what the engine needs is not there.
    """
    plan, chosen = plan_of(config), config.engine
    if plan.parameters is not None and chosen.name == "masking":
        refuse_unmaskable(config, plan)
    refuse_uncovered(config, plan)
    tables = [summed_tables(config)] if config.evaluation.tables == "summed" else []
    for described in (*config.method.statistics(), *tables):
        sum_plan(described, config.clients.count, plan)  # what does not fit is refused here
    if plan.parameters is None:
        return NoEngine(plan)
    if chosen.name == "plaintext":
        return PlaintextEngine(plan)
    if chosen.name == "masking":
        return MaskingEngine(plan)
    session: dict[str, Any] = {
        "startup_timeout_sec": chosen.startup_timeout_sec,
        "timeout_sec": chosen.timeout_sec,
        "ports": chosen.ports,
        "certificates": chosen.certificates,
        "commands": commands,
    }
    if chosen.name == "mpspdz":
        return MpSpdzEngine(plan, home=chosen.mpspdz_home, **session)
    return EmbeddedEngine(plan, preprocessing=chosen.preprocessing, **session)


def create_sum_engine(plan: RoundPlan, chosen: EngineConfig, commands: dict[str, list[str]] | None = None) -> Engine:
    """The engine of a sum: plaintext where rounds are, else the embedded one, on ports that are free.

    Args:
        commands: as in `create_engine`.
    """
    if plan.engine == "plaintext":
        return PlaintextEngine(plan)
    return EmbeddedEngine(
        plan,
        preprocessing=chosen.preprocessing,
        startup_timeout_sec=chosen.startup_timeout_sec,
        timeout_sec=chosen.timeout_sec,
        certificates=chosen.certificates,
        commands=commands,
    )


def refuse_uncovered(config: Config, plan: RoundPlan) -> None:
    """Raises ConfigError where an epsilon would be stated that leaves out how clients' data show or mix otherwise.

    Exact metrics of clients' nodes are releases; features that are scaled over everybody's nodes make every client's
    update depend on every client's data, and sensitivity is proven for updates that do not.
    """
    counted = plan.parameters is not None and plan.privacy is not None
    if config.privacy.ledger is not None:
        if not counted:
            why = plan.unproven if plan.parameters is not None and plan.noise.multiplier > 0 else "the run has no noise"
            raise ConfigError(f"privacy.ledger: there is no epsilon that clients could keep account of: {why}")
        if config.evaluation.exact_beside_noise:
            raise ConfigError("privacy.ledger: evaluation.exact_beside_noise lets out what no ledger can count")
    if not counted or config.evaluation.exact_beside_noise:
        return
    if config.data.scaling == "pooled":
        raise ConfigError(
            "data.scaling = pooled: every client's features then depend on all clients' data, which the epsilon of a "
            "run with noise does not count; set data.scaling = by_client or none, or, in a simulation only, "
            "evaluation.exact_beside_noise = true"
        )
    if (setting := exact_metrics(config)) is None:
        return
    raise ConfigError(
        f"{setting}: its exact metrics are not covered by the epsilon of a run with noise; set evaluation.where = "
        "clients and evaluation.tables = summed for metrics with noise, evaluation.where = nowhere for none, or, in a "
        "simulation only, evaluation.exact_beside_noise = true"
    )
