"""Whatever files hold ends in a graph or in one line, without a warning."""

from __future__ import annotations

import io
import warnings

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import ConfigError, DataError
from tests.graphs.own_data import (
    HEADER,
    IN_ONE,
    NODES,
    lines,
    load,
    write,
)

CELLS = st.sampled_from(
    ["", "0", "1", "2", "a", "b", "NA", "1,5", '"', "é", "1e400", "1e300", "2020-01-01", "p1", "#", "-1", "\x00"]
)
TABLES = st.lists(st.lists(CELLS, min_size=1, max_size=5), max_size=6)
NAMES = st.sampled_from(["id", "age", "sex", "hired", "", "x"])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    header=st.one_of(st.just(list(HEADER)), st.lists(NAMES, max_size=6)),
    rows=TABLES,
    edges=TABLES,
    separator=st.sampled_from([",", ";", "\t", " ", "|"]),
    changes=st.dictionaries(
        st.sampled_from(["id", "sensitive", "client", "split", "source", "positive", "protected", "one_hot", "impute"]),
        st.sampled_from([None, "id", "sex", "1", "x"]),
        max_size=3,
    ),
    encoding=st.sampled_from(["utf-8", "latin-1", "utf-16"]),
)
def test_random_tables_end_in_a_graph_or_one_line(tmp_path, header, rows, edges, separator, changes, encoding):
    changes = {key: value for key, value in changes.items() if key not in ("one_hot", "impute")} | {
        "one_hot": ["x"] if "one_hot" in changes else [],
        "impute": "mean" if "impute" in changes else None,
    }
    write(tmp_path, lines([header, *rows], separator).encode(encoding, "replace"), lines(edges, separator))
    _ends_well(tmp_path, **changes)
    write(tmp_path, NODES, lines(edges, separator).encode(encoding, "replace"))
    _ends_well(tmp_path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=200), suffix=st.sampled_from(["csv", "npz", "pt", "graphml", "tsv", "parquet"]))
def test_random_bytes_end_in_one_line(tmp_path, raw, suffix):
    (tmp_path / f"nodes.{suffix}").write_bytes(raw)
    write(tmp_path)
    (tmp_path / "edges.txt").write_bytes(raw)
    pair = {} if suffix in ("csv", "tsv", "parquet") else IN_ONE
    _ends_well(tmp_path, nodes=f"nodes.{suffix}", **pair)
    _ends_well(tmp_path, edges="edges.txt")


SHAPES = st.sampled_from([(), (0,), (3,), (3, 1), (3, 2), (2, 3), (2, 0), (1, 3)])
ARRAYS = st.builds(
    lambda shape, kind, fill: np.full(shape, fill).astype(kind), SHAPES, st.sampled_from("fiU?"), st.integers(-1, 3)
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    arrays=st.dictionaries(
        st.sampled_from(["x", "edge_index", "y", "sex", "train_mask", "ids", "feature_names"]), ARRAYS
    )
)
def test_random_arrays_end_in_a_graph_or_one_line(tmp_path, arrays):
    archive = io.BytesIO()
    np.savez(archive, **arrays)
    (tmp_path / "graph.npz").write_bytes(archive.getvalue())
    _ends_well(tmp_path, nodes="graph.npz", **IN_ONE)


def _ends_well(folder, **changes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            load(folder, **changes)
        except (ConfigError, DataError) as error:
            assert str(error) and "\n" not in str(error)
