"""Every setting, in words: what may be given, what is the default, what it means; from the configuration's classes."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from orchestrator.config.method import DEFAULT_METHOD, MethodSettings, settings_class
from orchestrator.config.tree import Config
from orchestrator.registry import METHODS
from orchestrator.section import Section

__all__ = ["Described", "Setting", "described"]

_NAMES = {int: "whole number", float: "number", str: "text", Path: "path", bool: "`true` or `false`"}
_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


@dataclass(frozen=True)
class Setting:
    """One setting. Attributes: name: dotted; value, default: in Markdown's words."""

    name: str
    value: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Described:
    """A section. Attributes: title: empty of the tree itself; about: what it is; methods: whether it is of all."""

    title: str
    about: str
    settings: tuple[Setting, ...]
    methods: bool = False


def described() -> Iterator[Described]:
    """All sections, each before those in it; those of methods after what all methods have."""
    return _sections("", Config)


def _sections(prefix: str, model: type[Section], title: str = "", without: Container[str] = ()) -> Iterator[Described]:
    inner, method = model.inner(), model is MethodSettings
    about = " ".join((model.__doc__ or "").replace("``", "`").split()) if prefix else ""
    settings = (
        Setting(
            f"{prefix}{name}",
            _value(field.annotation, field.metadata),
            f"`{DEFAULT_METHOD}`" if method else _default(field),
            field.description or "",
        )
        for name, field in model.model_fields.items()
        if name not in inner and name not in without
    )
    yield Described(title or prefix[:-1], about, tuple(settings), method)
    for name, own in inner.items():
        yield from _sections(f"{prefix}{name}.", own)
    if method:
        classes: dict[type[MethodSettings], list[str]] = {}
        for name in METHODS:
            classes.setdefault(settings_class(name), []).append(name)
        for own, names in classes.items():
            yield from _sections(prefix, own, f"method: {', '.join(names)}", MethodSettings.model_fields)


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
