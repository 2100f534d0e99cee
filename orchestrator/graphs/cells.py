"""Cells of tables as text and as numbers, whatever type a column has."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["as_numbers", "as_text", "closest", "in_order", "meant", "missing_cells", "whole"]

_WHOLE = re.compile(r"[-+]?\d+(\.0*)?([eE][-+]?\d+)?|[-+]?\d*\.\d+[eE]\+?\d+")
_EXACT = 2**53


def whole(text: str) -> str:
    """A whole number in any notation, 3.0 or 8.38e+02, as its digits; other text, and what begins with 0, as it is.

    Beyond 2^53 only digits are exact, so that other notations are left as they are.
    """
    if text.isdigit() or not _WHOLE.fullmatch(text):
        return text
    value = float(text)
    return str(int(value)) if abs(value) <= _EXACT and value.is_integer() else text


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float | np.floating):
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) <= _EXACT else str(value)
    return str(value)


def as_text(column: pd.Series) -> list[str]:
    """Empty where there is none; 1.0 and 1, which a column with gaps turns one into, are the same."""
    gaps = column.isna()
    return ["" if gap else _written(value) for value, gap in zip(column.tolist(), gaps, strict=True)]


def missing_cells(column: pd.Series, tokens: Collection[str]) -> np.ndarray:
    """bool, shape (n,)."""
    gaps = column.isna().to_numpy(bool)
    if column.dtype.kind in "biufmM":
        return gaps
    return gaps | np.array([isinstance(value, str) and value.strip() in tokens for value in column], bool)


def as_numbers(column: pd.Series, missing: np.ndarray, decimal: str) -> np.ndarray:
    """float64, shape (n,), NaN where there is none; what is neither a number nor missing is NaN too.

    True and false are 1 and 0. Numbers too large for float32 are infinite.
    """
    if column.dtype.kind in "mMc":  # times would pass for numbers
        return np.full(len(column), np.nan)
    if column.dtype.kind not in "biuf":
        texts = ["" if gap else _written(value) for value, gap in zip(column.tolist(), missing, strict=True)]
        if {text.lower() for text in texts} <= {"true", "false", ""}:
            texts = [{"true": "1", "false": "0"}.get(text.lower(), "") for text in texts]
        if decimal != ".":
            texts = [text.replace(decimal, ".") if text.count(decimal) == 1 else text for text in texts]
        column = pd.Series(texts, dtype=object)
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan).copy()
    numbers[missing] = np.nan
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32).astype(np.float64)


def in_order(values: Collection[str]) -> list[str]:
    """As numbers if all are numbers, else as text."""
    try:
        return sorted(values, key=lambda text: (float(text), text))
    except ValueError:
        return sorted(values)


def closest(name: str, among: Collection[str]) -> str | None:
    """What may be meant by a name that is not there; None: nothing is like it."""
    close = next((known for known in among if known.strip().casefold() == name.strip().casefold()), None)
    return close or next(iter(get_close_matches(name, among, 1)), None)


def meant(name: str, among: Collection[str]) -> str:
    """`` (did you mean 'Label'?)``, or nothing."""
    close = closest(name, among)
    return f" (did you mean {close!r}?)" if close is not None else ""
