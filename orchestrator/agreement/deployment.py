"""What cannot be done where clients are sites of their own: refused by name before the first round."""

from __future__ import annotations

from orchestrator.config import Config
from orchestrator.errors import ConfigError
from orchestrator.registry import METHODS

__all__ = ["refuse_undeployable"]


def refuse_undeployable(config: Config) -> None:
    """Raises ConfigError, naming all settings at fault, with the cure."""
    chosen, evaluation, method = config.engine.name, config.evaluation, METHODS[config.method.name]
    wrong = {
        f"engine.name = {chosen} (sites hand out sealed envelopes only; set it to embedded or mpspdz)": chosen
        in ("plaintext", "masking"),
        f"clients.partition = {config.clients.partition} (sites bring graphs of their own; set it to own)": (
            config.clients.partition != "own"
        ),
        f"federation.sampling = {config.federation.sampling} (a site takes part once in a round)": (
            config.federation.sampling == "with_replacement"
        ),
        f"evaluation.where = {evaluation.where} (nobody holds the whole graph; set it to clients or nowhere)": (
            evaluation.where == "whole_graph"
        ),
        f"model.name = {config.model.name} (its code is in no message)": config.model.name == "own",
        f"method.name = {config.method.name} (nothing is aggregated)": method.rule is None,
        f"method.name = {config.method.name} ({method.unaccounted})": bool(method.unaccounted),
    }
    if found := [setting for setting, is_wrong in wrong.items() if is_wrong]:
        raise ConfigError(f"clients that are sites do not go with {'; '.join(found)}")
