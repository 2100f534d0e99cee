"""Settings of the methods that `compare --methods` sets beside each other; imports nothing that takes long."""

from __future__ import annotations

from typing import Any

from orchestrator.config import Config
from orchestrator.errors import ConfigError
from orchestrator.registry import CENTRALISED, METHODS

__all__ = ["contender"]


def contender(config: Config, name: str) -> Config:
    """The settings of a method, or of `CENTRALISED`, that are otherwise those of the given configuration.

    A method that cannot train the configured network trains the first one that it can. One that was made for an owner
    of the whole graph is that of one client that holds everything, as `CENTRALISED` is.

    Raises:
        ConfigError: there is no such method, or the settings do not fit it.
    """
    if name not in (*METHODS, CENTRALISED):
        raise ConfigError(f"--methods {name}: expected one of {', '.join((*METHODS, CENTRALISED))}")
    method = "local" if name == CENTRALISED else name
    sections: dict[str, Any] = {"method": {"name": method}}
    networks = METHODS[method].networks
    if networks and config.model.name not in networks:
        sections["model"] = {"name": networks[0]}
    if name == CENTRALISED or METHODS[method].centralised:
        sections["clients"] = {"partition": "whole", "count": 1}
        sections["federation"] = {"cohort": 1, "sampling": "distinct"}
    try:
        return config.changed(**sections)
    except ConfigError as error:
        raise ConfigError(f"--methods {name}: {error}") from None
