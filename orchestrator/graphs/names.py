"""What the columns and values of a graph are called where it came from."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["UNNAMED", "Names"]


@dataclass(frozen=True)
class Names:
    """Each may be empty: nobody said.

    Attributes:
        features: of all features as they came, in their order; also of those that `Scaling` leaves out.
        classes: of label 0, 1, ...
        groups: of sensitive value 0, 1.
        sensitive: of the attribute whose values these are.
    """

    features: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    sensitive: str = ""

    def of_classes(self, count: int) -> tuple[str, ...]:
        """One for each of so many classes: numbers where there are no names."""
        return self.classes if len(self.classes) == count else tuple(map(str, range(count)))


UNNAMED = Names()
