"""What a party prints, turned into costs; parsed strictly, because a figure that is guessed is worse than none."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["PartyCost", "parse_cost"]

_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"
_TRAFFIC = rf"(?: \({_NUMBER} MB, ([0-9]+) rounds\))?"  # left out where there was none
_SPENT = re.compile(
    rf"^Spent {_NUMBER} seconds{_TRAFFIC} on the online phase and "
    rf"{_NUMBER} seconds{_TRAFFIC} on the preprocessing/offline phase\.$",
    re.MULTILINE,
)
_TIME = re.compile(rf"^Time = {_NUMBER} seconds ?$", re.MULTILINE)
_SETUP = re.compile(rf"^Setup took {_NUMBER} seconds\.$", re.MULTILINE)


@dataclass(frozen=True)
class PartyCost:
    """One party's own figures. Megabytes are 10^6 bytes, as MP-SPDZ prints them.

    Attributes:
        online_seconds, online_bytes, online_rounds: bytes are those that this party sent; rounds as MP-SPDZ counts
            them, sending and receiving apart, so that a simultaneous exchange counts twice.
        preprocessing_seconds, preprocessing_bytes: the same of its offline phase.
        total_seconds: of the program, without setup.
        setup_seconds: connections and base transfers.
    """

    online_seconds: float
    online_bytes: int
    online_rounds: int
    preprocessing_seconds: float
    preprocessing_bytes: int
    total_seconds: float
    setup_seconds: float


def parse_cost(text: str) -> PartyCost:
    """The costs in a party's output with `-v`.

    Raises:
        ValueError: a line is missing or stands more than once.
    """
    spent, time = _only(_SPENT, text, "Spent ... on the online phase"), _only(_TIME, text, "Time = ...")
    setup = _only(_SETUP, text, "Setup took ...")
    return PartyCost(
        online_seconds=float(spent[0]),
        online_bytes=round(1e6 * float(spent[1])),
        online_rounds=int(spent[2]),
        preprocessing_seconds=float(spent[3]),
        preprocessing_bytes=round(1e6 * float(spent[4])),
        total_seconds=float(time[0]),
        setup_seconds=float(setup[0]),
    )


def _only(pattern: re.Pattern[str], text: str, name: str) -> tuple[str, ...]:
    found = list(pattern.finditer(text))
    if len(found) != 1:
        raise ValueError(f"expected one line '{name}' in the party's output, found {len(found)}")
    return found[0].groups(default="0")
