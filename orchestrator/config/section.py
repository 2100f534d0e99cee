"""What every section of the settings is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

__all__ = ["Section"]


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

    @classmethod
    def inner(cls) -> dict[str, type[Section]]:
        """The sections in this one, by name."""
        kinds = {name: [field.annotation, *get_args(field.annotation)] for name, field in cls.model_fields.items()}
        sections = ((name, kind) for name, several in kinds.items() for kind in several if isinstance(kind, type))
        return {name: kind for name, kind in sections if issubclass(kind, Section)}
