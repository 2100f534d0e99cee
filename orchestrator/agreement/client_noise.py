"""Whether clients can add the noise of a run, and how many of them have to: what is refused is named."""

from __future__ import annotations

from orchestrator.config import Config
from orchestrator.errors import ConfigError
from orchestrator.registry import METHODS

__all__ = ["honest_clients"]


def honest_clients(config: Config, min_cohort: int) -> int | None:
    """Of how many clients' noise sigma is; None where servers add it, or nobody does.

    Args:
        min_cohort: of how many clients a released round is at least.

    Raises:
        ConfigError: naming the settings with which clients cannot add it, or too few would.
    """
    privacy, engine = config.privacy, config.engine
    if privacy.noise != "clients":
        if privacy.honest_clients is not None:
            raise ConfigError("privacy.honest_clients needs privacy.noise = clients: only there do clients add noise")
        return None
    if privacy.noise_multiplier == 0:
        return None
    assisted = engine.name in ("plaintext", "masking") or (engine.name, engine.program) == ("embedded", "assisted")
    wrong = {
        f"method.name = {config.method.name}, whose weights are no plain mean": METHODS[config.method.name].rule
        != "fedavg",
        f"sums besides the model (method.name = {config.method.name}, evaluation.tables), whose noise is the "
        "servers'": bool(config.method.statistics()) or config.evaluation.tables == "summed",
        f"engine.name = {engine.name}, engine.program = {engine.program}, where servers alone make what is added "
        "up": not assisted,
        "federation.sampling = poisson, where nobody may be there to add it": config.federation.sampling == "poisson",
        "federation.clients = untrusted, as nothing can check it": config.federation.clients == "untrusted",
        "privacy.clip = quantile, whose count has the servers' noise": privacy.clip == "quantile",
        f"privacy.bands = {privacy.bands}, which servers keep": (privacy.bands or 1) > 1,
    }
    if found := [setting for setting, is_set in wrong.items() if is_set]:
        raise ConfigError(f"privacy.noise = clients does not go with {'; '.join(found)}")
    honest = privacy.honest_clients or min_cohort
    if not 1 <= honest <= min_cohort:
        raise ConfigError(
            f"privacy.honest_clients = {honest}: expected 1 to {min_cohort}, federation.min_cohort: no more than that "
            "are sure to answer"
        )
    return honest
