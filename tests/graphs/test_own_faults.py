"""What is wrong with one's own files is told, every kind by members of its own, and no meaning is guessed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graphs.own_data import (
    BODY,
    EDGES,
    IN_ONE,
    LINKS,
    NODES,
    PLACE,
    SEX,
    TRIPLES,
    X,
    Y,
    column,
    faults,
    lines,
    load,
    same,
    write,
)


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("id,age,,sex,hired", "column 3 has no name; name it in the header"),
        (",age,bmi,sex,hired", "column 1 has no name; name it in the header, or write the file without row numbers"),
        ("id,age,bmi,sex,  ", "column 5 has no name"),
        ("id,age,age,sex,hired", "columns 2 and 3 are all called 'age'; expected different names"),
        ("id,age, age ,sex,hired", "columns 2 and 3 are all called 'age'"),
        ("\tage\tsex\thired", "column 1 has no name; name it in the header, or write the file without row numbers"),
        ("0,0,0.1,sex,hired", "columns 1 and 2 are all called '0'"),  # pandas makes 0.1 of the second
    ],
)
def test_a_header_is_not_repaired(tmp_path, header, told):
    write(tmp_path, header + "\n" + lines(BODY))
    assert any(f"nodes.csv: {told}" in line for line in faults(tmp_path))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"label": "sex"}, "column 'sex' is label and sensitive; a column has one meaning"),
        ({"id": "hired"}, "column 'hired' is id and label; a column has one meaning"),
        ({"drop": ["hired"]}, "column 'hired' is label and drop; a column has one meaning"),
        ({"drop": ["id"]}, "column 'id' is id and drop; a column has one meaning"),
        ({"drop": ["sex"]}, "column 'sex' is sensitive and drop; a column has one meaning"),
        ({"features": ["age", "hired"]}, "column 'hired' is label and features; a column has one meaning"),
        ({"one_hot": ["bmi"], "drop": ["bmi"]}, "column 'bmi' is drop and one_hot; a column has one meaning"),
        ({"split": "id"}, "column 'id' is id and split; a column has one meaning"),
        ({"client": "hired"}, "column 'hired' is label and client; a column has one meaning"),
        ({"label": "Hired"}, "no column 'Hired', data.files.label (did you mean 'hired'?)"),
        ({"sensitive": "sexx"}, "no column 'sexx', data.files.sensitive (did you mean 'sex'?)"),
        ({"drop": ["Age"]}, "no column 'Age', data.files.drop (did you mean 'age'?)"),
        ({"one_hot": ["ward"]}, "no column 'ward', data.files.one_hot; there are 'id', 'age', 'bmi', 'sex', 'hired'"),
    ],
)
def test_a_column_has_one_meaning(tmp_path, changes, told):
    write(tmp_path)
    assert any(line.endswith(told) for line in faults(tmp_path, **changes))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (range(12), "numbers the rows; drop it, or name it in data.files.features if it is one"),
        (range(1, 13), "numbers the rows"),
        ([f"{k}.0" for k in range(12)], "numbers the rows"),
    ],
)
def test_a_column_that_numbers_the_rows_is_no_feature(tmp_path, values, told):
    write(tmp_path, column("Unnamed: 0", values))
    [line] = faults(tmp_path)
    assert told in line
    assert load(tmp_path, features=["Unnamed: 0", "age"]).num_features == 2
    assert load(tmp_path, drop=["Unnamed: 0"]).num_features == 2


@pytest.mark.parametrize(
    ("values", "changes", "told"),
    [
        (["approved", "denied"] * 6, {}, "has 2 values, 'approved', 'denied'; data.files.positive must say which"),
        (["1", "2"] * 6, {}, "has 2 values, '1', '2'; data.files.positive must say"),
        (
            ["-1", "1"] * 6,
            {},
            "has 2 values, '-1', '1'; data.files.positive must say which is the positive class; -1 may be ",
        ),
        (["True", "False"] * 6, {}, "has 2 values, 'False', 'True'; data.files.positive must"),
        (["0", "0.5"] * 6, {}, "has 2 values, '0', '0.5'; data.files.positive must"),
        (
            ["lo", "mid", "hi"] * 4,
            {},
            "has 3 values, 'hi', 'lo', 'mid'; data.files.positive must say which is",
        ),
        (["yes"] * 12, {}, "has only 'yes'; expected two values or more"),
        (["yes"] * 12, {"positive": "yes"}, "has only 'yes', all of them data.files.positive"),
        (
            ["yes", "no"] * 6,
            {"positive": "Yes"},
            "data.files.positive is 'Yes', which does not occur (did you mean",
        ),
        (["yes", "Yes", "no"] * 4, {"positive": "yes"}, "'yes' and 'Yes' differ in case or blanks only; name both"),
        (["a", "b", "c"] * 4, {"label_values": ["a", "b"]}, "'c' is not among 'a', 'b'"),
        ([""] * 12, {}, "every label is missing"),
    ],
)
def test_which_class_is_positive_is_not_guessed(tmp_path, values, changes, told):
    write(tmp_path, column("hired", values))
    [line] = faults(tmp_path, **{"positive": None} | changes)
    assert f"column 'hired': {told}" in line


@pytest.mark.parametrize(
    ("values", "changes", "codes", "names"),
    [
        (["0", "1"] * 6, {}, [0, 1] * 6, ("0", "1")),
        (["0.0", "1.00"] * 6, {}, [0, 1] * 6, ("0", "1")),
        (["0", "1", "2"] * 4, {}, [0, 1, 2] * 4, ("0", "1", "2")),
        (["approved", "denied"] * 6, {"positive": "approved"}, [1, 0] * 6, ("denied", "approved")),
        (["a", "b", "c"] * 4, {"positive": "b"}, [0, 1, 0] * 4, ("a, c", "b")),
        (["a", "b", "c"] * 4, {"positive": ["a", "b"]}, [1, 1, 0] * 4, ("c", "a, b")),
        (["hi", "lo", "mid"] * 4, {"label_values": ["lo", "mid", "hi"]}, [2, 0, 1] * 4, ("lo", "mid", "hi")),
        (["1", "2"] * 6, {"positive": 2}, [0, 1] * 6, ("1", "2")),
        (["-1", "0", "1"] * 4, {"missing_label": "-1"}, [-1, 0, 1] * 4, ("0", "1")),
        (["", "yes", "no"] * 4, {"positive": "yes"}, [-1, 1, 0] * 4, ("no", "yes")),
    ],
)
def test_labels_are_what_settings_say(tmp_path, values, changes, codes, names):
    write(tmp_path, column("hired", values))
    graph = load(tmp_path, **{"positive": None} | changes)
    assert graph.labels.tolist() == codes and graph.meaning.labels == names


@pytest.mark.parametrize(
    ("values", "changes", "told"),
    [
        (["f", "m"] * 6, {}, "has 2 values, 'f', 'm'; data.files.protected must say which is the protected group"),
        (["a", "b", "c"] * 4, {}, "which is the protected group; the others are compared with it together"),
        (["0", "1", "2"] * 4, {}, "has 3 values, '0', '1', '2'; data.files.protected must say"),
        (["f", ""] * 6, {"protected": "f"}, "column 'sex', row 2: empty, as 6 of 12 are; expected the group of every"),
        (["f", "m"] * 6, {"protected": "w"}, "data.files.protected is 'w', which does not occur"),
    ],
)
def test_which_group_is_protected_is_not_guessed(tmp_path, values, changes, told):
    write(tmp_path, column("sex", values))
    assert any(told in line for line in faults(tmp_path, **{"protected": None} | changes))


def test_one_group_is_compared_with_all_others(tmp_path):
    write(tmp_path, column("sex", ["a", "b", "c"] * 4))
    graph = load(tmp_path, protected=["b"])
    assert graph.sensitive.tolist() == [0, 1, 0] * 4 and graph.meaning.groups == ("a, c", "b")


def test_what_is_no_number_is_told_column_by_column(tmp_path):
    rows = column("ward", ["heart", "lung", "bone"] * 4)
    rows = column("born", ["1990-01-02", "2.3.1991"] * 6, rows)
    rows = column("left", [f"0{k % 9 + 1}/02/2020" for k in range(12)], rows)
    rows = column("note", [f"text {k}" for k in range(12)], rows)
    rows = column("score", ["NA", "n/a", "?", "-", "", *"1234567"], rows)
    rows = column("weight", ["inf", "1e300", *"1234567890"], rows)
    rows = column("size", ["12 cm", *"12345678901"], rows)
    write(tmp_path, rows)
    told = faults(tmp_path)
    kinds = (
        "ward': holds text of 3 values",
        "born': holds dates",
        "left': holds dates",
        "note': holds text of 12 values",
    )
    kinds += ("score': 5 of 12 numbers are missing", "weight': 2 numbers are infinite", "size': 1 of 12 are no number")
    assert len(told) == 7 and all(any(kind in line for line in told) for kind in kinds)
    drop = ["born", "left", "note", "weight"]
    graph = load(tmp_path, drop=drop, one_hot=["ward"], impute="mean", missing=["12 cm", "NA", "n/a", "?", "-", ""])
    assert graph.meaning.features == ("age", "bmi", "ward=bone", "ward=heart", "ward=lung", "score", "size")
    assert graph.meaning.notes == (
        "filled in 5 missing cells of 'score' (mean)",
        "filled in 1 missing cells of 'size' (mean)",
    )


def test_flags_are_numbers(tmp_path):
    write(tmp_path, column("smokes", ["TRUE", "false", ""] * 4))
    graph = load(tmp_path, impute="zero")
    assert (graph.features[:, 2] > 0).tolist() == [True, False, False] * 4


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (lines(TRIPLES), "beside two ids there is also field 3, such as '0.5'; no network here sees weights"),
        (lines([("from", "to", "km"), *TRIPLES], "\t"), "beside two ids there is also 'km'"),
        (lines([("u", "v", "since"), *TRIPLES]), "beside two ids there is also 'since'"),
        (lines([*EDGES, ("p1", "zz"), ("yy", "p2")]), "line 25: id zz is not in column 'id' of"),
        (lines([("p1", "P2"), *EDGES]), "line 1: id P2 is not in column 'id'"),
        (lines([("anna", "bert"), *EDGES]), "if line 1 is a header, data.files.source and target name its columns"),
        (
            lines([("id", "source", "target"), *TRIPLES]),
            "'target' may be an end of the edges too; data.files.source",
        ),
        (lines([*EDGES, ("p1",)]), "line 25 has 1 fields, line 1 has 2"),
        (lines([*EDGES, ("p1", "p2", "p3")]), "line 25 has 3 fields, line 1 has 2"),
        (lines([("p1",), ("p2",)]), "line 1: expected two node ids, got 'p1'"),
        ("# none\n\n", "no edges, only comments; expected two node ids a line"),
        ("", "empty; expected two node ids a line"),
        ("p1,p1\np2,p2\n", "no edge between two different nodes; expected at least one"),
    ],
)
def test_faults_of_edge_lists(tmp_path, content, told):
    write(tmp_path, edges=content)
    [line] = faults(tmp_path)
    assert told in line and "edges.csv: " in line


def test_unknown_ends_and_loops_are_left_out_and_counted(tmp_path, plain):
    write(tmp_path, edges=[*EDGES, ("p1", "zz"), ("yy", "xx"), ("p3", "p3")])
    graph = same(tmp_path, plain, unknown_ends="skip")
    assert graph.meaning.notes == (
        "left out 2 of 27 edges, whose ends are no nodes (unknown_ends: skip)",
        "left out 1 self-loop; networks add what they need",
    )


def test_ids_that_frequent_mistakes_explain(tmp_path):
    write(tmp_path, [row[1:] for row in NODES], lines((PLACE[u] + 1, PLACE[v] + 1) for u, v in EDGES))
    assert "rows are counted from 0, and these may count from 1" in faults(tmp_path, id=None)[0]
    write(tmp_path, column("id", [f"{k:03}" for k in range(12)]), lines((PLACE[u], PLACE[v]) for u, v in EDGES))
    assert "ids are compared as text, so 7 is not 007" in faults(tmp_path)[0]


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("latin-1", "Zoë"), ("cp1252", "€ Zoë"), ("utf-16", "Zoë"), ("utf-16-be", "Zoë"), ("utf-32", "Zoë")],
)
def test_another_encoding_is_named_and_read_on_request(tmp_path, plain, encoding, shown):
    rows = column("sex", [shown, "m"] * 6)
    edges = lines(EDGES).encode(encoding)
    write(tmp_path, lines(rows).encode(encoding), edges)
    assert f"data.files.encoding: {encoding}" in faults(tmp_path, protected=shown)[0]
    same(tmp_path, plain, protected=shown, encoding=encoding)


@pytest.mark.parametrize(
    ("encoding", "told"),
    [
        ("klingon", "data.files.encoding: 'klingon' is no encoding"),
        ("base64", "'base64' is no encoding"),
        ("utf-16", " is not utf-16"),
        ("ascii", "nodes.csv: line 2 is not ascii"),
    ],
)
def test_an_encoding_that_is_none_or_not_the_files(tmp_path, encoding, told):
    write(tmp_path, column("sex", ["Zoë", "m"] * 6) if encoding == "ascii" else NODES)
    assert told in faults(tmp_path, encoding=encoding)[0]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"nodes": "nobody.csv"}, "nobody.csv: no such file; data.files.nodes must name a file"),
        ({"edges": "nothing.txt"}, "nothing.txt: no such file; data.files.edges must name a file"),
        ({"nodes": "nodes.xlsx"}, "nodes.xlsx: data.files.nodes must end in one of .csv, .tsv"),
        ({"edges": "edges.csv.gz"}, "edges.csv.gz: data.files.edges must end in one of .csv"),
        ({"edges": None}, "nodes.csv: is a table of nodes; data.files.edges must name a list of edges"),
        ({"nodes": "graph.npz"}, "edges.csv: graph.npz holds its edges; leave data.files.edges out"),
    ],
)
def test_which_files(tmp_path, changes, told):
    write(tmp_path)
    assert any(told in line for line in faults(tmp_path, **changes))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"edge_index": LINKS.T},
            "edge_index: expected whole numbers of shape (2, m), got int64 of shape (24, 2)",
        ),
        ({"edge_index": LINKS * 1.0}, "edge_index: expected whole numbers of shape (2, m), got float64"),
        ({"edge_index": LINKS + 1}, "id 12 is not in"),
        ({"x": X[:, 0]}, "x: expected real numbers of shape (n, f), got float64 of shape (12,)"),
        ({"y": Y[:11]}, "y: expected one value a node, shape (12,), got shape (11,)"),
        ({"y": np.eye(12)[:, :3]}, "y: expected one value a node, shape (12,), got shape (12, 3)"),
        ({"edge_weight": LINKS[0] * 0.5}, "beside two ids there is also 'edge_weight'"),
        ({"feature_names": ["a"]}, "feature_names: 1 names of 2 features"),
        ({"feature_names": ["a", "y"]}, "are all called 'y'"),
        (
            {"train_mask": np.ones((12, 10), bool)},
            "train_mask: expected a boolean mask of shape (12,), got bool",
        ),
        ({"train_mask": np.ones(12, bool), "val_mask": np.ones(12, bool)}, "val_mask: overlaps another mask"),
    ],
)
def test_faults_of_arrays_in_a_file(tmp_path, changes, told):
    np.savez(tmp_path / "graph.npz", **{"x": X, "edge_index": LINKS, "y": Y, "sex": SEX} | changes)
    assert any(told in line for line in faults(tmp_path, nodes="graph.npz", **IN_ONE))
