"""Graphs of one's own: from arrays, from PyTorch Geometric's data, from a pair of pandas' frames.

Everything ends in `from_arrays`, so what is refused and how a graph is split does not depend on where it comes from.
Nothing is left out: what a graph cannot hold is refused with the cure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import ValidationError

from orchestrator.config import ColumnsConfig, DataConfig, validated
from orchestrator.config.faults import in_one_line
from orchestrator.errors import ConfigError, DataError
from orchestrator.graphs.cells import whole
from orchestrator.graphs.cleaning import MISSING, check_several, check_varying, split_masks
from orchestrator.graphs.edges import canonical_edges
from orchestrator.graphs.faults import DataFaults, Faults
from orchestrator.graphs.meaning import UNKNOWN, Meaning
from orchestrator.graphs.scaling import POLICIES, Policy, Scaling

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OwnData"]

_MASKS = ("train", "val", "test")
_PART = ", or classes = C for a part of a graph"


class OwnData:
    """The ways in for data that are in memory; `Graph` inherits them.

    The whole graph or a part of it, such as one client's, whose labels lack a class or whose nodes are all of one
    group: a part is told how many classes there are, so that it counts them as the others do.
    """

    @classmethod
    def from_arrays(
        cls,
        features: Any,
        edges: Any,
        labels: Any,
        sensitive: Any = None,
        *,
        train: Any = None,
        val: Any = None,
        test: Any = None,
        split: tuple[float, float, float] | None = None,
        seed: int = 31,
        stratified: bool = True,
        scaling: Policy = "none",
        meaning: Meaning = UNKNOWN,
        classes: int | None = None,
        name: str = "graph",
    ) -> Self:
        """A graph of n nodes from arrays, tensors or lists.

        Args:
            features: numbers, shape (n, f); kept as float32.
            edges: node indices, shape (2, m). Edges have no direction: (u, v), (v, u) and repetitions are one edge.
            labels: shape (n,) or (n, 1); 0 .. C - 1, or -1 or NaN where a label is unknown. Every node stays; one
                without label is in no mask. None: all are unknown, as in a graph that is only predicted.
            sensitive: shape (n,) or (n, 1); 0 or 1; None: the data have no sensitive attribute.
            train, val, test: boolean masks of shape (n,), all three; or
            split: shares of the labelled nodes for the three, drawn with `seed`; as the setting ``data.split``, whose
                default is the default, and
            stratified: by class and group, as the setting ``data.stratified``.
            scaling: of the features, as the setting ``data.scaling``. "by_client": by whoever holds this graph, or a
                client's part of it. "pooled" is fitted over all of its nodes, and constant features go.
            meaning: what features, classes and groups are called.
            classes: C; None: as many as the labels have. Where it is given the graph may be a part, which lacks edges,
                classes or a group.
            name: what messages call the graph.

        Raises:
            DataError: naming what is wrong and what would be right.
        """
        x = _features(features, f"{name}: features")
        if labels is None:
            labels, classes = np.full(len(x), MISSING), 2 if classes is None else classes
            train, val, test = np.zeros((3, len(x)), bool)
        y = _labels(labels, len(x), classes, f"{name}: labels")
        s = None if sensitive is None else _codes(sensitive, len(x), (0, 1), f"{name}: sensitive")
        links = _edges(edges, len(x), f"{name}: edges")
        if classes is None:
            check_several(y[y != MISSING], f"{name}: labels", "class", _PART)
            if s is not None:
                check_several(s, f"{name}: sensitive", "group", _PART)
            if not links.size:
                raise DataError(f"{name}: edges: there are none; expected one or more{_PART}")
        given = {field: mask for field, mask in zip(_MASKS, (train, val, test), strict=True) if mask is not None}
        if given and (split is not None or len(given) < 3):
            raise DataError(f"{name}: masks: got {', '.join(given)}; expected train, val and test, or only a split")
        masks = [_array(mask) for mask in given.values()]
        if not masks:
            masks = list(split_masks(y, s, _shares(split, name), stratified, name, seed))
        if scaling not in POLICIES:
            raise DataError(f"{name}: scaling: expected {', '.join(POLICIES)}, got {scaling!r}")
        if scaling == "pooled":
            check_varying(x, name)  # none would be left
        fitted = Scaling.of(scaling, x)
        x, meaning = fitted.apply(x, name), meaning.noting(fitted.loss(meaning.features))
        number = max(2, int(y.max(initial=0)) + 1) if classes is None else classes
        fields = (x, links, y, s, *masks, name, number, meaning, fitted)
        return cls(*fields)  # the fields are the subclass's

    @classmethod
    def from_pyg(cls, data: Any, sensitive: Any = None, **options: Any) -> Self:
        """A graph from ``x``, ``edge_index`` and ``y`` of a `torch_geometric.data.Data`, or of anything that has them.

        Args:
            data: with ``train_mask``, ``val_mask`` and ``test_mask`` of one dimension these are the masks.
            sensitive: name of the attribute of `data` that holds it, or the values; see `from_arrays`.
            options: as for `from_arrays`.

        Raises:
            DataError: as `from_arrays`; also for edge attributes, which no network here would see.
        """
        name = options.get("name", "graph")
        parts = {field: _attribute(data, field, name) for field in ("x", "edge_index", "y")}
        for field in ("edge_attr", "edge_weight"):
            if getattr(data, field, None) is not None:
                raise DataError(f"{name}: data.{field}: edges have no attributes here; remove it, data.{field} = None")
        if isinstance(sensitive, str):
            sensitive = _attribute(data, sensitive, name)
        masks = {mask: getattr(data, f"{mask}_mask", None) for mask in _MASKS}
        for mask, values in masks.items():
            if values is not None and _array(values).ndim != 1:
                shape = _array(values).shape
                raise DataError(f"{name}: data.{mask}_mask: expected shape (n,), got {shape}; choose one split, [:, 0]")
        if not any(option in options for option in (*_MASKS, "split")):
            options |= masks
        return cls.from_arrays(parts["x"], parts["edge_index"], parts["y"], sensitive, **options)

    @classmethod
    def from_pandas(
        cls,
        nodes: pd.DataFrame,
        edges: pd.DataFrame,
        *,
        id: str | None = None,
        label: str | None,
        name: str = "graph",
        split: str | tuple[float, float, float] | None = None,
        **options: Any,
    ) -> Self:
        """A graph from a table of nodes and one of edges, as those of files are; see docs/own-graph.md.

        Args:
            nodes: one row a node; every column but those that are named here is a feature.
            edges: two columns of node ids, of which others are refused unless ``edge_attributes="ignore"``.
            id, label: columns of `nodes`; without an id rows are counted from 0. No label: the graph is only predicted,
                and columns of groups, clients and split may be missing; see `from_arrays`.
            split: a column of `nodes`, or shares as for `from_arrays`.
            options: the settings ``data.files``, such as ``sensitive``, ``positive``, ``protected``, ``drop``, and
                those of `from_arrays` but for ``classes``; masks are in the order of the rows. A part of a graph, such
                as one client's, needs ``label_values`` and ``sensitive_values``, so that it numbers values as the
                others do.

        Raises:
            DataError: as `from_arrays`, with everything that is wrong with the tables.
        """
        from orchestrator.graphs.columns import read_columns  # with pandas, which takes long to import
        from orchestrator.graphs.edge_tables import edge_frame, resolved
        from orchestrator.graphs.node_table import Table

        if isinstance(split, str):
            options["split"] = split
        described = {key: options.pop(key) for key in [*options] if key in ColumnsConfig.model_fields}
        config, faults = _described_columns({"id": id, "label": label, **described}, name), Faults()
        frame = nodes.set_axis([str(column) for column in nodes.columns], axis=1).reset_index(drop=True)
        if twice := sorted({column for column in frame.columns if list(frame.columns).count(column) > 1}):
            raise DataError(f"{name}: nodes: two columns are called {twice[0]!r}; expected one")
        table = Table(frame, ((f"{name}: nodes", len(frame)),))
        columns = read_columns(table, config, faults, predicting=() if label is None else None)
        ends = edge_frame(edges, config, f"{name}: edges", faults)
        pairs = None
        if columns is not None and ends is not None:
            pairs = resolved([ends], config, columns.rows, faults, "the table of nodes")
        if faults or columns is None or pairs is None:
            raise DataFaults(tuple(line.replace("data.files.", "") for line in faults.lines))
        if config.client is not None:
            raise DataError(f"{name}: client: this makes one graph; train(clients=...) takes one for each client")
        masks = {} if columns.masks is None else dict(zip(_MASKS, columns.masks, strict=True))
        shares = None if isinstance(split, str) else split
        part = None if config.label_values is None else columns.classes
        labels = None if columns.label is None else columns.label.codes
        groups = None if columns.sensitive is None else columns.sensitive.codes
        options = {"classes": part, "split": shares, "name": name, "meaning": columns.meaning, **masks, **options}
        return cls.from_arrays(columns.features, pairs.pairs, labels, groups, **options)


def _array(values: Any) -> np.ndarray:
    """Of anything array-like; a tensor may be on any device and part of a graph of gradients."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError):  # lists of different lengths, a sparse tensor
        return np.asarray(None)


def _features(features: Any, where: str) -> np.ndarray:
    x = _array(features)
    if x.dtype.kind not in "biuf" or x.ndim != 2 or not x.size:
        raise DataError(f"{where}: expected real numbers of shape (n, f), got {_described(x)}")
    with np.errstate(over="ignore"):
        return x.astype(np.float32)  # what is not finite is refused by the graph


def _edges(edges: Any, count: int, where: str) -> np.ndarray:
    pairs = _array(edges)
    if pairs.dtype.kind not in "iu" or pairs.ndim != 2 or len(pairs) != 2:
        turned = "; transpose it" if pairs.ndim == 2 and pairs.shape[1] == 2 else ""
        raise DataError(f"{where}: expected whole numbers of shape (2, m), got {_described(pairs)}{turned}")
    if len(outside := np.flatnonzero(((pairs < 0) | (pairs >= count)).any(axis=0))):
        found = tuple(pairs[:, outside[0]].tolist())
        raise DataError(f"{where}: edge {outside[0]} is {found}; expected node indices from 0 to {count - 1}")
    pairs = pairs.astype(np.int64)
    if len(loops := np.flatnonzero(pairs[0] == pairs[1])):
        raise DataError(
            f"{where}: edge {loops[0]} joins node {pairs[0, loops[0]]} to itself, as {len(loops)} do; leave them out, "
            "networks add what they need"
        )
    return canonical_edges(pairs, count)


def _labels(labels: Any, count: int, classes: int | None, where: str) -> np.ndarray:
    y = _array(labels)
    if y.dtype.kind == "f":
        y = np.where(np.isnan(y), MISSING, y)
    if classes is None:
        # Labels that leave out a number are rather another code, such as 1 and 2, or -1 and 1, than a rare class.
        values = _codes(y, count, (MISSING, *range(128)), where)
        classes = int(values.max(initial=0)) + 1
        if absent := sorted({*range(classes)} - {*values.tolist()}):
            needed = f"expected 0 to C - 1 of C classes, or give classes = {classes}"
            raise DataError(f"{where}: no node has label {absent[0]}; {needed}")
        return values
    if not isinstance(classes, int) or not 2 <= classes <= 128:
        raise DataError(f"{where}: classes = {classes!r}; expected 2 to 128")
    return _codes(y, count, (MISSING, *range(classes)), where)


def _codes(values: Any, count: int, allowed: Sequence[int], where: str) -> np.ndarray:
    """Whole numbers, one a node, as int8."""
    found = _array(values)
    if found.shape == (count, 1):
        found = found[:, 0]
    if found.dtype.kind not in "biuf" or found.shape != (count,):
        hint = "; Graph.from_pandas numbers text" if found.dtype.kind in "UOS" and found.ndim else ""
        raise DataError(f"{where}: expected numbers of shape ({count},), got {_described(found)}{hint}")
    if len(wrong := np.flatnonzero(~np.isin(found, allowed))):
        unknown = ", or -1 where it is unknown" if MISSING in allowed else ""
        raise DataError(f"{where}: node {wrong[0]} has {found[wrong[0]]:g}; expected 0 to {allowed[-1]}{unknown}")
    return found.astype(np.int8)


def _shares(split: tuple[float, float, float] | None, name: str) -> tuple[float, float, float]:
    """As the settings check them."""
    if split is None:
        return DataConfig().split
    try:
        return validated({"data": {"split": split}}).data.split
    except ConfigError as error:
        raise DataError(f"{name}: {error}") from None


def _attribute(data: Any, field: str, name: str) -> Any:
    value = getattr(data, field, None)
    if value is None:
        keys = data.keys() if callable(getattr(data, "keys", None)) else vars(data)
        raise DataError(
            f"{name}: data.{field}: there is none; data have {', '.join(sorted(map(str, keys))) or 'nothing'}"
        )
    return value


def _described(values: np.ndarray) -> str:
    return f"{values.dtype} of shape {values.shape}" if values.ndim else "none"


def _described_columns(given: dict[str, Any], name: str) -> ColumnsConfig:
    """What columns mean, as the settings check it."""
    given = {key: _plain(value) for key, value in given.items()}
    try:
        return ColumnsConfig.model_validate(given)
    except ValidationError as error:
        raise DataError(f"{name}: {in_one_line(error, ColumnsConfig, given).replace('data.files.', '')}") from None


def _plain(value: Any) -> Any:
    """Values of a column are named as they are written, a number or a flag as its text; settings take only text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list | tuple | set | np.ndarray):
        return [_plain(item) for item in value]
    return whole(str(value))
