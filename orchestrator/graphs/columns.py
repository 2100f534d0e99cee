"""What the columns of a table of nodes mean: ids, labels, groups, clients, split, features.

Every fault that can be seen is told, not only the first, and no text is guessed to mean one thing or the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from orchestrator.config import ColumnsConfig
from orchestrator.graphs.cells import as_text, closest, in_order, meant, whole
from orchestrator.graphs.cleaning import MISSING
from orchestrator.graphs.faults import Choice, Faults
from orchestrator.graphs.feature_columns import read_feature_columns
from orchestrator.graphs.meaning import Meaning
from orchestrator.graphs.node_table import Table
from orchestrator.graphs.text_files import listed

__all__ = ["Columns", "read_columns"]

_SPLIT = {"train": ("train", "training"), "val": ("val", "valid", "validation", "dev"), "test": ("test", "testing")}


@dataclass(frozen=True)
class Coded:
    """A column of text as numbers. Attributes: codes: int8, shape (n,). values: which code each text has."""

    codes: np.ndarray
    values: dict[str, int]

    def names(self, count: int) -> tuple[str, ...]:
        """Of each code the texts that have it."""
        return tuple(", ".join(text for text, code in self.values.items() if code == k) for k in range(count))


@dataclass(frozen=True)
class Columns:
    """What was read. Shapes and types of the arrays are those of `orchestrator.graphs.tables.RawGraph`.

    Attributes:
        rows: of every id, in every notation that is known.
        label: None: nodes are only predicted.
    """

    rows: dict[Hashable, int] = field(repr=False)
    ids: tuple[str, ...] = field(repr=False)
    label: Coded | None
    classes: int
    sensitive: Coded | None
    owner: np.ndarray | None
    owner_names: tuple[str, ...]
    masks: np.ndarray | None
    features: np.ndarray
    names: tuple[str, ...]
    imputed: dict[str, int]
    notes: tuple[str, ...]

    @property
    def meaning(self) -> Meaning:
        """What the numbers stand for."""
        groups = () if self.sensitive is None else self.sensitive.names(2)
        labels = () if self.label is None else self.label.names(self.classes)
        read = len(self.features)
        return Meaning(self.names, labels, groups, self.owner_names, read, self.notes)


def read_columns(
    table: Table,
    config: ColumnsConfig,
    faults: Faults,
    decimal: str = ".",
    predicting: Collection[str] | None = None,
) -> Columns | None:
    """Read a table as `config` says. Returns None, with faults, where something of it cannot be read.

    Args:
        predicting: features of the model, as far as known, where nodes are only predicted: columns of labels, groups,
            split, clients, and those that are dropped, may be missing, and only the clients' is read. None: to train.
    """
    before, labelled = Faults(), predicting is None
    misnamed = _check_names(table, config, before, labelled)
    known = set(table.frame.columns)
    if not len(table.frame):
        before.add(f"{table.source}: no rows; expected one row a node")
    ids, rows = _ids(table, config, before) if config.id is None or config.id in known else ([], {})
    label, sensitive, owner, masks = None, None, None, None
    if labelled and config.label in known:
        label = _label(table, config, before)
    if labelled and config.sensitive in known and config.sensitive != config.label:
        sensitive = _sensitive(table, config, before)
    owners = table.owners
    if config.client is not None and config.client in known:
        owners = _filled(table, config.client, "client", before) if labelled else as_text(table.frame[config.client])
    owner_names = tuple(in_order(set(owners))) if owners is not None else ()
    if owners is not None:
        number = {name: k for k, name in enumerate(owner_names)}
        owner = np.array([number[name] for name in owners], np.int64)
    notes: list[str] = []
    if config.split is not None and config.split in known and label is not None:
        masks = _masks(table, config, label.codes, before, notes)
    read = None
    if None not in misnamed:  # else a column that means something would pass for a feature
        read = read_feature_columns(table, config, owner, before, decimal, misnamed, predicting)
    faults.take(before)
    if before or (labelled and label is None) or read is None:
        return None
    most = 0 if label is None else int(label.codes.max(initial=0))
    classes = max(2, len(config.label_values or ()), most + 1)
    notes = [*notes, *read.notes]
    return Columns(
        rows,
        tuple(ids),
        label,
        classes,
        sensitive,
        owner,
        owner_names,
        masks,
        read.features,
        read.names,
        read.imputed,
        tuple(notes),
    )


def _check_names(table: Table, config: ColumnsConfig, faults: Faults, labelled: bool) -> set[str | None]:
    """Every column that is named, and needed, exists and has one meaning.

    Returns:
        What columns may be meant by those that do not exist; None for one that is like no other.
    """
    misnamed: set[str | None] = set()
    columns = list(table.frame.columns)
    single = {"id": config.id, "label": config.label, "sensitive": config.sensitive, "client": config.client}
    single |= {"split": config.split}
    several = {"features": config.features or (), "drop": config.drop, "one_hot": config.one_hot}
    for role, names in {**{role: (name,) for role, name in single.items() if name is not None}, **several}.items():
        if not labelled and role not in ("id", "features", "one_hot"):
            continue
        for name in names:
            if name not in columns:
                there = f"; there are {listed(columns, 20)}" if not meant(name, columns) else ""
                close = closest(name, columns)
                misnamed |= {close} if role in single else set()
                cures = {role: close} if close is not None and role in single else {}
                faults.add(
                    f"{table.source}: no column {name!r}, data.files.{role}{meant(name, columns)}{there}", **cures
                )
    roles: dict[str, list[str]] = {}
    for role, given in single.items():
        if given is not None:
            roles.setdefault(given, []).append(role)
    for role, names in several.items():
        for name in names:
            # A group may be used as a feature where that is said.
            if role == "drop" or name != config.sensitive:
                roles.setdefault(name, []).append(role)
    for name, found in roles.items():
        if len(found) > 1 and found != ["features", "one_hot"]:
            faults.add(f"{table.source}: column {name!r} is {' and '.join(found)}; a column has one meaning")
    return misnamed


def _ids(table: Table, config: ColumnsConfig, faults: Faults) -> tuple[list[str], dict[Hashable, int]]:
    """Ids, and the index of each; one that only its notation keeps apart from a whole number has its digits' too."""
    if config.id is None:
        ids = table.ids if table.ids is not None else [str(row) for row in range(len(table.frame))]
    else:
        ids = _filled(table, config.id, "id", faults)
    if table.owners is not None:  # each client has its own
        ids = [f"{owner}/{node}" for owner, node in zip(table.owners, ids, strict=True)]
    rows: dict[Hashable, int] = {}
    twice: list[int] = []
    for row, node in enumerate(ids):
        if rows.setdefault(node, row) != row:
            twice.append(row)
    if twice:
        where = table.source if config.id is None else f"{table.source}: column {config.id!r}"
        more = f", and so do others, in {len(twice)} rows altogether" if len(twice) > 1 else ""
        first, again = table.row(rows[ids[twice[0]]]), table.row(twice[0])
        faults.add(f"{where}: id {ids[twice[0]]} occurs twice, in {first} and {again}{more}")
    for known, row in list(rows.items()):
        node = str(known)
        owner, slash, own = node.partition("/") if table.owners is not None else ("", "", node)
        rows.setdefault(f"{owner}{slash}{whole(own)}", row)
    return ids, rows


def _filled(table: Table, column: str, role: str, faults: Faults) -> list[str]:
    """Text in every row."""
    texts = as_text(table.frame[column])
    empty = [row for row, text in enumerate(texts) if not text]
    if empty:
        faults.add(
            f"{table.source}: column {column!r}, {table.row(empty[0])}: empty, as {len(empty)} of {len(texts)} are; "
            f"expected the {role} of every node"
        )
    return texts


def _label(table: Table, config: ColumnsConfig, faults: Faults) -> Coded | None:
    assert config.label is not None
    texts = [whole(text) for text in as_text(table.frame[config.label])]
    unknown = {"", *([] if config.missing_label is None else [whole(config.missing_label)])}
    known = [text for text in texts if text not in unknown]
    where = f"{table.source}: column {config.label!r}"
    if not known:
        faults.add(f"{where}: every label is missing")
        return None
    values = _values(known, config.positive, config.label_values, where, "positive", "label_values", faults)
    if values is None:
        return None
    values |= dict.fromkeys(unknown, MISSING)
    return Coded(np.array([values[text] for text in texts], np.int8), values)


def _sensitive(table: Table, config: ColumnsConfig, faults: Faults) -> Coded | None:
    assert config.sensitive is not None
    texts = [whole(text) for text in _filled(table, config.sensitive, "group", faults)]
    where = f"{table.source}: column {config.sensitive!r}"
    filled = [text for text in texts if text]
    order = config.sensitive_values
    values = _values(filled, config.protected, order, where, "protected", "", faults) if filled else None
    if values is None or len(filled) < len(texts):
        return None
    return Coded(np.array([values[text] for text in texts], np.int8), values)


def _values(
    texts: Sequence[str],
    ones: Sequence[str] | None,
    order: Sequence[str] | None,
    where: str,
    one_setting: str,
    order_setting: str,
    faults: Faults,
) -> dict[str, int] | None:
    """Which number each text is; a text is one if a setting says so, or if it is that number."""
    values = in_order(set(texts))
    if order is not None:
        codes = {whole(value): code for code, value in enumerate(order)}
        if others := [value for value in values if value not in codes]:
            faults.add(f"{where}: {listed(others)} {_is(others)} not among {listed(order)}{meant(others[0], codes)}")
            return None
        return codes
    if ones is not None:
        wanted = [whole(value) for value in ones]
        if absent := [value for value in wanted if value not in values]:
            faults.add(
                f"{where}: data.files.{one_setting} is {absent[0]!r}, which does not occur{meant(absent[0], values)}; "
                f"there {_is(values)} {listed(values)}"
            )
            return None
        codes = {value: int(value in wanted) for value in values}
        if all(codes.values()):
            faults.add(f"{where}: has only {listed(values)}, all of them data.files.{one_setting}; expected others too")
            return None
        alike = [(one, other) for one in wanted for other, k in codes.items() if not k and _alike(one, other)]
        if alike:
            faults.add(
                f"{where}: {alike[0][0]!r} and {alike[0][1]!r} differ in case or blanks only; name both in "
                f"data.files.{one_setting}, or write them alike"
            )
            return None
        return codes
    if len(values) < 2:
        faults.add(f"{where}: has only {listed(values)}; expected two values or more")
        return None
    most = 128 if order_setting else 2
    if values == [str(k) for k in range(len(values))] and len(values) <= most:
        return {value: code for code, value in enumerate(values)}
    faults.add(f"{where}: {_question(values, one_setting, order_setting)}", **{one_setting: Choice(values)})
    return None


def _question(values: Sequence[str], one_setting: str, order_setting: str) -> str:
    number = f"has {len(values)} values, {listed(values)}"
    if one_setting == "protected":
        rest = "; the others are compared with it together" if len(values) > 2 else ""
        return f"{number}; data.files.protected must say which is the protected group{rest}"
    hint = "; -1 may be data.files.missing_label" if "-1" in values else ""
    if len(values) == 2:
        return f"{number}; data.files.positive must say which is the positive class{hint}"
    many = f", or data.files.{order_setting} number them, for a method of several classes" if len(values) <= 128 else ""
    return f"{number}; data.files.positive must say which is the positive class, against the rest{many}{hint}"


def _alike(one: str, other: str) -> bool:
    return "".join(one.split()).casefold() == "".join(other.split()).casefold()


def _is(values: Sequence[object]) -> str:
    return "is" if len(values) == 1 else "are"


def _masks(
    table: Table, config: ColumnsConfig, labels: np.ndarray, faults: Faults, notes: list[str]
) -> np.ndarray | None:
    """bool, shape (3, n)."""
    assert config.split is not None
    where = f"{table.source}: column {config.split!r}"
    texts = as_text(table.frame[config.split])
    part = {text: k for k, names in enumerate(_SPLIT.values()) for text in names}
    say: Callable[[str], str] = str.casefold
    if config.split_values is not None:
        part, say = {whole(text): k for k, text in enumerate(config.split_values)}, whole
        if len(part) < 3:
            faults.add(f"{where}: data.files.split_values: expected three different values")
            return None
    others = in_order({text for text in texts if text and say(text) not in part})
    if others:
        expected = listed(list(part) if config.split_values else _SPLIT)
        faults.add(
            f"{where}: {listed(others)} {_is(others)} not one of {expected}; "
            "data.files.split_values says what stands for training, validation and test"
        )
        return None
    numbers = np.array([part[say(text)] if text else -1 for text in texts], np.int8)
    masks = np.stack([numbers == k for k in range(3)])
    if unlabelled := int((masks.any(axis=0) & (labels == MISSING)).sum()):
        notes.append(f"{unlabelled} nodes without label are in no part of the split that {config.split!r} says")
    masks &= labels != MISSING
    if not masks[0].any():
        faults.add(f"{where}: no node with a label is for training")
        return None
    return masks
