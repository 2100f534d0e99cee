"""The commands together, and how a command ends: every expected failure is one line on standard error."""

from __future__ import annotations

import sys

import click
import typer

from orchestrator.cli.bench import bench
from orchestrator.cli.certificates import certs
from orchestrator.cli.compare import compare
from orchestrator.cli.data import data_app
from orchestrator.cli.mpspdz import doctor, mpc
from orchestrator.cli.predict import predict
from orchestrator.cli.privacy import account
from orchestrator.cli.reproduce import reproduce
from orchestrator.cli.train import train
from orchestrator.errors import SafeGNNError

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they would print local variables, and those hold secrets
    help="Fair and private federated graph neural networks.",
)
for command in (train, predict, compare, account, reproduce, certs, bench, mpc, doctor):
    app.command()(command)
app.add_typer(data_app, name="data")


def main() -> None:
    """Entry point: every expected failure is one line on standard error and a non-zero exit status."""
    try:
        status = app(standalone_mode=False)
    except SafeGNNError as error:
        _fail(str(error), error.exit_status)
    except click.ClickException as error:
        if not error.format_message():  # a bare command has printed its help already
            sys.exit(error.exit_code)
        _fail(error.format_message(), 2)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted", 130)
    if status == 130:  # what typer makes of Ctrl-C
        _fail("interrupted", 130)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(line: str, status: int) -> None:
    print(f"safegnn: {' '.join(line.split())}", file=sys.stderr)
    sys.exit(status)
