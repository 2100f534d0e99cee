"""`safegnn data`: fetch the raw files, check one's own, describe a graph and its clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from orchestrator.cli.options import DataDir, File, Json, Overrides, Presets, load, overrides
from orchestrator.cli.printing import flatten, print_json, print_rows, say
from orchestrator.config import preset_names

if TYPE_CHECKING:
    from orchestrator.experiments.data_check import DataCheck

__all__ = ["data_app"]

data_app = typer.Typer(
    no_args_is_help=True,
    help="Data sets: check files of your own, fetch public ones, describe a graph and its clients.",
)


@data_app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="nba, german, pokec-z, pokec-n, cora, citeseer or pubmed")],
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Where to put the files.")] = None,
) -> None:
    """Download a public data set, pinned to a commit and checked."""
    from orchestrator.graphs import fetch_data

    say(str(fetch_data(name, data_dir)))


@data_app.command()
def info(
    name: Annotated[str | None, typer.Argument(help=f"a preset: {', '.join(preset_names())}")] = None,
    config: File = None,
    set_: Overrides = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Describe a graph and the clients that are cut from it."""
    from orchestrator.graphs import client_graphs, describe_graph, load_graph

    settings = load([name] if name else None, config, set_, data_dir)
    graph = load_graph(settings.data, settings.seed)
    facts = describe_graph(
        graph, client_graphs(graph, settings.clients, settings.seed), settings.clients.balance_self_loops
    )
    if as_json:
        print_json(facts)
        return
    table = Table("", "", show_header=False)
    for key, value in flatten(facts):
        table.add_row(key, value)
    say(table)


@data_app.command()
def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="NODES and EDGES, a graph (.npz, .pt, .graphml), or a folder; none: as settings say."),
    ] = None,
    preset: Presets = None,
    config: File = None,
    set_: Overrides = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Say what is wrong with data and what training would make of them; ends with status 2 where it would not train."""
    from orchestrator.experiments.data_check import check_data

    found = check_data(files or (), preset or (), config, overrides(set_, data_dir))
    if as_json:
        told = {"would_train": not found.faults, "faults": list(found.faults), **found.document}
        print_json({**told, "settings": found.proposal, "undecided": {k: list(v) for k, v in found.undecided.items()}})
    else:
        _tell(found)
    if found.faults:
        raise typer.Exit(2)


def _tell(found: DataCheck) -> None:
    document = found.document
    for file in document.get("files", ()):
        say(f"{file['file']}: {file['holds']}")
    if "columns" in document:
        say(_column_table(document["columns"]))
        if document["columns"]["sensitive"] is None:
            say("no sensitive attribute, so fairness is not measured; data.files.sensitive names its column")
        say("edges: " + ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in document["edges"].items()))
    if "graph" in document:
        graph = document["graph"]
        parts = graph["components"]
        say(
            f"graph: {graph['nodes']} nodes, {graph['edges']} edges, {graph['features']} features; components: "
            f"{parts['count']}, the largest of {parts['largest']} nodes; isolated nodes: {parts['isolated_nodes']}"
        )
        say("split: " + ", ".join(f"{count} {name}" for name, count in graph["split"].items()))
        if document["clients"]:
            _tell_clients(document["clients"], graph["group_names"])
        for note in graph["notes"]:
            say(f"note: {note}")
    if found.faults:
        say(f"\n{len(found.faults)} {'fault' if len(found.faults) == 1 else 'faults'}, it would not train:")
        for number, fault in enumerate(found.faults, start=1):
            say(f"{number}. {fault}")
    else:
        say("\nno faults, it would train")
    if found.proposal:
        said = "these settings work" if not found.faults else "these settings would work"
        rest = ", once what is undecided is chosen" if found.undecided else ""
        say(f"\n{said}{rest}:\n")
        say(found.proposal.rstrip())


def _column_table(columns: Mapping[str, Any]) -> Table:
    table = Table("column", "is", "", show_header=True)
    table.add_row(columns["id"], "id", "")
    for role in ("label", "sensitive"):
        if (described := columns[role]) is not None:
            several = role == "label" and max(value["code"] or 0 for value in described["values"]) > 1
            kinds: dict[int | None, str] = {None: "undecided", -1: "unknown"}
            kinds |= {} if several else {1: "1 (positive)" if role == "label" else "1 (protected)"}
            shown = (
                f"{', '.join(map(repr, value['values'][:5])) or 'empty'} → {kinds.get(value['code'], value['code'])}: "
                f"{value['nodes']} node{'' if value['nodes'] == 1 else 's'}"
                for value in described["values"]
            )
            table.add_row(described["column"], role, "\n".join(shown))
    for role in ("client", "split"):
        if columns[role] is not None:
            table.add_row(columns[role], role, "")
    for name in columns["features"]:
        filled = columns["imputed"].get(name)
        table.add_row(name, "feature", "" if filled is None else f"{filled} missing cells filled in")
    for name in columns["dropped"]:
        table.add_row(name, "dropped", "")
    return table


def _tell_clients(clients: Sequence[Mapping[str, Any]], groups: Sequence[str]) -> None:
    shown = clients if len(clients) <= 30 else clients[:30]
    rows = []
    for client in shown:
        row = {"client": client["name"], "nodes": str(client["nodes"]), "edges": str(client["edges"])}
        row["training nodes"] = str(client["train"])
        if client["groups"] is not None:
            names = groups or ("group 0", "group 1")
            row |= {names[k][:20]: str(count) for k, count in enumerate(client["groups"])}
        rows.append(row)
    print_rows(rows)
    if len(clients) > len(shown):
        say(f"and {len(clients) - len(shown)} more clients")
