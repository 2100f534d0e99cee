"""What the numbers of a graph stand for."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["UNKNOWN", "Meaning"]


@dataclass(frozen=True)
class Meaning:
    """Names, where they are known.

    Attributes:
        features: of all features as they came, in their order; also of those that `Scaling` leaves out.
        labels: by class.
        groups: of group 0 and of group 1.
    """

    features: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


UNKNOWN = Meaning()
"""Of a graph whose numbers have no names."""
