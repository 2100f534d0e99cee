"""Whether a machine can hold what settings ask for, said before anything of it is made."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.config import Config
from orchestrator.errors import ConfigError
from orchestrator.surroundings import memory_bytes

__all__ = ["check_graph", "check_model", "check_round"]

_STATE_BYTES = 16
"""A parameter of a client that trains: float32, with its gradient and Adam's two moments."""

_UPLOAD_BYTES = 16
"""A parameter of an upload: both servers' shares."""

_FEATURE_BYTES, _EDGE_BYTES = 4, 16


def check_graph(config: Config) -> None:
    """Raises ConfigError where a synthetic graph would not fit into memory."""
    if config.data.name != "synthetic":
        return
    asked = config.data.synthetic
    needed = asked.nodes * asked.features * _FEATURE_BYTES + asked.edges * _EDGE_BYTES
    _check(
        f"data.synthetic: {asked.nodes:,} nodes of {asked.features:,} features and {asked.edges:,} edges",
        needed,
        lambda: "ask for fewer",
    )


def check_model(config: Config, size: Callable[[int], int]) -> None:
    """Raises ConfigError where one cohort that trains, and its uploads, would not fit into memory; a lower bound.

    Args:
        size: d, by the units of a hidden layer; it allocates nothing.
    """
    together = min(config.clients.batch * config.engine.client_processes, config.federation.cohort)

    def needed(hidden: int) -> int:
        return size(hidden) * (together * _STATE_BYTES + config.federation.cohort * _UPLOAD_BYTES)

    def largest() -> str:
        have, low, high = memory_bytes() or 0, 0, config.model.hidden
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if needed(middle) <= have else (low, middle)
        return f"model.hidden = {low} is the most" if low and config.model.name != "own" else "use a smaller one"

    hidden, cohort = config.model.hidden, config.federation.cohort
    model = f"the model has {size(hidden):,} parameters, of {cohort} clients a round"
    _check(model if config.model.name == "own" else f"model.hidden = {hidden}: {model},", needed(hidden), largest)


def check_round(cohort: int, parameters: int) -> None:
    """Raises ConfigError where the uploads of a round would not fit into memory."""
    uploads = f"--cohort {cohort} --parameters {parameters}: the uploads of a round"
    _check(uploads, cohort * parameters * (_UPLOAD_BYTES + 8), lambda: "ask for less")


def _check(what: str, needed: int, right: Callable[[], str]) -> None:
    have = memory_bytes()
    if have is not None and needed > have:
        raise ConfigError(
            f"{what} take at least {needed / 1e9:,.0f} GB, and this machine has {have / 1e9:,.0f}; {right()}"
        )
