"""Cora, CiteSeer and PubMed in Planetoid's format: articles, the words in them, their field, and who cites whom."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from orchestrator.graphs.fetch import SOURCES
from orchestrator.graphs.tables import RawGraph, present

__all__ = ["read_planetoid"]


def read_planetoid(name: str, folder: Path) -> RawGraph:
    """Cora (7 classes), CiteSeer (6) or PubMed (3), as PyTorch Geometric reads them; without a sensitive attribute.

    Most of the files are pickles, and whoever wrote a pickle can make its reader run anything: so only the very files
    that `safegnn data fetch` pins are read. Planetoid's own split is dropped, `prepare_graph` makes another.

    CiteSeer's files have neither words nor a class for 15 nodes, the gaps in its test index. PyTorch Geometric gives
    them features of 0 and class 0, and so does everybody whose largest component has 2,120 nodes; without the 10 of
    them that are in it, it has 2,110.

    Raises:
        DataError: a file is missing or is not the pinned one.
    """
    for path in present(name, folder, *SOURCES[name].files):
        SOURCES[name].check(path)
    from torch_geometric.io import read_planetoid_data  # takes seconds, and only these data sets need it

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the pickles are of old versions of NumPy and SciPy
        data = read_planetoid_data(str(folder), name)
    labels = data.y.numpy().astype(np.int8)
    where = f"{folder}/ind.{name}"
    return RawGraph(
        name,
        data.x.numpy(),
        labels,
        None,
        data.edge_index.numpy(),
        f"{where}.*y",
        f"{where}.*",
        f"{where}.graph",
        int(labels.max()) + 1,
    )
