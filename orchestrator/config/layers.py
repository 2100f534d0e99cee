"""Layers of settings, later ones win: the defaults, each preset in order, a YAML file, and all ``--set`` together.

A shipped preset may lie on others, which it names under ``presets``. What happens when a layer names another method is
said in `orchestrator.config.merging`.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from difflib import get_close_matches
from functools import cache
from importlib import resources
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

from orchestrator.config.merging import lay, merge
from orchestrator.config.sections import DataConfig
from orchestrator.config.tree import Config, validated
from orchestrator.errors import ConfigError
from orchestrator.yaml_text import parse

__all__ = ["load_config", "merged_layers", "preset_names", "preset_summaries"]


def preset_names() -> list[str]:
    """Names of the presets that ship with the package; parts of presets, whose files begin with _, are none."""
    folder = resources.files("orchestrator") / "presets"
    names = (entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return sorted(name for name in names if not name.startswith("_"))


def preset_summaries() -> dict[str, str]:
    """What each preset, or the one that it lies upon, says of itself at its beginning, in one sentence."""
    return {name: _summary(name) for name in preset_names()}


def _summary(name: str) -> str:
    text = _preset_text(name)
    said = " ".join(line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), text.splitlines()))
    below = _preset_layer(name).get("presets", ())
    return said.split(". ")[0].rstrip(".") or (_summary(below[0]) if below else "")


def load_config(presets: Sequence[str] = (), file: Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """Merge the layers and validate the result.

    Args:
        presets: names of shipped presets, e.g. ``("nba", "reference")``.
        file: a YAML file with any part of the tree.
        overrides: ``"federation.rounds=50"``; the value is read as YAML.

    Raises:
        ConfigError: naming the layer and the setting at fault.
    """
    return validated(merged_layers(presets, file, overrides))


def merged_layers(
    presets: Sequence[str] = (), file: Path | None = None, overrides: Sequence[str] = ()
) -> dict[str, Any]:
    """What `load_config` validates, of plain values. Raises ConfigError for a layer that cannot be read."""
    merged: dict[str, Any] = {}
    for name in presets:
        if name not in preset_names():
            raise ConfigError(_no_preset(name))
        lay(merged, _preset(name))
    if file is not None:
        try:
            text = file.expanduser().read_text(encoding="utf-8-sig")
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a ~ that is nobody's
            raise ConfigError(f"{file}: cannot be read as a configuration: {error}") from error
        lay(merged, _layer(text, str(file)))
    lay(merged, _overriding(overrides))
    return merged


def _no_preset(name: str) -> str:
    """What to say of a name that no preset has."""
    names = preset_names()
    if name in get_args(DataConfig.model_fields["name"].annotation):
        using = [preset for preset in names if f"-{name}-" in preset]
        presets = f", or take a preset that trains on it: {', '.join(using[:3])}, ..." if using else ""
        return f"unknown preset '{name}'; {name} is a data set: --set data.name={name}{presets}"
    if close := get_close_matches(name, names, 3):
        return f"unknown preset '{name}' (did you mean {' or '.join(close)}?)"
    return f"unknown preset '{name}'; there are: {', '.join(names)}"


def _overriding(overrides: Sequence[str]) -> dict[str, Any]:
    """All ``--set`` as one layer: in which order a command names a method and sets its settings makes no difference."""
    together: dict[str, Any] = {}
    for override in overrides:
        path, equals, value = override.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise ConfigError(f"--set {override}: expected name=value, e.g. federation.rounds=50")
        tree = parse(value, f"--set {override}")
        for key in reversed(keys):
            tree = {key: tree}
        merge(together, tree)
    return together


def _preset_text(name: str) -> str:
    return (resources.files("orchestrator") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")


@cache
def _preset_layer(name: str) -> dict[str, Any]:
    """What a preset's own file says; parsed once, not to be changed."""
    return _layer(_preset_text(name), f"preset {name}")


def _preset(name: str) -> dict[str, Any]:
    """A shipped preset upon those that it names under ``presets``."""
    own = deepcopy(_preset_layer(name))
    merged: dict[str, Any] = {}
    for below in own.pop("presets", ()):
        lay(merged, _preset(below))
    lay(merged, own)
    return merged


def _layer(text: str, where: str) -> dict[str, Any]:
    tree = parse(text, where)
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{where}: expected a mapping of sections, e.g. 'federation: {{rounds: 50}}'")
    return tree
