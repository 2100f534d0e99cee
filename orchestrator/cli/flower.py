"""`safegnn flower`: what Flower needs to run SafeGNN."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.printing import say
from orchestrator.errors import ConfigError

__all__ = ["flower_app"]

flower_app = typer.Typer(no_args_is_help=True, help="Run over Flower; needs safegnn[flower].")


@flower_app.command()
def app(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make; it must not exist.")],
    simulation: Annotated[
        bool, typer.Option("--simulation", help="For Flower's simulation engine: clients in Ray actors, no sites.")
    ] = False,
) -> None:
    """Write the app folder that `flwr run` takes."""
    from orchestrator.flower.app_folder import write_app

    write_app(folder, simulation)
    say(f"{folder}: run it with `flwr run {folder}`")


@flower_app.command()
def node(
    runtime: Annotated[
        str, typer.Option("--runtime", help="Address of the SuperNode's runtime API, on this machine.")
    ] = "127.0.0.1:9094",
    secret: Annotated[
        Path | None, typer.Option("--secret", help="The file of the SuperNode's --superexec-auth-secret-file.")
    ] = None,
) -> None:
    """Carry out a SuperNode's tasks with the installed ClientApp, whatever app the coordinator ships.

    Start the SuperNode with --isolation process. This runs until it is told to end.
    """
    try:
        from orchestrator.flower.client_app import app
        from orchestrator.flower.node import TaskRunner
    except ImportError as error:
        raise ConfigError(
            f"Flower is not installed, or another version than safegnn[flower] asks for: {error}"
        ) from None
    TaskRunner(runtime, app, None if secret is None else _secret(secret)).run()


def _secret(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--secret {path}: {error.strerror}") from None
    if not content:
        raise ConfigError(f"--secret {path}: the file is empty")
    return content
