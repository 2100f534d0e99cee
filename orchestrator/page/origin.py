"""How a run can be made again: the shipped presets that are nearest to its settings, and what differs from them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.config import DEFAULT_METHOD, Config, load_config, merged_layers, preset_names
from orchestrator.errors import SafeGNNError
from orchestrator.page.arms import leaves
from orchestrator.yaml_text import parse

__all__ = ["Origin", "Setting", "origin", "settings"]

_LAYERS = ("fair", "paper", "reference")
"""Presets that are meant to lie upon others."""

_MOST = 15


class Origin(NamedTuple):
    """Attributes: presets: from which; changed: by name, what the presets have and the run has; command: in a shell."""

    presets: tuple[str, ...]
    changed: dict[str, tuple[Any, Any]]
    command: str


class Setting(NamedTuple):
    """One row of the reference. Attributes: changed: it is not the default."""

    name: str
    value: str
    default: str
    meaning: str
    changed: bool


@lru_cache(maxsize=256)
def _layers(presets: tuple[str, ...]) -> dict[str, Any]:
    return leaves(merged_layers(presets))


def origin(config: Config, path: Path) -> Origin:
    """The nearest presets, at most two. A command is only given that makes the same settings, which is tried."""
    tree = leaves(config.model_dump(mode="json"))
    named = [name for name in preset_names() if name not in _LAYERS]
    apart = {(name,): _apart(tree, _layers((name,))) for name in named}
    near: list[tuple[str, ...]] = [(), *sorted(apart, key=lambda presets: apart[presets])[:2]]
    best = min((_changed(config, tree, presets) for presets in near), key=_length)
    layered = [(*best[0], layer) for layer in _LAYERS] if best[0] and best[1] else []
    found = min([best, *(_changed(config, tree, presets) for presets in layered)], key=_length)
    presets, changed = found
    sets = [f"{name}={_yaml(now)}" for name, (_, now) in changed.items()]
    words = ["safegnn", "train", *[word for name in presets for word in ("--preset", name)]]
    words += [word for each in sets for word in ("--set", each)]
    command = " ".join(map(shlex.quote, words))
    if config.data.name == "own" or config.clients.partition == "own" or config.model.name == "own":
        command = "(graph, clients or module were given in Python, and no command makes them again)"
    elif len(sets) > _MOST or not _same(config, presets, sets):
        command = f"safegnn train --config {shlex.quote(str(path / 'config.yaml'))}"
    return Origin(presets, changed, command)


def settings(config: Config) -> dict[str, list[Setting]]:
    """By section, every setting with its meaning."""
    found: dict[str, list[Setting]] = {}
    _section(config, "", found)
    return {name: rows for name, rows in found.items() if rows}


def _section(section: Any, prefix: str, found: dict[str, list[Setting]]) -> None:
    rows = found.setdefault(prefix.rstrip(".") or "the run", [])
    inner = type(section).inner()
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if name in inner or hasattr(value, "model_fields"):
            if value is not None:
                _section(value, f"{prefix}{name}.", found)
            continue
        required = field.is_required()
        default = None if required else field.get_default(call_default_factory=True)
        shown = "–" if required else _plain(default)
        rows.append(Setting(prefix + name, _plain(value), shown, field.description or "", _plain(value) != shown))


def _apart(tree: Mapping[str, Any], layer: Mapping[str, Any]) -> int:
    """How much of a preset a run does not have, less what it has."""
    return sum(1 if _plain(tree.get(name)) != _plain(value) else -1 for name, value in layer.items())


def _changed(
    config: Config, tree: Mapping[str, Any], presets: tuple[str, ...]
) -> tuple[tuple[str, ...], dict[str, tuple[Any, Any]]]:
    method = config.method.name
    try:
        named = load_config(presets, overrides=[f"method.name={json.dumps(method)}"])
    except SafeGNNError:  # the presets do not go together, or not with the method
        return presets, {name: ("–", value) for name, value in tree.items()}
    base, own = leaves(named.model_dump(mode="json")), _layers(presets).get("method.name", DEFAULT_METHOD)
    names = {} if own == method else {"method.name": own}
    changed = {name: (was, tree[name]) for name, was in names.items()}
    for name, value in tree.items():
        if not name.startswith("run.") and name not in changed and base.get(name) != value:
            changed[name] = (base.get(name), value)
    return presets, changed


def _length(found: tuple[tuple[str, ...], dict[str, tuple[Any, Any]]]) -> int:
    """How long the command is."""
    return len(found[0]) + len(found[1])


def _same(config: Config, presets: tuple[str, ...], sets: list[str]) -> bool:
    try:
        made = load_config(presets, overrides=[*sets, f"run.dir={json.dumps(str(config.run.dir))}"])
    except SafeGNNError:
        return False
    return made.model_copy(update={"run": config.run}) == config


def _yaml(value: Any) -> str:
    """As `--set` reads it; a name needs no quotes."""
    if isinstance(value, str) and re.fullmatch(r"[a-z][a-z_0-9+-]{3,}", value) and parse(value, "") == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        value = list(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
