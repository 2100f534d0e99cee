"""Dataclasses from plain values that came from outside: exactly their fields, each of its annotated type."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from orchestrator.errors import SafeGNNError

__all__ = ["LARGEST", "record"]

LARGEST = 2**40
"""Integers are below: rounds, clients, slots, lengths."""


def record(kind: type[Any], found: Any, name: str) -> Any:
    """An instance of a dataclass from a map of its fields.

    Integers count from zero, floats are finite, text, bytes and flags are just that; lists stand for tuples too. A
    field that is a dataclass is a map in turn.

    Args:
        name: what messages call it.

    Raises:
        ValueError: naming the field that is missing, unknown, or of another type or range.
    """
    hints = _hints(kind)  # type: ignore[arg-type]
    if not isinstance(found, dict) or found.keys() != hints.keys():
        raise ValueError(f"'{name}' with other fields than {', '.join(hints)}")
    values = {field: _value(hint, found[field], name, field) for field, hint in hints.items()}
    try:
        return kind(**values)
    except SafeGNNError as error:
        raise ValueError(f"'{name}' with values that do not fit: {error}") from None


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _value(hint: Any, found: Any, name: str, field: str) -> Any:
    kind, parts = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return record(hint, found, f"{name}.{field}")  # type: ignore[arg-type]
    if isinstance(hint, UnionType):  # something, or None
        [wanted] = [part for part in parts if part is not NoneType]
        return None if found is None else _value(wanted, found, name, field)
    if kind in (tuple, list) and isinstance(found, list | tuple):
        several = kind is list or parts[-1] is Ellipsis
        if several or len(found) == len(parts):
            wanted = [parts[0]] * len(found) if several else parts
            return kind(_value(part, item, name, field) for part, item in zip(wanted, found, strict=True))
    elif kind is dict and isinstance(found, dict):
        of_key, of_value = parts
        return {_value(of_key, k, name, field): _value(of_value, v, name, field) for k, v in found.items()}
    elif kind in (None, Literal) and _fits(hint, found):
        return found
    raise ValueError(f"'{name}' with a field '{field}' of another type or range")


def _fits(hint: Any, found: Any) -> bool:
    if get_origin(hint) is Literal:
        return isinstance(found, str) and found in get_args(hint)
    if hint is int:
        return type(found) is int and 0 <= found < LARGEST  # not isinstance, as a bool is an int
    if hint is float:
        return type(found) in (int, float) and abs(found) < math.inf
    return isinstance(found, hint)
