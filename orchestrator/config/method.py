"""The section `method`: whose settings it holds is the method's own business, and found by the method's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from orchestrator.config.sections import ModelConfig
from orchestrator.registry import METHODS, load
from orchestrator.section import Section
from orchestrator.secure_sum import SecureSum

__all__ = ["DEFAULT_METHOD", "MethodSettings", "method_name", "methods_with", "settings_class"]

DEFAULT_METHOD = "f2gnn"


class MethodSettings(Section):
    """What a client does locally, and which rule aggregates. Every method's settings are a class of its own."""

    name: str = Field(description=f"one of {', '.join(METHODS)}")

    def rule_parameters(self, model: ModelConfig) -> Mapping[str, Any]:
        """What the method's aggregation rule has as public parameters; here none.

        Args:
            model: the network that clients train.

        Returns:
            Fields of `mpc_programs.rules.RoundParameters`.
        """
        return {}

    def statistics(self) -> Sequence[SecureSum]:
        """What clients add up on shares besides the model, one sum after the other; here nothing."""
        return ()

    def answers(self) -> SecureSum | None:
        """What clients add up on shares in each step of their preparation: their answers to everybody's questions.

        The numbers are the answers to client 0, to client 1, and so on. None: nothing is answered.
        """
        return None


def settings_class(name: str) -> type[MethodSettings]:
    """The class of a method's settings; imports it, which may import what it pleases."""
    return load(METHODS[name].settings)


def method_name(tree: Mapping[str, Any], default: str = DEFAULT_METHOD) -> Any:
    """What a tree of plain values gives as `method.name`; the default where it gives none."""
    section = tree.get("method")
    return section.get("name", default) if isinstance(section, Mapping) else default


def methods_with(setting: str) -> list[str]:
    """The methods that know a setting, by its name within `method`."""
    return [name for name in METHODS if setting in settings_class(name).model_fields]
