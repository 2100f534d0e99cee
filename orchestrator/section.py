"""What every section of settings is, a run's or a participant's, and what is wrong with one in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

__all__ = ["Section", "closest", "in_one_line"]

_MOST_SHOWN = 200


class Section(BaseModel):
    """Settings that belong together: they cannot be changed, and unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _flags_are_no_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """YAML reads yes, no, on and off as flags, and Python takes those for 1 and 0."""
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation is not bool:
            raise ValueError(f"expected no flag, got {value}; put text in quotes")
        return value

    @field_validator("*")
    @classmethod
    def _paths_from_the_home_folder(cls, value: Any) -> Any:
        if not isinstance(value, Path):
            return value
        try:
            return value.expanduser()
        except RuntimeError:
            raise ValueError(f"{value}: there is no such home folder; write the path out") from None

    def absolute(self, base: Path | None = None) -> Self:
        """The same with absolute paths, which means the same from whatever directory.

        Args:
            base: what relative paths begin at; None: the working directory.
        """
        base, changed = base or Path.cwd(), dict[str, Any]()
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, Path):
                changed[name] = base / value
            elif isinstance(value, Section):
                changed[name] = value.absolute(base)
        return self.model_copy(update=changed)

    @classmethod
    def inner(cls) -> dict[str, type[Section]]:
        """The sections in this one, by name."""
        kinds = {name: [field.annotation, *get_args(field.annotation)] for name, field in cls.model_fields.items()}
        sections = ((name, kind) for name, several in kinds.items() for kind in several if isinstance(kind, type))
        return {name: kind for name, kind in sections if issubclass(kind, Section)}


def in_one_line(error: ValidationError, unknown: Callable[[Sequence[str | int]], str]) -> str:
    """The faults, one after the other, each with the setting's name.

    Args:
        error: of the validation of a section.
        unknown: what to say of a setting that its section does not know, from the way to it.
    """
    return " ".join("; ".join(_line(item, unknown) for item in error.errors()).split())


def closest(setting: str, section: type[Section]) -> str:
    """What an unknown setting of a section may have meant."""
    close = get_close_matches(setting, section.model_fields, 1)
    return f" (did you mean {close[0]}?)" if close else ""


def _line(item: Mapping[str, Any], unknown: Callable[[Sequence[str | int]], str]) -> str:
    where, kind, got = ".".join(str(part) for part in item["loc"]), item["type"], item["input"]
    if kind == "extra_forbidden":
        return f"{where}: {unknown(item['loc'])}"
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
