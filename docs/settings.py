"""Writes `settings.md` beside this file, the reference of every setting: `python docs/settings.py`.

Everything in it comes from the classes of the configuration, so that the page says what a run accepts. A test compares.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from orchestrator.config import DEFAULT_METHOD, Config, MethodSettings, Section, settings_class
from orchestrator.registry import METHODS

PAGE = Path(__file__).with_suffix(".md")

_HEAD = """# Settings

Every setting, generated from the classes in `orchestrator.config` by `python docs/settings.py`; do not edit it here.

A setting is given as `--set name=value` or in a YAML file for `--config`; `safegnn train --help` says what else there
is. Later layers win: defaults, presets in their order, the file, all `--set` together. Unknown settings are refused,
and so are those that do not fit together, with a message that names them. Units stand in the names; numbers without one
are dimensionless. "of ego", "of sage" and the like: without effect unless that is chosen.
"""

_METHODS = """\
Settings of another method are refused, with the name of the method that knows them. Where a layer names another method
than the layers below it, what those say for the former method ends there, except what the new one knows too: with
`--preset nba --set method.name=fedavg` FedAvg takes over the preset's `local_epochs`, and the preset's `tau`, which is
F2GNN's alone, is dropped. A `tau` in the layer that names FedAvg, or in a later one, is refused; so is, in any layer,
what neither method knows.
"""

_NAMES = {int: "whole number", float: "number", str: "text", Path: "path", bool: "`true` or `false`"}
_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def reference() -> str:
    """The page."""
    return "\n".join([_HEAD, *_section("", Config)])


def _section(prefix: str, model: type[Section], title: str = "", without: Container[str] = ()) -> Iterator[str]:
    """The table of a section's own settings, then the sections in it."""
    inner = model.inner()
    if prefix:
        yield f"## {title or prefix[:-1]}\n"
        yield f"{' '.join((model.__doc__ or '').replace('``', '`').split())}\n"
    if model is MethodSettings:
        yield _METHODS
    yield "| setting | value | default | meaning |\n|---|---|---|---|"
    for name, field in model.model_fields.items():
        if name not in inner and name not in without:
            cells = (
                f"`{prefix}{name}`",
                _value(field.annotation, field.metadata),
                f"`{DEFAULT_METHOD}`" if model is MethodSettings else _default(field),
                field.description or "",
            )
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""
    for name, own in inner.items():
        yield from _section(f"{prefix}{name}.", own)
    if model is MethodSettings:
        classes: dict[type[MethodSettings], list[str]] = {}
        for name in METHODS:
            classes.setdefault(settings_class(name), []).append(name)
        for own, names in classes.items():
            yield from _section(prefix, own, f"method: {', '.join(names)}", MethodSettings.model_fields)


def _value(kind: Any, limits: list[Any]) -> str:
    """What may be given, in words."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _value(parts[0], [limit for field in parts[1:] for limit in getattr(field, "metadata", [field])])
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in parts)
    if origin in (Union, UnionType):
        several = [_value(part, limits) for part in parts if part is not NoneType]
        return " or ".join(several + ["`null`"] * (NoneType in parts))
    if origin is tuple:
        length = "" if parts[-1] is Ellipsis else f" of {len(parts)}"
        return f"list{length}: {_value(parts[0], [])}"
    bounds = [
        f"{sign} {_number(getattr(limit, name))}"
        for limit in limits
        for name, sign in _BOUNDS.items()
        if hasattr(limit, name)
    ]
    return " ".join([_NAMES[kind], ", ".join(bounds)]).strip()


def _default(field: FieldInfo) -> str:
    return "must be given" if field.is_required() else f"`{_yaml(field.default)}`"


def _yaml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _number(value) if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
