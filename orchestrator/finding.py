"""What `safegnn doctor` finds: a row for each thing it looks at."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Finding"]


@dataclass(frozen=True)
class Finding:
    """One row.

    Attributes:
        what: the thing looked at.
        state: "ok", "warning" (may work), "fault" (cannot work) or "unknown" (cannot be seen).
        detail: what was found.
        cure: what to do; empty where nothing is needed.
    """

    what: str
    state: str
    detail: str
    cure: str = ""
