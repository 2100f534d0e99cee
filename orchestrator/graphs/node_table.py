"""A table of nodes, and where each row of it stands."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

__all__ = ["Table"]


@dataclass(frozen=True)
class Table:
    """A table of nodes, from one or several files of equal columns.

    Attributes:
        frame: a row a node.
        parts: for each file its name and how many rows it has, in the order of the rows.
        ids: of the nodes, where they are no column, such as in GraphML; None: rows are counted from 0.
        owners: the client of each row, where files belong to clients.
    """

    frame: pd.DataFrame = field(repr=False)
    parts: tuple[tuple[str, int], ...]
    ids: list[str] | None = field(default=None, repr=False)
    owners: list[str] | None = field(default=None, repr=False)

    @property
    def source(self) -> str:
        return self.parts[0][0] if len(self.parts) == 1 else f"{self.parts[0][0]} and {len(self.parts) - 1} more"

    def row(self, index: int) -> str:
        """``row 7``, counted from 1 below the header, of the file that holds it."""
        for source, count in self.parts:
            if index < count:
                return f"row {index + 1}" + (f" of {source}" if len(self.parts) > 1 else "")
            index -= count
        raise IndexError(index)
