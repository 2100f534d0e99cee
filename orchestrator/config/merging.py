"""How a layer of settings comes to lie upon others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.config.method import method_name, settings_class
from orchestrator.registry import METHODS

__all__ = ["lay", "merge"]


def lay(tree: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Put a layer upon a tree of plain values, in place: what the layer gives wins, setting by setting.

    A layer that names another method than the tree has so far is also the end of those settings in the tree that the
    former method knows and the new one does not: they were meant for the former. What neither knows stays, for
    validation to refuse.
    """
    before = method_name(tree)
    after = method_name(layer, before)
    section = tree.get("method")
    if isinstance(section, dict) and after != before and _registered(before) and _registered(after):
        left_behind = settings_class(before).model_fields.keys() - settings_class(after).model_fields.keys()
        for setting in left_behind & section.keys():
            del section[setting]
    merge(tree, layer)


def _registered(name: Any) -> bool:
    return isinstance(name, str) and name in METHODS


def merge(base: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Replace the settings that the layer gives, in place; the layer stays as it is."""
    for key, value in layer.items():
        if isinstance(value, Mapping):
            if not isinstance(base.get(key), dict):
                base[key] = {}
            merge(base[key], value)
        else:
            base[key] = value
