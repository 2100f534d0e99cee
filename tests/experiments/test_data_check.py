"""What `data check` finds, of bare files and of settings, and that its proposals work."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from orchestrator.experiments.data_check import check_data
from tests.graphs.own_data import EDGES, LINKS, NODES, SEX, X, Y, column, lines, write
from tests.graphs.test_random_files import NAMES, TABLES


def _proposal(found, folder, **chosen):
    """What the proposal says, once what is undecided is chosen, and what is found with it."""
    tree = yaml.safe_load(found.proposal)
    assert all(tree["data"]["files"][setting] == "CHOOSE" for setting in found.undecided)
    tree["data"]["files"] |= {setting: chosen.get(setting, values[0]) for setting, values in found.undecided.items()}
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump(tree))
    return tree, check_data(file=path)


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """``pair(nodes, edges)``: files of these rows, in the working directory."""
    monkeypatch.chdir(tmp_path)

    def build(nodes=NODES, edges=EDGES):
        write(tmp_path, nodes, edges)
        return [tmp_path / "edges.csv", tmp_path / "nodes.csv"]  # in any order

    return build


def test_bare_files_are_understood_by_names(pair, tmp_path):
    rows = column("Hospital", ["A", "B", "B"] * 4, column("set", ["train", "test", "val"] * 4))
    found = check_data(pair([("Node-ID", *rows[0][1:]), *rows[1:]], [("from", "to"), *EDGES]))
    assert found.undecided == {"positive": ("no", "yes"), "protected": ("f", "m")}
    assert len(found.faults) == 2 and all("must say which" in line for line in found.faults)
    columns = found.document["columns"]
    assert [columns[role] for role in ("id", "client", "split")] == ["Node-ID", "Hospital", "set"]
    assert (columns["label"]["column"], columns["sensitive"]["column"]) == ("hired", "sex")
    assert {value["code"] for role in ("label", "sensitive") for value in columns[role]["values"]} == {None}
    assert [(client["name"], client["nodes"], client["groups"]) for client in found.document["clients"]] == [
        ("A", 4, [2, 2]),
        ("B", 8, [4, 4]),
    ]
    tree, again = _proposal(found, tmp_path)
    assert again.faults == () and tree["clients"] == {"partition": "given", "count": 2}
    assert tree["federation"]["cohort"] == 2


def test_all_faults_are_listed_together_and_the_proposal_mends_them(pair, tmp_path):
    rows = column("ward", ["heart", "lung", "bone"] * 4, column("born", ["1.2.1990"] * 12))
    rows = column("score", ["1,5", "", "2,5"] * 4, column("row", range(12), rows))
    edges = [("a", "b", "kind"), *((*edge, "x") for edge in EDGES), ("p1", "zz", "x"), ("p3", "p3", "x")]
    found = check_data(pair(lines(rows, ";").encode("latin-1"), lines(edges, "\t")))
    parts = ("positive", "protected", "'ward': holds text", "'born': holds dates", "'row': numbers the rows")
    parts += ("decimal commas", "numbers are missing", "'kind'", "id zz is not")
    assert len(found.faults) == len(parts)
    assert all(any(part in line for line in found.faults) for part in parts)
    edges = found.document["edges"]
    assert edges == {"read": 26, "unknown_ends": 1, "self_loops": 1, "repeated": 0, "between_clients": 0, "kept": 24}
    tree, again = _proposal(found, tmp_path, positive="yes")
    assert again.faults == () and again.proposal == ""
    files = tree["data"]["files"]
    assert files["one_hot"] == ["ward"] and sorted(files["drop"]) == ["born", "row"] and files["impute"] == "median"
    assert (files["decimal"], files["edge_attributes"], files["unknown_ends"]) == (",", "ignore", "skip")


def test_what_is_said_is_not_guessed(pair):
    files = pair(column("label", ["0", "1"] * 6))
    said = ["data.files.label=hired", "data.files.positive=[no_]", "data.files.sensitive=null", "data.files.drop=[sex]"]
    found = check_data(files, overrides=said)
    assert "data.files.positive is 'no_', which does not occur (did you mean 'no'?)" in found.faults[0]
    found = check_data(files, overrides=[said[0], "data.files.label_values=['no', 'yes']", *said[2:]])
    assert found.faults == () and "method:\n  name: fedavg" in found.proposal  # without groups there is no F2GNN
    assert found.document["columns"]["sensitive"] is None


def test_an_encoding_is_part_of_the_proposal(pair, tmp_path):
    rows = column("sex", ["Zoë", "Jürgen"] * 6)
    found = check_data(pair(lines(rows).encode("cp1252")))
    assert "line 2 is not utf-8; data.files.encoding: latin-1 if it should read 'p0,20,18.0,Zoë,no'" in found.faults[0]
    tree, again = _proposal(found, tmp_path)
    assert again.faults == () and tree["data"]["files"]["encoding"] == "latin-1"


def test_graphs_in_one_file_and_folders(pair, tmp_path):
    np.savez(tmp_path / "graph.npz", x=X, edge_index=LINKS, y=Y, sex=SEX)
    torch.save(Data(torch.tensor(X), torch.tensor(LINKS), y=torch.tensor(Y), sex=torch.tensor(SEX)), tmp_path / "g.pt")
    for name in ("graph.npz", "g.pt"):
        found = check_data([tmp_path / name])
        assert found.faults == () and found.document["columns"]["sensitive"]["column"] == "sex"
    pair()
    for name in ("east", "west"):
        (tmp_path / "all" / name).mkdir(parents=True)
        write(tmp_path / "all" / name)
    found = check_data([tmp_path / "all"], overrides=["data.files.positive='yes'", "data.files.protected=f"])
    assert found.faults == () and [client["name"] for client in found.document["clients"]] == ["east", "west"]
    found = check_data([tmp_path / "all" / "east"])
    assert len(found.faults) == 2 and found.document["graph"]["nodes"] == 12


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["nobody.csv", "edges.csv"], "nobody.csv: no such file; expected data files"),
        (["nodes.csv"], "nodes.csv: expected a list of edges too: safegnn data check NODES EDGES"),
        (["nodes.csv", "edges.csv", "nodes.csv"], "expected a graph, or a table of nodes and a list of edges, got"),
    ],
)
def test_files_that_are_not_a_graph(pair, tmp_path, names, told):
    pair()
    assert told in check_data([tmp_path / name for name in names]).faults[0]


def test_a_label_that_nothing_is_called_is_asked_for(pair):
    found = check_data(pair([(*NODES[0][:-1], "ok"), *NODES[1:]]))
    assert found.faults[0] == "data.files.label: must be given; columns of two values are 'ok'"
    assert found.undecided["label"] == ("ok",) and "label: CHOOSE  # one of 'ok'" in found.proposal


def test_ids_are_found_by_the_edges(pair):
    rows = [("Fallnummer", *NODES[0][1:]), *NODES[1:]]
    assert check_data(pair(rows)).document["columns"]["id"] == "Fallnummer"
    found = check_data(pair([row[1:] for row in NODES], [(u[1:], v[1:]) for u, v in EDGES]))
    assert found.document["columns"]["id"] == "(row number)" and len(found.faults) == 2


def test_settings_alone_are_checked_too(pair, tmp_path):
    found = check_data(overrides=["data.synthetic={nodes: 120, edges: 300}"])
    assert found.faults == () and found.document["graph"]["nodes"] <= 120
    found = check_data(overrides=["data.synthetic={nodes: 60, edges: 300}", "clients={hops: 0, min_nodes: 15}"])
    assert "clients.count = 30, but only" in found.faults[0]
    found = check_data(overrides=["data.name=nba", f"data.dir='{tmp_path}'"])
    assert "nba.csv: no such file" in found.faults[0]


def test_a_loss_is_noted(pair):
    files = pair(edges=[(f"p{k}", f"p{k + 1}") for k in range(8)])
    said = ["data.files.positive='yes'", "data.files.protected=f"]
    assert check_data(files, overrides=said).document["graph"]["notes"] == []
    found = check_data(files, overrides=[*said, "data.nodes=labelled_component"])
    kept = "kept 9 of 12 nodes (largest component; data.nodes: all keeps them)"
    assert found.faults == () and found.document["graph"]["notes"] == [kept]
    assert found.document["graph"]["components"] == {"count": 1, "largest": 9, "isolated_nodes": 0}


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=st.lists(NAMES, max_size=5), rows=TABLES, edges=TABLES, separator=st.sampled_from([",", ";", "\t"]))
def test_random_files_end_in_a_list_of_faults(tmp_path, header, rows, edges, separator):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for nodes in (lines([header, *rows], separator), lines(NODES, separator)):
            write(tmp_path, nodes, lines(edges, separator))
            found = check_data([tmp_path / "nodes.csv", tmp_path / "edges.csv"])
            assert found.faults and not any("\n" in line for line in found.faults)
