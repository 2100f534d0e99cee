"""Which columns are features, and their numbers; what is no number is told column by column, with what can be done."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.config import ColumnsConfig
from orchestrator.graphs.cells import as_numbers, as_text, in_order, missing_cells
from orchestrator.graphs.faults import Faults
from orchestrator.graphs.node_table import Table
from orchestrator.graphs.text_files import listed

__all__ = ["Features", "read_feature_columns"]

_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T].*)?")
_COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")
_MOST_VALUES = 100
"""Of a column that becomes a feature for each."""


@dataclass(frozen=True)
class Features:
    """float32 (n, f), finite, with the columns' names, and how many cells of each column were missing."""

    features: np.ndarray = field(repr=False)
    names: tuple[str, ...]
    imputed: dict[str, int]
    notes: tuple[str, ...]


def read_feature_columns(
    table: Table,
    config: ColumnsConfig,
    owner: np.ndarray | None,
    faults: Faults,
    decimal: str = ".",
    without: Collection[str | None] = (),
    predicting: Collection[str] | None = None,
) -> Features | None:
    """All columns that mean nothing else, or those that are named. Returns None, with faults, where it cannot be.

    Args:
        owner: of each row, whose own numbers a mean is over; None: all rows.
        without: further columns that are none.
        predicting: features of the model that is to predict; a value of ``one_hot`` may be in training's files only.
    """
    frame, before = table.frame, Faults()
    columns = [column for column in _chosen(frame, config) if column not in without]
    if not columns:
        others = in_order({*frame.columns} - set(columns))
        faults.add(f"{table.source}: no feature columns are left beside {listed(others, 10)}")
        return None
    parts: list[np.ndarray] = []
    names: list[str] = []
    imputed: dict[str, int] = {}
    for column in columns:
        missing = missing_cells(frame[column], config.missing)
        if column in config.one_hot:
            texts = as_text(frame[column])
            found = {text for text, gap in zip(texts, missing, strict=True) if not gap}
            before_value = f"{column}="
            found |= {name.removeprefix(before_value) for name in predicting or () if name.startswith(before_value)}
            values = in_order(found)
            if len(values) > _MOST_VALUES:
                before.add(
                    f"{table.source}: column {column!r}: has {len(values)} values, of which data.files.one_hot would "
                    f"make as many features; expected at most {_MOST_VALUES}; drop it",
                    drop=(column,),
                )
                continue
            place = {value: k for k, value in enumerate(values)}
            spread = np.zeros((len(frame), len(values)), np.float32)
            known = np.flatnonzero(~missing)
            spread[known, [place[texts[row]] for row in known]] = 1
            parts.append(spread)
            names += [f"{column}={value}" for value in values]
            continue
        numbers = as_numbers(frame[column], missing, decimal)
        wrong = ~np.isfinite(numbers) & ~missing
        if wrong.any():
            complaint, cures = _complaint(table, column, wrong, decimal)
            before.add(f"{table.source}: column {column!r}: {complaint}", **cures)
            continue
        if config.features is None and predicting is None and _counts_rows(numbers):
            before.add(
                f"{table.source}: column {column!r}: numbers the rows; drop it, or name it in data.files.features if "
                "it is one",
                drop=(column,),
            )
            continue
        if missing.any():
            row = int(np.flatnonzero(missing)[0])
            if config.impute is None:
                before.add(
                    f"{table.source}: column {column!r}: {int(missing.sum())} of {len(frame)} numbers are missing, the "
                    f"first in {table.row(row)}; data.files.impute fills them in (mean, median, zero), or drop it",
                    impute="median",
                )
                continue
            imputed[column] = int(missing.sum())
            numbers = _filled_in(numbers, missing, config.impute, owner)
        parts.append(numbers.astype(np.float32)[:, None])
        names.append(column)
    faults.take(before)
    if before or not parts:
        return None
    notes = [f"filled in {count} missing cells of {column!r} ({config.impute})" for column, count in imputed.items()]
    return Features(np.concatenate(parts, axis=1), tuple(names), imputed, tuple(notes))


def _chosen(frame: pd.DataFrame, config: ColumnsConfig) -> list[str]:
    """In the table's order."""
    if config.features is not None:
        return [column for column in frame.columns if column in (*config.features, *config.one_hot)]
    other = {config.id, config.label, config.client, config.split, *config.drop}
    other |= {config.sensitive} - set(config.one_hot)
    return [column for column in frame.columns if column not in other]


def _complaint(table: Table, column: str, wrong: np.ndarray, decimal: str) -> tuple[str, dict[str, Any]]:
    """Why a column is no feature and what can be done, in words and as settings."""
    series, drop = table.frame[column], {"drop": (column,)}
    if series.dtype.kind in "mM":
        return f"holds dates ({series.dtype}); drop it, or write what matters of them as a number", drop
    if series.dtype.kind == "c":
        return "holds complex numbers; expected real ones, or drop it", drop
    texts = as_text(series)
    rows = np.flatnonzero(wrong)
    values = in_order({texts[row] for row in rows})
    if all(_DATE.fullmatch(value) for value in values):
        return f"holds dates, such as {values[0]!r}; drop it, or write what matters of them as a number", drop
    if decimal == "." and all(_COMMA.fullmatch(value) for value in values):
        told = f"holds numbers with decimal commas, such as {values[0]!r}; data.files.decimal: ',' reads them"
        return told, {"decimal": ","}
    at = f"such as {texts[rows[0]]!r} in {table.row(int(rows[0]))}"
    if all(_is_large(value) for value in values):
        return f"{len(rows)} numbers are infinite or beyond 3.4e38, {at}; correct them, or drop it", drop
    if 2 * len(rows) <= len(texts):
        listing = f"{at}; correct them, name them in data.files.missing if they stand for nothing, or drop it"
        return f"{len(rows)} of {len(texts)} are no number, {listing}", drop
    told = f"holds text of {len(values)} {'value' if len(values) == 1 else 'values'}, {at}"
    if len(values) > _MOST_VALUES or len(values) == len(texts):
        return f"{told}; drop it", drop
    return f"{told}; data.files.one_hot makes a feature of each, or drop it", {"one_hot": (column,)}


def _is_large(text: str) -> bool:
    try:
        return not abs(float(text)) <= float(np.finfo(np.float32).max) and text.strip("+-").lower() != "nan"
    except ValueError:
        return False


def _counts_rows(numbers: np.ndarray) -> bool:
    steps = np.arange(len(numbers))
    return len(numbers) > 2 and (np.array_equal(numbers, steps) or np.array_equal(numbers, steps + 1))


def _filled_in(numbers: np.ndarray, missing: np.ndarray, how: str, owner: np.ndarray | None) -> np.ndarray:
    """0 where nobody has a number to take the mean of."""
    filled = np.where(missing, 0.0, numbers)
    groups: Sequence[np.ndarray] = [np.ones(len(numbers), bool)]
    if owner is not None:
        groups = [owner == k for k in range(int(owner.max(initial=0)) + 1)]
    for members in groups:
        known = numbers[members & ~missing]
        if how != "zero" and len(known):
            filled[members & missing] = known.mean() if how == "mean" else np.median(known)
    return filled
