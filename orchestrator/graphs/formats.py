"""The raw formats of the named data sets, and the generic pair of files.

| data    | files                                           | id         | label                 | sensitive  |
|---------|-------------------------------------------------|------------|-----------------------|------------|
| pokec-z | `region_job.csv`, `region_job_relationship.txt` | user_id    | I_am_working_in_field | region     |
| pokec-n | the same with `region_job_2`                    | user_id    | I_am_working_in_field | region     |
| nba     | `nba.csv`, `nba_relationship.txt`               | user_id    | SALARY                | country    |
| german  | `german.csv`, `german_edges.txt`                | row number | GoodCustomer          | Gender     |
| csv     | as `data.csv` says                              | any text   | two values            | two values |
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from orchestrator.config import CsvConfig
from orchestrator.errors import DataError
from orchestrator.graphs.cleaning import MISSING
from orchestrator.graphs.meaning import Meaning
from orchestrator.graphs.tables import (
    RawGraph,
    coded,
    numeric,
    present,
    read_edges,
    read_features,
    read_ids,
    read_table,
    value_names,
)

__all__ = ["FAIR_FILES", "FairFiles", "read_csv", "read_fair", "read_german"]


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


def read_csv(config: CsvConfig, folder: Path | None, labelled: bool = True) -> RawGraph:
    """A node table and an edge list of the user's own; see `CsvConfig`.

    Ids are text and must be written alike in both files. Of the two values of a label or sensitive column the smaller
    is 0 and the larger 1. Every column but id, label, sensitive and `config.drop` is a feature.

    Args:
        folder: what relative paths are relative to; None: the working directory.
        labelled: whether to read labels and the sensitive attribute; else, as where nodes are only predicted, their
            columns, and those that are dropped, may be missing and hold anything.

    Raises:
        DataError: a file is missing or does not hold what was described.
    """
    nodes, edges = ((folder or Path()) / path for path in (config.nodes, config.edges))
    for path, setting in ((nodes, "data.csv.nodes"), (edges, "data.csv.edges")):
        if not path.is_file():
            raise DataError(f"{path}: no such file; {setting} must name one")
    named = (config.id, config.label, config.sensitive)
    exclude = (*named, *config.drop)
    frame = read_table(nodes, named if labelled else (config.id,), config.drop if labelled else ())
    rows = read_ids(frame, config.id, nodes, str)
    labels, sensitive, meaning = np.full(len(frame), MISSING, np.int8), None, Meaning(_features(frame, exclude))
    if labelled:
        labels = coded(frame, config.label, nodes, config.missing_label, MISSING)
        sensitive = coded(frame, config.sensitive, nodes, None, MISSING)
        classes = tuple(value_names(frame[config.label], config.missing_label))
        groups = tuple(value_names(frame[config.sensitive], None))
        meaning = Meaning(meaning.features, classes, groups)
    return RawGraph(
        nodes.stem,
        read_features(frame, exclude, nodes),
        labels,
        sensitive,
        read_edges(edges, rows, str),
        f"{nodes}: column {config.label!r}",
        f"{nodes}: column {config.sensitive!r}",
        str(edges),
        meaning=meaning,
        ids=tuple(rows),
    )


def _features(frame: pd.DataFrame, exclude: Collection[str]) -> tuple[str, ...]:
    """The columns that `read_features` reads."""
    return tuple(str(column) for column in frame.columns if column not in exclude)
