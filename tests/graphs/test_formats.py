"""Raw formats: tiny files in every format, every fault, and facts about the real files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from orchestrator.config import DataConfig
from orchestrator.errors import DataError
from orchestrator.graphs import load_graph
from orchestrator.graphs.edges import canonical_edges
from orchestrator.graphs.formats import read_fair, read_german

BIG = 1_170_000_000_000_000_001  # BIG and BIG + 1 are one float64
NODES = f"""user_id,SALARY,FG%,ATL/CLE,na posteli (a),country
{BIG},-1,0.5,1,0,0
{BIG + 1},0,0.25,0,0,2
7,1,1e-1,0,1,1
8,3,0,0,1,0
"""
EDGES = f"{BIG}\t{BIG + 1}\n{BIG + 1} 7\n\n7\t8\n"


@pytest.fixture
def nba(tmp_path):
    (tmp_path / "nba.csv").write_text(NODES)
    (tmp_path / "nba_relationship.txt").write_text(EDGES)
    return tmp_path


def _replace(folder: Path, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))


def test_fair_format(nba):
    raw = read_fair("nba", nba)
    assert raw.labels.tolist() == [-1, 0, 1, 1]
    assert raw.sensitive.tolist() == [0, 1, 1, 0]
    assert raw.edges.T.tolist() == [[0, 1], [1, 2], [2, 3]]  # neighbouring 61-bit ids are told apart
    assert raw.features.tolist() == np.array([[0.5, 1, 0], [0.25, 0, 0], [0.1, 0, 1], [0, 0, 1]], np.float32).tolist()


@pytest.mark.parametrize(
    ("name", "nodes", "edges"),
    [
        ("pokec-z", "region_job.csv", "region_job_relationship.txt"),
        ("pokec-n", "region_job_2.csv", "region_job_2_relationship.txt"),
    ],
)
def test_pokec_names(tmp_path, name, nodes, edges):
    header = "user_id,public,AGE,region,I_am_working_in_field,ako byt zamilovany(a)\n"
    rows = [f"{i},{i % 2},{20.0 + i},{i // 2 % 2},{i % 5 - 1},0" for i in range(20)]
    (tmp_path / nodes).write_text("﻿" + header + "\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / edges).write_text("".join(f"{i} {i + 1}\n{i + 1} {i}\n" for i in range(19)))
    graph = load_graph(DataConfig(name=name, dir=tmp_path, nodes="all"), 1)
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (20, 19, 3)
    assert graph.meaning.features == ("public", "AGE", "ako byt zamilovany(a)")
    assert graph.labels.tolist() == [-1, 0, 1, 1, 1] * 4


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("nba.csv", NODES, "", r"nba\.csv: empty; expected a header"),
        ("nba.csv", NODES[NODES.index("\n") + 1 :], "", r"nba\.csv: no rows below the header"),
        ("nba.csv", "SALARY", "PAY", r"nba\.csv: no column 'SALARY'"),
        ("nba.csv", "\n7,1", "\n8,1", r"'user_id': id 8 occurs twice, in rows 3 and 4"),
        ("nba.csv", "\n7,1", "\n7.5,1", r"'user_id', row 3: expected a whole number, got '7\.5'"),
        ("nba.csv", "\n7,1", "\n,1", r"'user_id', row 3: expected a whole number, got ''"),
        ("nba.csv", "0.25", "", r"column 'FG%', row 2: expected a finite number, got an empty field"),
        ("nba.csv", "0.25", "n/a", r"column 'FG%', row 2: expected a finite number, got 'n/a'"),
        ("nba.csv", "0.25", "nan", r"column 'FG%', row 2: expected a finite number, got 'nan'"),
        ("nba.csv", "0.25", "inf", r"column 'FG%', row 2: expected a finite number, got 'inf'"),
        ("nba.csv", "0.25", "1e300", r"column 'FG%', row 2: expected a finite number"),
        ("nba.csv", "\n8,3", "\n8,-2", r"'SALARY', row 4: expected -1 \(missing\), 0 .*, got '-2'"),
        ("nba.csv", "\n8,3", "\n8,0.5", r"'SALARY', row 4: .*, got '0\.5'"),
        ("nba.csv", "\n8,3", "\n8,", r"'SALARY', row 4: .*, got ''"),
        ("nba.csv", "1,0\n", "1,x\n", r"'country', row 4: expected 0, or more for group 1, got 'x'"),
        ("nba.csv", "1,0\n", "1,0,5\n", r"nba\.csv: cannot be read as a comma-separated table: .*line 5"),
        ("nba_relationship.txt", EDGES, "\n \n", r"nba_relationship\.txt: no edges"),
        ("nba_relationship.txt", "7\t8", "7\t9", r"line 4: id 9 is not in the node table"),
        ("nba_relationship.txt", "7\t8", "7", r"line 4: expected two node ids, got '7'"),
        ("nba_relationship.txt", "7\t8", "7 8 1", r"line 4: expected two node ids, got '7 8 1'"),
        ("nba_relationship.txt", "7\t8", "7 8.0", r"line 4: '8\.0' is no node id"),
    ],
)
def test_bad_fair_files(nba, file, old, new, message):
    _replace(nba, file, old, new)
    with pytest.raises(DataError, match=message) as caught:
        read_fair("nba", nba)
    assert "\n" not in str(caught.value)


def test_rows_longer_than_the_header(nba):
    (nba / "nba.csv").write_text("user_id,SALARY,country\n7,1,0,5\n8,1,1,5\n")
    with pytest.raises(DataError, match="more fields than the header"):
        read_fair("nba", nba)


@pytest.mark.parametrize("file", ["nba.csv", "nba_relationship.txt"])
def test_files_that_are_no_text(nba, file):
    (nba / file).write_bytes(b"user_id,SALARY,country\n\xff\xfe\x00")
    with pytest.raises(DataError, match=rf"{file}: (cannot be read as|line 2 is not utf-8$)"):
        read_fair("nba", nba)


@pytest.mark.parametrize("file", ["nba.csv", "nba_relationship.txt"])
def test_missing_files_name_the_remedy(nba, file):
    (nba / file).unlink()
    with pytest.raises(DataError, match=rf"{file}: no such file; run `safegnn data fetch nba .*put {file} there"):
        read_fair("nba", nba)


def test_only_id_label_and_group(nba):
    (nba / "nba.csv").write_text("user_id,SALARY,country\n7,1,0\n8,0,1\n")
    with pytest.raises(DataError, match="no feature columns are left beside SALARY, country, user_id"):
        read_fair("nba", nba)


@pytest.fixture
def german(tmp_path):
    rows = ["1,Male,30,0,NewCar", "-1,Female,40,0,Repairs", "1,Female,50,0,NewCar"]
    (tmp_path / "german.csv").write_text(
        "GoodCustomer,Gender,Age,OtherLoansAtStore,PurposeOfLoan\n" + "\n".join(rows) + "\n"
    )
    np.savetxt(tmp_path / "german_edges.txt", np.array([[0.0, 1.0], [1.0, 2.0]]))
    return tmp_path


def test_german_format(german):
    raw = read_german(german)
    assert raw.labels.tolist() == [1, 0, 1]  # -1 is the negative class
    assert raw.sensitive.tolist() == [0, 1, 1]
    assert raw.features.tolist() == [[0, 30], [1, 40], [1, 50]]  # Gender stays among the features
    assert raw.edges.T.tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("german.csv", "-1,", "0,", r"'GoodCustomer', row 2: expected 1 \(good\) or -1 \(bad\), got '0'"),
        ("german.csv", "Male", "M", r"'Gender', row 1: expected Male or Female, got 'M'"),
        ("german.csv", "PurposeOfLoan", "Purpose", r"no column 'PurposeOfLoan'"),
        ("german_edges.txt", "2.000000000000000000e+00", "3", r"line 2: id 3 is not in the node table"),
        ("german_edges.txt", "2.000000000000000000e+00", "1.5", r"line 2: id 1\.5 is not in the node table"),
    ],
)
def test_bad_german_files(german, file, old, new, message):
    _replace(german, file, old, new)
    with pytest.raises(DataError, match=message):
        read_german(german)


def test_nba_facts(real_data):
    folder = real_data("nba")
    raw = read_fair("nba", folder)
    assert raw.features.shape == (403, 95)
    assert raw.edges.shape == (2, 16_570)
    assert canonical_edges(raw.edges, 403).shape == (2, 10_621)
    assert [int((raw.labels == y).sum()) for y in (1, 0, -1)] == [159, 154, 90]
    assert [int((raw.sensitive == s).sum()) for s in (0, 1)] == [296, 107]
    graph = load_graph(DataConfig(name="nba", dir=folder), 31)
    assert (graph.num_nodes, graph.num_edges) == (310, 7_115)


def test_german_facts(real_data):
    folder = real_data("german")
    raw = read_german(folder)
    assert raw.features.shape == (1_000, 27)
    assert [int((raw.labels == y).sum()) for y in (1, 0, -1)] == [700, 300, 0]
    graph = load_graph(DataConfig(name="german", dir=folder), 31)
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (1_000, 21_742, 27)
