"""`safegnn data`: fetch the raw files, describe a graph and its clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from orchestrator.cli.options import DataDir, File, Json, Overrides, load
from orchestrator.cli.printing import flatten, print_json, say
from orchestrator.config import preset_names

__all__ = ["data_app"]

data_app = typer.Typer(no_args_is_help=True, help="Data sets: fetch the raw files, describe a graph and its clients.")


@data_app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="nba, german, pokec-z, pokec-n, cora or citeseer")],
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
