"""The commands together."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.aggregator import aggregator
from orchestrator.cli.audit import audit
from orchestrator.cli.bench import bench
from orchestrator.cli.certificates import certs
from orchestrator.cli.compare import compare
from orchestrator.cli.consortium import consortium_app
from orchestrator.cli.coordinate import coordinate
from orchestrator.cli.data import data_app
from orchestrator.cli.doctor import doctor
from orchestrator.cli.flower import flower_app
from orchestrator.cli.identity import identity_app
from orchestrator.cli.ledger import ledger
from orchestrator.cli.mpspdz import mpc
from orchestrator.cli.overview import presets, runs, settings
from orchestrator.cli.predict import predict
from orchestrator.cli.printing import say
from orchestrator.cli.privacy import account
from orchestrator.cli.report import report
from orchestrator.cli.reproduce import reproduce
from orchestrator.cli.site import site
from orchestrator.cli.train import train

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they would print local variables, and those hold secrets
    help="Fair and private federated graph neural networks.",
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        say(f"safegnn {version('safegnn')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version, and end.")
    ] = False,
) -> None:
    """Fair and private federated graph neural networks."""


for command in (
    train, report, predict, compare, runs, presets, settings, account, ledger, audit, reproduce, certs, bench, mpc,
    doctor, aggregator, site, coordinate,
):  # fmt: skip
    app.command()(command)
app.add_typer(data_app, name="data")
app.add_typer(identity_app, name="identity")
app.add_typer(consortium_app, name="consortium")
app.add_typer(flower_app, name="flower")
