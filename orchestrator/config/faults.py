"""What validation finds wrong, in one line that names every setting at fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from orchestrator.config.method import MethodSettings, method_name, methods_with, settings_class
from orchestrator.config.sections import Section

__all__ = ["in_one_line"]

_MOST_SHOWN = 200


def in_one_line(error: ValidationError, root: type[Section], tree: Mapping[str, Any]) -> str:
    """The faults, one after the other.

    Args:
        error: of the validation of `tree`.
        root: the section that the whole tree is.
        tree: plain values.
    """
    return "; ".join(_line(item, root, tree) for item in error.errors())


def _line(item: Mapping[str, Any], root: type[Section], tree: Mapping[str, Any]) -> str:
    where, kind, got = ".".join(str(part) for part in item["loc"]), item["type"], item["input"]
    if kind == "extra_forbidden":
        return f"{where}: {_unknown(item['loc'], root, method_name(tree))}"
    if kind == "missing":
        return f"{where}: must be given"
    if kind in ("string_type", "path_type"):
        return f"{where}: expected text, got {_short(got)}; put it in quotes"
    message = str(item["msg"]).removeprefix("Value error, ")
    if kind != "value_error":
        return f"{where}: {message}, got {_short(got)}"
    return message if not where or message.startswith(f"{where}.") else f"{where}: {message}"


def _short(value: Any) -> str:
    """As Python writes it, of which a line shows the beginning."""
    try:
        text = repr(value)
    except ValueError:  # a number of too many digits
        return "a number of thousands of digits"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _unknown(path: Sequence[str | int], root: type[Section], method: str) -> str:
    """What to say of a setting that its section does not know."""
    *above, setting = map(str, path)
    section = root
    for name in above:
        section = section.inner()[name]
        section = settings_class(method) if section is MethodSettings else section
    if above == ["method"] and (others := methods_with(setting)):
        return f"a setting of {', '.join(others)}; {method} does not know it"
    whose = f" of {method}" if above[:1] == ["method"] else ""
    close = get_close_matches(setting, section.model_fields, 1)
    return f"unknown setting{whose}" + (f" (did you mean {close[0]}?)" if close else "")
