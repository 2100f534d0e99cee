"""What validation finds wrong with a run's settings, in one line that names every setting at fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from orchestrator import section as sections
from orchestrator.config.method import MethodSettings, method_name, methods_with, settings_class
from orchestrator.section import Section, closest

__all__ = ["in_one_line"]


def in_one_line(error: ValidationError, root: type[Section], tree: Mapping[str, Any]) -> str:
    """The faults, one after the other.

    Args:
        error: of the validation of `tree`.
        root: the section that the whole tree is.
        tree: plain values.
    """
    return sections.in_one_line(error, lambda path: _unknown(path, root, method_name(tree)))


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
    return f"unknown setting{whose}{closest(setting, section)}"
