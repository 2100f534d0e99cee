"""`safegnn consortium`: who takes part, from an empty roster to each participant's kit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.printing import print_json, say
from orchestrator.errors import ConfigError

__all__ = ["consortium_app"]

consortium_app = typer.Typer(no_args_is_help=True, help="Who takes part in runs between organisations.")

RosterFile = Annotated[Path, typer.Argument(metavar="FILE", help="The roster, consortium.yaml.")]


@consortium_app.command()
def new(
    file: RosterFile,
    name: Annotated[str, typer.Option("--name", help="Of the consortium.")],
    aggregator: Annotated[list[str], typer.Option("--aggregator", help="NAME=HOST:PORT, twice.")],
    coordinator: Annotated[str, typer.Option("--coordinator", help="NAME, or NAME=HOST:PORT.")],
    site: Annotated[list[str], typer.Option("--site", help="NAME; repeats.")],
) -> None:
    """Write a roster that waits for the participants' certificates."""
    from orchestrator.agreement.kit import draft, write_draft

    aggregators = [_named(text) for text in aggregator]
    if bare := [each for each, address in aggregators if address is None]:
        raise ConfigError(f"--aggregator {bare[0]}: expected NAME=HOST:PORT")
    if len({each for each, _ in aggregators}) < len(aggregators):
        raise ConfigError(f"--aggregator {aggregators[0][0]}: stands twice; expected two organisations")
    addresses = {each: address or "" for each, address in aggregators}
    write_draft(file, draft(name, addresses, _named(coordinator), site))
    say(f"{file}: the roster of {name}; put the certificates of all participants where it says, then")
    say(f"  safegnn consortium check {file}")


@consortium_app.command()
def check(
    file: RosterFile,
    identity: Annotated[
        Path | None, typer.Option("--identity", metavar="DIR", help="One's own key: is it the one in the roster?")
    ] = None,
    as_json: Json = False,
) -> None:
    """Who is in the roster, by which key, until when; and the digest that all participants must have alike.

    It fails where a certificate is out of date or one's own key is another one than the roster's.
    """
    from orchestrator.agreement.identity import OwnKey, in_groups
    from orchestrator.agreement.preflight import certificate
    from orchestrator.agreement.roster import Roster

    roster = Roster.read(file)
    own = None
    if identity is not None:
        key = OwnKey.load(identity)
        own = roster.role_named(key.name)
        roster.tls(key, own)
    rows = []
    for role, member in roster.members.items():
        found = certificate(role, member)
        rows.append({"role": role, "name": member.name, "own": role == own, "fingerprint": member.fingerprint,
                     "state": found.state, "detail": found.detail})  # fmt: skip
    hosts = [member.address[0] for member in roster.aggregators if member.address]
    shared = ""
    if len(set(hosts)) < len(hosts):
        shared = f"both aggregators are on {hosts[0]}: whoever runs that host holds both shares"
    sound = all(row["state"] != "fault" for row in rows)
    if as_json:
        print_json({"ok": sound, "consortium": roster.name, "digest": roster.digest, "participants": rows,
                    "warning": shared})  # fmt: skip
    else:
        for row in rows:
            whose = ", the key of this participant" if row["own"] else ""
            say(f"{row['role']}: {row['name']}, {row['state']}: {row['detail']}{whose}\n  {row['fingerprint']}")
        if shared:
            say(f"warning: {shared}")
        say(f"digest of the roster {roster.name}, the same for all participants:\n  {in_groups(roster.digest)}")
    if not sound:
        raise typer.Exit(1)


@consortium_app.command()
def kit(
    file: RosterFile,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the participant.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make; it must not exist.")],
) -> None:
    """Make what one participant needs: the roster, a file of its own to fill in, and what to do next."""
    from orchestrator.agreement.kit import write_kit
    from orchestrator.agreement.roster import Roster

    write_kit(Roster.read(file), name, folder)
    say(f"{folder}: the kit of {name}; nothing in it is secret. What to do with it: {folder / 'README.txt'}")


def _named(text: str) -> tuple[str, str | None]:
    """The parts of NAME=HOST:PORT; the second one None where it is not there."""
    name, equals, address = text.partition("=")
    return name, address if equals else None
