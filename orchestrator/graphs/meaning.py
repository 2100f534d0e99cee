"""What the numbers of a graph stand for."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["UNKNOWN", "Meaning"]


@dataclass(frozen=True)
class Meaning:
    """Names, where they are known, and what of the data is not in the graph.

    Attributes:
        features: of all features as they came, in their order; also of those that `Scaling` leaves out.
        labels: by class; of several values of one class all, as they stand in the file.
        groups: of group 0 and of group 1.
        clients: by the numbers in a graph's `owner`.
        read: nodes that there were before any went; None: as many as the graph has.
        notes: one line for each kind of thing that was left out.
    """

    features: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    read: int | None = None
    notes: tuple[str, ...] = ()

    def noting(self, *notes: str) -> Meaning:
        """With these notes too, but for empty ones."""
        return replace(self, notes=(*self.notes, *filter(None, notes)))

    @property
    def of_a_part(self) -> Meaning:
        """Of a part of the graph: only names."""
        return replace(self, clients=(), read=None, notes=())


UNKNOWN = Meaning()
"""Of a graph whose numbers have no names."""
