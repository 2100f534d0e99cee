"""Graphs in one file: NumPy's .npz, PyTorch Geometric's .pt, GraphML. Nothing in a file can run code.

Each becomes a table of nodes and one of edges, so that what their columns mean is said and checked as for other tables.
"""

from __future__ import annotations

import io
import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.errors import DataError, RunError
from orchestrator.files import read_arrays
from orchestrator.graphs.edge_tables import EdgeTable
from orchestrator.graphs.text_files import check_header, listed

__all__ = ["read_graphml", "read_npz", "read_pyg"]

SPLIT_COLUMN = "split"
"""Made of the masks that PyTorch Geometric's data and .npz files may hold."""

_MASKS = {f"{part}_mask": part for part in ("train", "val", "test")}


def read_npz(path: Path) -> tuple[pd.DataFrame, EdgeTable, list[str] | None]:
    """`x` (n, f), `edge_index` (2, m) or `edges`, and arrays of n values, which become columns by their names.

    `feature_names`, of f values, names the columns of `x`, which are else x0, x1, ...; `ids`, of n values, names nodes;
    `train_mask`, `val_mask` and `test_mask`, bool, become the column `split`.

    Raises:
        DataError: the file is damaged, or not of these arrays.
    """
    try:
        arrays = read_arrays(path)
    except RunError as error:
        raise DataError(str(error)) from None
    return _tables(arrays, path)


def read_pyg(path: Path) -> tuple[pd.DataFrame, EdgeTable, list[str] | None]:
    """A `torch_geometric.data.Data` that `torch.save` wrote, or an `InMemoryDataset`'s `data.pt` that holds one graph.

    Attributes of n values become columns by their names. Only tensors and the classes of `Data` are unpickled.

    Raises:
        DataError: the file is damaged, holds anything else, several graphs, or tensors that do not fit each other.
    """
    import torch

    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(_safe()):
            warnings.simplefilter("ignore")
            held = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        name = re.search(r"(?:GLOBAL |global:? |class )`?([\w.]+)", str(error))
        what = f", {name[1]}" if name else ""
        raise DataError(
            f"{path}: holds something else than tensors of one torch_geometric.data.Data{what}, and could run code; "
            "nothing of it was run. Save a Data by torch.save(data, path)"
        ) from None
    except Exception as error:  # a damaged file makes torch's readers raise whatever they like
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        raise DataError(f"{path}: cannot be read as a file of torch.save: {reason}") from None
    if isinstance(held, tuple) and len(held) >= 2 and isinstance(held[0], Mapping):  # InMemoryDataset
        if held[1] and any(len(ends) > 2 for ends in held[1].values() if hasattr(ends, "__len__")):
            raise DataError(f"{path}: holds several graphs; expected one")
        held = held[0]
    if hasattr(held, "to_dict") and type(held).__name__ == "Data":
        held = held.to_dict()
    if not isinstance(held, Mapping):
        raise DataError(f"{path}: holds a {type(held).__name__}; expected a torch_geometric.data.Data")
    arrays = {}
    for name, value in held.items():
        if value is None or name == "num_nodes":
            continue
        if isinstance(value, torch.Tensor):
            if value.layout != torch.strided:
                raise DataError(f"{path}: {name} is a sparse tensor; expected dense ones, and edges as edge_index")
            kept = value.detach()
            arrays[str(name)] = (kept.float() if kept.dtype == torch.bfloat16 else kept).numpy()
        elif isinstance(value, list | tuple) and all(isinstance(item, str | int | float) for item in value):
            arrays[str(name)] = np.array(value)
    return _tables(arrays, path)


def _safe() -> list[Any]:
    """What may be made of a file: PyTorch Geometric's containers, whose state is plain."""
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import EdgeStorage, GlobalStorage, NodeStorage

    return [Data, DataEdgeAttr, DataTensorAttr, EdgeStorage, GlobalStorage, NodeStorage]


def _tables(arrays: Mapping[str, np.ndarray], path: Path) -> tuple[pd.DataFrame, EdgeTable, list[str] | None]:
    arrays = dict(arrays)
    there = f"; there are {listed(arrays, 20) or 'none'}"
    links = arrays.pop("edge_index", arrays.pop("edges", None))
    x = arrays.pop("x", None)
    if x is None or links is None:
        raise DataError(f"{path}: no {'x' if x is None else 'edge_index'}; expected x, edge_index and y{there}")
    if x.ndim != 2 or x.dtype.kind not in "biuf" or not x.size:
        raise DataError(f"{path}: x: expected real numbers of shape (n, f), got {x.dtype} of shape {x.shape}")
    if links.ndim != 2 or len(links) != 2 or links.dtype.kind not in "iu":
        turned = "; transpose it" if links.ndim == 2 and links.shape[1] == 2 else ""
        got = f"{links.dtype} of shape {links.shape}{turned}"
        raise DataError(f"{path}: edge_index: expected whole numbers of shape (2, m), got {got}")
    n, f = x.shape
    names = [str(name) for name in arrays.pop("feature_names", np.array([f"x{k}" for k in range(f)])).ravel()]
    if len(names) != f:
        raise DataError(f"{path}: feature_names: {len(names)} names of {f} features")
    ids = arrays.pop("ids", None)
    if ids is not None and ids.shape != (n,):
        raise DataError(f"{path}: ids: expected shape ({n},), got {ids.shape}")
    columns: dict[str, Any] = {name: x[:, k] for k, name in enumerate(names)}
    masks = {part: arrays.pop(mask) for mask, part in _MASKS.items() if mask in arrays}
    if masks:
        arrays[SPLIT_COLUMN] = _split(masks, n, path)
    attributes = []
    for name, values in arrays.items():
        if values.shape == (n, 1):
            values = values[:, 0]
        if values.shape == (n,) and not (name.startswith("edge_") and n == links.shape[1]):
            columns.setdefault(name, values)
            names.append(name)
        elif name.startswith("edge_") or values.shape[:1] == (links.shape[1],):
            attributes.append(name)
        else:
            raise DataError(f"{path}: {name}: expected one value a node, shape ({n},), got shape {values.shape}")
    check_header([name.strip() for name in names], str(path))
    if ids is not None and (outside := np.flatnonzero(((links < 0) | (links >= n)).any(axis=0))).size:
        found = tuple(links[:, outside[0]].tolist())
        raise DataError(
            f"{path}: edge_index: edge {outside[0] + 1} is {found}; expected node indices from 0 to {n - 1}"
        )
    ends = [list(map(str, (column if ids is None else ids[column]).tolist())) for column in links]
    table = EdgeTable((ends[0], ends[1]), np.arange(1, links.shape[1] + 1), "edge", tuple(attributes), str(path))
    return pd.DataFrame(columns), table, None if ids is None else [str(node) for node in ids.tolist()]


def _split(masks: Mapping[str, np.ndarray], n: int, path: Path) -> np.ndarray:
    """Masks as text; empty where a node is in none."""
    said = np.array([""] * n, dtype=object)
    for part, mask in masks.items():
        if mask.shape != (n,) or mask.dtype != np.bool_:
            hint = "; choose one split, [:, 0]" if mask.ndim == 2 else ""
            got = f"{mask.dtype} of shape {mask.shape}"
            raise DataError(f"{path}: {part}_mask: expected a boolean mask of shape ({n},), got {got}{hint}")
        if (said[mask] != "").any():
            raise DataError(f"{path}: {part}_mask: overlaps another mask")
        said[mask] = part
    return said


def read_graphml(path: Path) -> tuple[pd.DataFrame, EdgeTable, list[str] | None]:
    """Attributes of nodes become columns, empty where a node has none; directions are not kept.

    Raises:
        DataError: the file is damaged, or declares a document type, whose entities a reader would follow.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    if b"<!DOCTYPE" in raw.replace(b"\0", b"") or b"<!ENTITY" in raw.replace(b"\0", b""):
        raise DataError(f"{path}: declares a document type or entities, which are not read; write it without")
    from networkx import read_graphml as read  # takes long to import

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = read(io.BytesIO(raw))
    except Exception as error:  # ElementTree's, NetworkX's, KeyError, ValueError
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        raise DataError(f"{path}: cannot be read as GraphML: {reason}") from None
    ids = [str(node) for node in graph.nodes]
    names = list(dict.fromkeys(name for _, values in graph.nodes(data=True) for name in values))
    check_header([str(name).strip() for name in names], str(path))
    if not ids:
        raise DataError(f"{path}: holds no nodes")
    frame = pd.DataFrame([values for _, values in graph.nodes(data=True)], columns=names, index=range(len(ids)))
    links = list(graph.edges(data=True))
    others = tuple(dict.fromkeys(str(name) for *_, values in links for name in values if name != "id"))
    ends = [str(u) for u, *_ in links], [str(v) for _, v, *_ in links]
    return frame, EdgeTable(ends, np.arange(1, len(links) + 1), "edge", others, str(path)), ids
