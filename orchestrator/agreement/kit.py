"""The files that a consortium begins with: a roster to fill in, and for each participant a kit.

A kit is what one participant needs and nothing of others but what is public: the roster with all certificates, a file
of its own to fill in, and the next commands. Its private key is not in it, because nobody else ever had it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.agreement.identity import name_fault
from orchestrator.agreement.policy import Policy
from orchestrator.agreement.roster import Roster, parse_address
from orchestrator.errors import ConfigError
from orchestrator.files import write_new_file, write_new_folder

__all__ = ["ROSTER", "draft", "kit", "write_draft", "write_kit"]

ROSTER = "consortium.yaml"
_CERTIFICATES = "certificates"

_DRAFT = """\
# Who takes part in {name}. All of it is public; nobody's private key ever belongs here.
# Every participant runs `safegnn identity new identity --name NAME` at home and sends identity.crt, which is put where
# `certificate` says. `safegnn consortium check` says what is missing. When all is there, `safegnn consortium kit` makes
# what each participant needs, and all compare the roster's digest by telephone.
consortium: {name}

# Server 0 and server 1: two organisations that do not collude, and neither of which is a site.
aggregators:
{aggregators}
# Carries ciphertexts between sites and aggregators, and runs the rounds.
coordinator:
{coordinator}
# Client 0, client 1, and so on. New ones come at the end.
sites:
{sites}"""

_POLICY = """\
# What you ask of every run, whatever the coordinator proposes; what asks for less is refused in one line.
policy:
  noise_multiplier: 1.0        # least noise, relative to how far one site moves the model; 0: any
  largest_epsilon: 8.0         # of a whole run, for whoever sees most; null: any
  delta: 1.0e-5                # at which that epsilon is computed
  min_cohort: {min_cohort}                # least sites whose round may be released
  # rules: [fedavg, f2gnn, softmax]
  # programs: [assisted]
  # clients: untrusted         # only runs in which the aggregators check what sites send
  # most_rounds: 1000
"""

_OWN = """\
identity: identity             # the folder that `safegnn identity new` wrote; paths are relative to this file
roster: consortium.yaml
"""

_AGGREGATOR = """\
# Settings of the aggregator {name}, for `safegnn aggregator --config aggregator.yaml`.
{own}
listen: 0.0.0.0:{port}           # others reach you at {address}, says the roster
status: 127.0.0.1:7780         # health and metrics, for this host alone
most_runs: 4                   # at a time
timeouts:
  startup_sec: 120             # until all who belong to a run have met
  silence_sec: 60              # of a peer, within a phase of a round
  idle_sec: 3600               # between two orders, while sites train

{policy}"""

_SITE = """\
# Settings of the site {name}, for `safegnn site --config site.yaml`.
{own}
socket: worker.sock            # by which the messages of runs reach this site's worker; its owner's alone
folder: state                  # what training keeps between rounds

# Your own graph, which does not leave this host. `safegnn data check NODES EDGES` writes this section for your files.
data:
  name: files
  files:
    nodes: nodes.csv           # a row a node
    edges: edges.csv           # two node ids a line
    label: label               # column to be predicted
    sensitive: group           # column of the sensitive attribute

# What all runs together may spend on these data.
ledger: data.ledger
ledger_limit: 16.0             # largest epsilon; null: any

{policy}  exact_metrics: false         # whether the coordinator hears this site's own metrics exactly
"""

_COORDINATOR = """\
# Who the coordinator {name} is. What a run does is said by presets and settings when it is started.
{own}"""

_README = """\
{name} in the consortium {consortium}: {role}

1. Put the folder that `safegnn identity new` wrote beside these files, as `identity`. The key in it stays here.
2. Is this the roster that all others have, and is your key in it?

       safegnn consortium check consortium.yaml --identity identity

   Ask the other participants by telephone which digest it prints for them: it must be the same.

3. Read and fill in {file}.
4. Can this host reach the others, and does everything fit?

       safegnn doctor --deployment {file}

5. {start}
"""

_START = {
    "aggregator": "Start:\n\n       safegnn aggregator --config aggregator.yaml",
    "site": "Start the worker, which stays:\n\n       safegnn site --config site.yaml",
    "coordinator": "Start a run when aggregators and sites have started: docs/deployment.md.",
}


def draft(name: str, aggregators: Mapping[str, str], coordinator: tuple[str, str | None], sites: Sequence[str]) -> str:
    """A roster whose certificates are still to come, as text with remarks.

    Args:
        name: of the consortium.
        aggregators: host:port by name, of two.
        coordinator: its name, and host:port or None.
        sites: their names.

    Raises:
        ConfigError: naming the name or address at fault, or who stands there twice.
    """
    names = [*aggregators, coordinator[0], *sites]
    addresses = {**aggregators, **({coordinator[0]: coordinator[1]} if coordinator[1] is not None else {})}
    for each in (name, *names):
        if fault := name_fault(each):
            raise ConfigError(fault)
    if twice := [each for each in names if names.count(each) > 1]:
        raise ConfigError(f"{twice[0]} stands twice; expected one participant each")
    if len(aggregators) != 2:
        raise ConfigError(f"there are {len(aggregators)} aggregators; expected two organisations that do not collude")
    if not sites:
        raise ConfigError("there is no site; expected at least one")
    for each, address in addresses.items():
        try:
            parse_address(address)
        except ValueError as error:
            raise ConfigError(f"{each}: {error}") from None

    def entry(each: str, first: str) -> str:
        lines = [f"name: {each}"]
        lines += [f"address: {addresses[each]}"] if each in addresses else []
        lines.append(f"certificate: {_CERTIFICATES}/{each}.crt")
        return "".join(f"{' ' * len(first) if k else first}{line}\n" for k, line in enumerate(lines))

    return _DRAFT.format(
        name=name,
        aggregators="".join(entry(each, "  - ") for each in aggregators),
        coordinator=entry(coordinator[0], "  "),
        sites="".join(entry(each, "  - ") for each in sites),
    )


def write_draft(path: Path, text: str) -> None:
    """Write it, and a folder for the certificates beside it. Raises ConfigError: nothing is overwritten."""
    write_new_file(path, text.encode())
    folder = path.parent / _CERTIFICATES
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be made ({error.strerror})") from None


def kit(roster: Roster, name: str) -> dict[str, bytes]:
    """The files of a participant's kit, by name.

    Raises:
        ConfigError: there is no such participant, or a private key would be in it.
    """
    role = roster.role_named(name)
    kind = "aggregator" if role.startswith("server ") else role.partition(" ")[0]
    address = roster.members[role].address
    least = min(Policy.model_fields["min_cohort"].default, len(roster.sites))
    blanks = {
        "name": name,
        "own": _OWN,
        "policy": _POLICY.format(min_cohort=least),
        "port": address[1] if address else "",
        "address": "{}:{}".format(*address) if address else "",
    }
    template = {"aggregator": _AGGREGATOR, "site": _SITE, "coordinator": _COORDINATOR}[kind]
    said = {"consortium": roster.name, "role": role, "start": _START[kind]}
    readme = _README.format(name=name, file=f"{kind}.yaml", **said)
    texts = {ROSTER: roster.to_yaml(), f"{kind}.yaml": template.format(**blanks), "README.txt": readme}
    files = {file: text.encode() for file, text in texts.items()}
    if any(b"PRIVATE KEY" in content for content in files.values()):
        raise ConfigError(f"{name}: a private key would be in the kit; nobody but its owner may have it")
    return files


def write_kit(roster: Roster, name: str, folder: Path) -> None:
    """Write a participant's kit into a new folder. Raises ConfigError; nothing is overwritten."""
    write_new_folder(folder, kit(roster, name))
