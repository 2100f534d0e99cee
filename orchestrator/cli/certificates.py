"""`safegnn certs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.printing import say

__all__ = ["certs"]


def certs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make; it must not exist.")],
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="Lifetime of the certificates.")] = 365,
) -> None:
    """Make the keys and certificates by which servers, dealer and coordinator know each other.

    Without them, train and compare make certificates that live for one session. Make some to keep with this command
    and name the folder in engine.certificates. A private CA signs one certificate for each role, and its key is
    forgotten: nobody can add a role later, and to renew means to make a whole new folder.
    """
    from orchestrator.transport.tls import ROLES, create_certificates, files

    end = create_certificates(folder, days)
    say(f"certificates in {folder}, valid until {end:%Y-%m-%d}; keep keys secret:")
    for role in ROLES:
        say(f"  copy to the machine of {role}: {', '.join(files(role))}")
    say(f"all roles on this machine: copy nothing, train with engine.certificates={folder}")
