"""Does everything fit before a run is tried? What one participant can see of it, from its own host.

It connects to whom this participant will connect to, shows its certificate, and goes again: a service that runs takes
it for a newcomer who thought better of it. Others' clocks and versions cannot be seen from here: TLS holds the dates of
certificates against both clocks, and that is all.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

from pydantic import ConfigDict

from orchestrator.agreement.aggregator_file import AggregatorFile
from orchestrator.agreement.identity import in_groups
from orchestrator.agreement.participant_file import Address, ParticipantFile
from orchestrator.agreement.policy import SitePolicy
from orchestrator.agreement.roster import Member, Roster
from orchestrator.agreement.round_plan import RoundPlan
from orchestrator.errors import ConfigError
from orchestrator.finding import Finding
from orchestrator.transport.channel import listen, what_failed
from orchestrator.transport.tls import PinnedIdentity

__all__ = ["certificate", "examine"]

_SOON = timedelta(days=30)
_PATIENCE_SEC = 5.0


class _AnyFile(ParticipantFile):
    """What is looked at in a file of any role; the rest is its role's own business."""

    model_config = ConfigDict(extra="ignore")

    listen: Address | None = None
    policy: SitePolicy | None = None


def examine(file: Path, plan: RoundPlan | None = None, rounds: int = 0) -> Iterator[Finding]:
    """Look at everything that a participant's file leads to; nothing is changed.

    Args:
        file: aggregator.yaml, site.yaml or coordinator.yaml.
        plan, rounds: of a run that is to be held against the policy; None: of none.
    """
    try:
        own = _AnyFile.read(file)
        key, roster, role = own.participant()
        if role.startswith("server "):
            AggregatorFile.read(file)
    except ConfigError as error:
        detail, _, cure = str(error).partition("; ")
        yield Finding("files", "fault", detail, cure)
        return
    yield Finding("files", "ok", f"{key.name} is {role} in {roster.name}")
    yield Finding("roster", "ok", f"digest {in_groups(roster.digest)}", "must be the same for all participants")
    yield from _certificates(roster)
    if own.listen is not None:
        yield _own_port(own.listen)
    identity = roster.tls(key, role)
    for other, member in roster.members.items():
        if member.address is not None and _dials(role, other):
            yield _reach(other, member, identity)
    yield Finding("versions", "unknown", f"safegnn {version('safegnn')} here", "ask the others for theirs")
    yield Finding("clocks", "unknown", "compared with certificates' dates alone", "let all hosts follow a time server")
    yield _agreed(own.policy, plan, rounds, roster)


def _dials(role: str, other: str) -> bool:
    """Aggregators connect to each other, the coordinator to both, sites to the coordinator."""
    if role.startswith("site "):
        return other == "coordinator"
    return other.startswith("server ") and other != role


def certificate(role: str, member: Member) -> Finding:
    """Whether a participant's is, or soon will be, out of date."""
    what, now = f"certificate of {role}", datetime.now(UTC)
    if fault := member.fault_of_dates(now):
        detail, _, cure = fault.partition("; ")
        return Finding(what, "fault", detail, cure)
    if member.expires - now < _SOON:
        return Finding(
            what, "warning", f"expires on {member.expires:%Y-%m-%d}", f"have {member.name} make a new one in time"
        )
    return Finding(what, "ok", f"valid until {member.expires:%Y-%m-%d}")


def _certificates(roster: Roster) -> Iterator[Finding]:
    """A row for each that is not well; one row where all are."""
    rows = [certificate(role, member) for role, member in roster.members.items()]
    wrong = [row for row in rows if row.state != "ok"]
    yield from wrong
    if not wrong:
        first = min(roster.members.values(), key=lambda member: member.expires)
        until = f"{first.expires:%Y-%m-%d} ({first.name})"
        yield Finding("certificates", "ok", f"all {len(rows)} are valid, the first until {until}")


def _own_port(address: tuple[str, int]) -> Finding:
    what = f"own port {address[1]}"
    try:
        listen(*address).close()
    except OSError as error:
        cure = "nothing to do if that is this aggregator itself, which runs already; else listen elsewhere"
        return Finding(what, "warning", f"cannot be listened at ({error.strerror or error})", cure)
    return Finding(what, "ok", "is free")


def _reach(role: str, member: Member, identity: PinnedIdentity) -> Finding:
    """Resolve, connect and, where our own TLS is spoken, meet."""
    assert member.address is not None
    host, port = member.address
    what = f"{role} at {host}:{port}"
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "no such name"
        return Finding(what, "fault", f"the name does not resolve ({reason})", "correct it in the roster, or in DNS")
    try:
        connection = socket.create_connection(member.address, timeout=_PATIENCE_SEC)
    except OSError as error:
        cure = f"has {member.name} started, and does its firewall let this host in?"
        return Finding(what, "fault", f"no connection ({error.strerror or error})", cure)
    if role == "coordinator":  # which speaks Flower's protocol, with certificates of its own
        connection.close()
        return Finding(what, "ok", "is open")
    try:
        with identity.secure(connection, server_side=False) as secured:
            secured.settimeout(_PATIENCE_SEC)
            secured.do_handshake()
            shown = identity.peer_role(secured)
            heard = secured.recv(1)  # a refusal of this side's certificate comes with the first read
    except OSError as error:
        connection.close()
        silent = isinstance(error, TimeoutError)
        reason = f"silent for {_PATIENCE_SEC:g} s" if silent else what_failed(error, identity.explain)[1]
        detail, _, cure = reason.partition("; ")
        return Finding(what, "fault", detail, cure)
    if shown != role:
        return Finding(what, "fault", f"shows the certificate of {shown}", "correct the addresses in the roster")
    if not heard:
        return Finding(what, "fault", "closed the connection", f"what does {member.name}'s log say?")
    return Finding(what, "ok", "is there, and each accepts the other's certificate")


def _agreed(policy: SitePolicy | None, plan: RoundPlan | None, rounds: int, roster: Roster) -> Finding:
    if plan is None:
        return Finding("policy", "unknown", "held against no run", "name the run's --preset, --config or --set")
    if policy is None:
        return Finding("policy", "ok", "this participant has none")
    if refusal := policy.refusal(plan, rounds, len(roster.sites)):
        return Finding("policy", "fault", refusal, "change the run, or this participant's policy")
    return Finding("policy", "ok", "allows the run")
