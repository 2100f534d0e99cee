"""`safegnn identity`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.printing import say

__all__ = ["identity_app"]

identity_app = typer.Typer(no_args_is_help=True, help="A participant's own key.")


@identity_app.callback()
def _group() -> None:
    """So that a single command keeps its name."""


@identity_app.command()
def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make; it must not exist.")],
    name: Annotated[str, typer.Option("--name", help="Of the participant: a-z, 0-9 and -, as in the roster.")],
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="Lifetime of the certificate.")] = 730,
) -> None:
    """Make this participant's key and certificate.

    The key stays in the folder, and on this host. The certificate goes to whoever keeps the consortium's roster.
    """
    from orchestrator.agreement.identity import CERTIFICATE, KEY, OwnKey

    made = OwnKey.create(folder, name, days)
    say(f"{folder / KEY}: the key of {name}; it stays here, and nobody else may have it")
    say(f"{folder / CERTIFICATE}: its certificate; send it to whoever keeps the roster")
    say(f"fingerprint, to be read to them by telephone:\n  {made.fingerprint}")
