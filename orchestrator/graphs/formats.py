"""The raw formats of the named data sets.

| data    | files                                           | id         | label                 | sensitive  |
|---------|-------------------------------------------------|------------|-----------------------|------------|
| pokec-z | `region_job.csv`, `region_job_relationship.txt` | user_id    | I_am_working_in_field | region     |
| pokec-n | the same with `region_job_2`                    | user_id    | I_am_working_in_field | region     |
| nba     | `nba.csv`, `nba_relationship.txt`               | user_id    | SALARY                | country    |
| german  | `german.csv`, `german_edges.txt`                | row number | GoodCustomer          | Gender     |
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from orchestrator.errors import DataError
from orchestrator.graphs.cleaning import MISSING
from orchestrator.graphs.meaning import Meaning
from orchestrator.graphs.tables import (
    RawGraph,
    numeric,
    present,
    read_edges,
    read_features,
    read_ids,
    read_table,
)

__all__ = ["FAIR_FILES", "FairFiles", "read_fair", "read_german"]


@dataclass(frozen=True)
class FairFiles:
    """Names of one data set in the format of FairGNN's releases."""

    nodes: str
    edges: str
    label: str
    sensitive: str
    id: str = "user_id"


FAIR_FILES = {
    "pokec-z": FairFiles("region_job.csv", "region_job_relationship.txt", "I_am_working_in_field", "region"),
    "pokec-n": FairFiles("region_job_2.csv", "region_job_2_relationship.txt", "I_am_working_in_field", "region"),
    "nba": FairFiles("nba.csv", "nba_relationship.txt", "SALARY", "country"),
}


def read_fair(name: str, folder: Path) -> RawGraph:
    """Pokec-z, Pokec-n or NBA.

    Ids are whole numbers of up to 64 bits. Label: -1 is missing, 0 negative, 1 and more positive. Sensitive: 0, or
    more than 0 for group 1. Features: every other column. Relations: two ids a line, in either or both directions.
    A relation of an id that is not in the table is refused: no release has one, and FairGNN's loader cannot read it.

    Raises:
        DataError: a file is missing or does not hold what the format promises.
    """
    files = FAIR_FILES[name]
    nodes, edges = present(name, folder, files.nodes, files.edges)
    named = (files.id, files.label, files.sensitive)
    frame = read_table(nodes, named)
    rows = read_ids(frame, files.id, nodes, int)
    label = numeric(
        frame, files.label, nodes, lambda x: x >= -1 and x.is_integer(), "-1 (missing), 0 (negative), 1 or more"
    )
    sensitive = numeric(frame, files.sensitive, nodes, lambda x: 0 <= x < np.inf, "0, or more for group 1")
    return RawGraph(
        name,
        read_features(frame, named, nodes),
        np.where(label < 0, MISSING, label > 0).astype(np.int8),
        (sensitive > 0).astype(np.int8),
        read_edges(edges, rows, int),
        f"{nodes}: column {files.label!r}",
        f"{nodes}: column {files.sensitive!r}",
        str(edges),
        meaning=Meaning(_features(frame, named), ("negative", "positive"), ("0", "more than 0")),
        ids=tuple(rows),
    )


def read_german(folder: Path) -> RawGraph:
    """German credit in the format of NIFTY's release.

    The id of a node is its row number from 0, written in the edge list as a float. GoodCustomer is 1 or -1, and here
    -1 is the negative class, not a missing label. Gender is Male (0) or Female (1). As in NIFTY, OtherLoansAtStore and
    PurposeOfLoan are dropped while the sensitive column stays among the features.

    Raises:
        DataError: a file is missing or does not hold what the format promises.
    """
    nodes, edges = present("german", folder, "german.csv", "german_edges.txt")
    dropped = ("GoodCustomer", "OtherLoansAtStore", "PurposeOfLoan")
    frame = read_table(nodes, ("GoodCustomer", "Gender"), dropped)
    label = numeric(frame, "GoodCustomer", nodes, lambda x: x in (-1, 1), "1 (good) or -1 (bad)")
    wrong = np.flatnonzero(~frame["Gender"].isin(["Male", "Female"]))
    if len(wrong):
        got = frame["Gender"].iloc[wrong[0]]
        raise DataError(f"{nodes}: column 'Gender', row {wrong[0] + 1}: expected Male or Female, got {got!r}")
    sensitive = (frame["Gender"] == "Female").to_numpy(np.int8)
    rows: dict[Hashable, int] = {row: row for row in range(len(frame))}
    return RawGraph(
        "german",
        read_features(frame.assign(Gender=sensitive), dropped, nodes),
        (label > 0).astype(np.int8),
        sensitive,
        read_edges(edges, rows, float),  # 838.0 finds the row number 838; both are exact
        f"{nodes}: column 'GoodCustomer'",
        f"{nodes}: column 'Gender'",
        str(edges),
        meaning=Meaning(_features(frame, dropped), ("bad", "good"), ("Male", "Female")),
    )


def _features(frame: pd.DataFrame, exclude: Collection[str]) -> tuple[str, ...]:
    """The columns that `read_features` reads."""
    return tuple(str(column) for column in frame.columns if column not in exclude)
