"""What is wrong with data and their settings before anything is trained, where, and which settings would work."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from orchestrator.config import lay, merged_layers, validated
from orchestrator.errors import ConfigError, DataError, SafeGNNError
from orchestrator.evaluation.rounds import round_evaluation
from orchestrator.experiments.run import check
from orchestrator.graphs import MISSING, Graph, client_graphs, describe_graph, load_graph
from orchestrator.graphs.faults import Choice, DataFaults, Faults
from orchestrator.graphs.guess import guessed
from orchestrator.graphs.own_files import Reading, read_files
from orchestrator.graphs.text_files import listed
from orchestrator.methods import create
from orchestrator.yaml_text import dump

__all__ = ["DataCheck", "check_data"]

_ROUNDS = 6
"""Of mending: what one fault hides, the next look sees."""

_UNDECIDED = "CHOOSE"
"""Stands in proposed settings where only the user can say what is meant."""


@dataclass(frozen=True)
class DataCheck:
    """What was found.

    Attributes:
        faults: one line each; none: with these settings the data would train.
        document: facts about files, columns, edges, graph and clients, of plain JSON values; empty as far as nothing
            could be read.
        proposal: the settings that would work, where there are any; "" : none were found.
        undecided: by setting, the values of which the user must choose one before they do.
    """

    faults: tuple[str, ...]
    document: Mapping[str, Any]
    proposal: str
    undecided: Mapping[str, Sequence[str]] = field(default_factory=dict)


def check_data(
    files: Sequence[Path] = (),
    presets: Sequence[str] = (),
    file: Path | None = None,
    overrides: Sequence[str] = (),
) -> DataCheck:
    """Look at the data that settings name; of bare files what the settings do not say is guessed.

    Raises:
        ConfigError: a layer of settings cannot be read.
    """
    given = merged_layers(presets, file, overrides)
    faults, asked, labels = Faults(), copy.deepcopy(given), Choice()
    if files:
        try:
            asked, labels = _guess(files, given)
        except DataError as error:
            faults.take(error)
            return DataCheck(faults.lines, {}, "")
    own = (asked.get("data") or {}).get("name") == "files"
    if labels:
        faults.add(f"data.files.label: must be given; columns of two values are {listed(labels)}", label=labels)
        asked["data"]["files"]["label"] = labels[-1]  # any, so that the rest can be looked at
    reading, tree, undecided = _read(asked, faults) if own else (None, asked, {})
    if labels:
        undecided = {"label": labels, **undecided}
    if own and reading is None:
        return DataCheck(faults.lines, {}, "", undecided)
    if reading is not None and files:
        _fit_clients(tree, reading, given)
    graph: Graph | None = None
    try:
        settings = validated(tree)
        graph = load_graph(settings.data, settings.seed)
        if reading is not None and files:
            settings = validated(_fit_learning(tree, graph, given))
        clients = client_graphs(graph, settings.clients, settings.seed)
        check(settings, graph)
        round_evaluation(settings, graph, cast(Any, None), {})
        create(clients[0], settings, 0)
    except SafeGNNError as error:
        faults.take(error if isinstance(error, DataError) else DataError(str(error)))
        document = {} if reading is None else _document(reading, graph, (), undecided)
        return DataCheck(faults.lines, document, "", undecided)
    document = _document(reading, graph, clients, undecided)
    changed = bool(files) or bool(faults)
    return DataCheck(faults.lines, document, _yaml(tree, undecided) if changed else "", undecided)


def _guess(files: Sequence[Path], given: Mapping[str, Any]) -> tuple[dict[str, Any], Choice]:
    """What is given, upon what can be guessed; and which columns may be the label, where none is called so."""
    section = given.get("data")
    said = section.get("files") if isinstance(section, Mapping) else None
    columns, folder, labels = guessed(files, said if isinstance(said, Mapping) else {})
    tree: dict[str, Any] = {"data": {"name": "files", "files": columns}}
    if folder is not None:
        tree["data"]["dir"] = str(folder)
    lay(tree, given)
    tree["data"]["name"] = "files"
    described = tree["data"]["files"]
    if isinstance(described, Mapping) and (described.get("client") or described.get("client_folders")):
        tree.setdefault("clients", {}).setdefault("partition", "given")
    return tree, Choice() if isinstance(described, Mapping) and "label" in described else labels


def _read(tree: dict[str, Any], faults: Faults) -> tuple[Reading | None, dict[str, Any], dict[str, Choice]]:
    """The files, by these settings or, after their faults are noted, by those that mend them."""
    tree, undecided = copy.deepcopy(tree), dict[str, Choice]()
    for _ in range(_ROUNDS):
        try:
            data = validated({"data": tree["data"]} | _partition(tree)).data
        except ConfigError as error:
            for line in str(error).split("; data."):
                faults.add(line if line.startswith("data.") else f"data.{line}")
            return None, tree, undecided
        assert data.files is not None  # the settings were refused else
        try:
            return read_files(data.files, data.dir), tree, undecided
        except DataFaults as error:
            faults.take(error)
            if not _mended(tree["data"]["files"], error.cures, undecided):
                return None, tree, undecided
        except DataError as error:
            faults.take(error)
            return None, tree, undecided
    return None, tree, undecided


def _partition(tree: Mapping[str, Any]) -> dict[str, Any]:
    """What else the settings of files must fit."""
    clients = tree.get("clients")
    partition = clients.get("partition") if isinstance(clients, Mapping) else None
    return {"clients": {"partition": partition, "count": 1}, "federation": {"cohort": 1}} if partition else {}


def _mended(described: dict[str, Any], cures: Mapping[str, Any], undecided: dict[str, Choice]) -> bool:
    """Lay cures upon the settings. Returns whether anything is new."""
    before = copy.deepcopy(described)
    for setting, cure in cures.items():
        if isinstance(cure, Choice):
            undecided[setting] = cure
            described[setting] = [cure[-1]]  # any, so that the rest can be looked at
        elif isinstance(cure, tuple):
            described[setting] = list(dict.fromkeys([*(described.get(setting) or ()), *cure]))
        else:
            described[setting] = cure
    return described != before


def _fit_clients(tree: dict[str, Any], reading: Reading, given: Mapping[str, Any]) -> None:
    """As many clients as there are or can be, where nothing is said of them."""
    clients = tree.setdefault("clients", {})
    names = reading.raw.meaning.clients
    labelled = int((reading.raw.labels != MISSING).sum())
    if clients.get("partition") == "given":
        clients.setdefault("count", len(names))
    elif clients.get("partition") is None and labelled < 120:
        clients.setdefault("count", max(1, labelled // 4))
    count = clients.get("count", 30)
    said = given.get("federation") or {}
    if isinstance(count, int) and count < 10 and "cohort" not in said:
        tree.setdefault("federation", {})["cohort"] = count


def _fit_learning(tree: dict[str, Any], graph: Graph, given: Mapping[str, Any]) -> dict[str, Any]:
    """F2GNN is for two classes and groups; for other data a method that is not, where nothing is said of it."""
    if (graph.classes > 2 or graph.sensitive is None) and not any(
        given.get(section) for section in ("method", "model", "evaluation")
    ):
        tree |= {"method": {"name": "fedavg"}, "model": {"name": "gcn-classifier"}, "evaluation": {"where": "clients"}}
    return tree


def _yaml(tree: Mapping[str, Any], undecided: Mapping[str, Choice]) -> str:
    """Settings as text; comments say what must be chosen."""
    shown = _plain({key: value for key, value in tree.items() if value not in ({}, None)})
    for setting in undecided:
        shown["data"]["files"][setting] = _UNDECIDED
    text = dump(shown)
    for setting, values in undecided.items():
        choice = ", ".join(map(repr, values[:10])) + (", ..." if len(values) > 10 else "")
        kind = "one of" if setting == "label" else "one or more of"
        text = text.replace(f"{setting}: {_UNDECIDED}\n", f"{setting}: {_UNDECIDED}  # {kind} {choice}\n")
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _document(
    reading: Reading | None, graph: Graph | None, clients: Iterable[Graph], undecided: Mapping[str, Choice]
) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if reading is not None:
        document |= {"files": _files(reading), "columns": _columns(reading, undecided), "edges": _edges(reading)}
    if graph is not None:
        facts = describe_graph(graph)
        del facts["clients"]
        document["graph"] = facts
        names = graph.meaning.clients if graph.owner is not None else ()
        document["clients"] = [
            {"name": names[k] if k < len(names) else client.name, **_client(client)} for k, client in enumerate(clients)
        ]
    return document


def _files(reading: Reading) -> list[dict[str, Any]]:
    nodes = [{"file": source, "holds": f"{count} nodes"} for source, count in reading.table.parts]
    lists = [
        {"file": edges.source, "holds": f"{len(edges.lines)} edges" + (f", {edges.reading}" if edges.reading else "")}
        for edges in reading.tables
    ]
    return nodes + lists


def _columns(reading: Reading, undecided: Mapping[str, Choice]) -> dict[str, Any]:
    config, columns = reading.config, reading.columns
    label = columns.label
    assert label is not None  # as of everything that is read to train
    facts: dict[str, Any] = {
        "id": config.id or ("(row number)" if reading.table.ids is None else "(ids of the file)"),
        "label": {"column": config.label, "values": _values(label.values, label.codes, "positive" in undecided)},
        "sensitive": None,
        "client": config.client,
        "split": config.split,
        "features": list(columns.names),
        "dropped": list(config.drop),
        "imputed": columns.imputed,
    }
    if columns.sensitive is not None:
        values = _values(columns.sensitive.values, columns.sensitive.codes, "protected" in undecided)
        facts["sensitive"] = {"column": config.sensitive, "values": values}
    return facts


def _values(values: Mapping[str, int], codes: np.ndarray, undecided: bool) -> list[dict[str, Any]]:
    """What each number stands for and how many nodes have it; no number where that is for the user to say."""
    found = []
    for code in sorted({int(code) for code in codes}):
        texts = [text for text, one in values.items() if one == code and text]
        number = None if undecided and code != MISSING else code
        found.append({"values": texts, "code": number, "nodes": int((codes == code).sum())})
    return found


def _edges(reading: Reading) -> dict[str, int]:
    edges = reading.edges
    kept = reading.raw.edges.shape[1]
    repeated = edges.read - edges.skipped - reading.loops - reading.crossing - kept
    return {
        "read": edges.read,
        "unknown_ends": edges.skipped,
        "self_loops": reading.loops,
        "repeated": repeated,
        "between_clients": reading.crossing,
        "kept": kept,
    }


def _client(client: Graph) -> dict[str, Any]:
    groups = None
    if client.sensitive is not None:
        groups = [int((client.sensitive == group).sum()) for group in (0, 1)]
    return {"nodes": client.num_nodes, "edges": client.num_edges, "train": int(client.train.sum()), "groups": groups}
