"""The roster: what it holds, what it refuses, and who meets by it."""

from __future__ import annotations

import json
import shutil
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.agreement.identity import OwnKey, _certificate
from orchestrator.agreement.roster import Member, Roster, parse_address
from orchestrator.errors import ConfigError, DisagreementError, ProtocolError
from orchestrator.transport.channel import Position, listen
from orchestrator.transport.door import _finish, _introduce, _unexpected, connect
from orchestrator.transport.tls import PinnedIdentity
from tests.agreement.participants import ROLES


def test_a_file_with_certificates_and_one_beside_them_are_the_same_roster(consortium, tmp_path):
    roster = consortium.roster
    assert Roster.read(consortium.file) == roster
    tree = yaml.safe_load(consortium.file.read_text())
    for entry in (*tree["aggregators"], tree["coordinator"], *tree["sites"]):
        (tmp_path / f"{entry['name']}.crt").write_text("a text around it\n" + entry["certificate"])
        entry["certificate"] = f"{entry['name']}.crt"
    (tmp_path / "consortium.yaml").write_text("# a remark\n" + yaml.safe_dump(tree))
    read = Roster.read(tmp_path / "consortium.yaml")
    assert read == roster and read.digest == roster.digest and read.to_yaml() == roster.to_yaml()


def test_who_is_who(consortium):
    roster = consortium.roster
    assert {member.name: role for role, member in roster.members.items()} == ROLES
    for name, key in consortium.keys.items():
        assert roster.role_of(ssl.PEM_cert_to_DER_cert(key.certificate.decode())) == ROLES[name]
        assert roster.role_named(name) == ROLES[name]
        assert roster.members[ROLES[name]].fingerprint == key.fingerprint
    assert roster.role_of(b"") is None
    assert [roster.site(number).name for number in (0, 1)] == ["north", "south"]
    for number in (-1, 2):
        with pytest.raises(IndexError):
            roster.site(number)
    with pytest.raises(ConfigError, match="west: no participant of trial"):
        roster.role_named("west")


def test_the_digest_covers_all_that_is_public(consortium, tmp_path):
    roster, (x, y) = consortium.roster, consortium.roster.aggregators
    renewed = Member("north", OwnKey.create(tmp_path / "north", "north").certificate)
    others = [
        replace(roster, name="other"),
        replace(roster, aggregators=(y, x)),
        replace(roster, aggregators=(replace(x, address=("127.0.0.1", 1)), y)),
        replace(roster, aggregators=(replace(x, address=("127.0.0.2", 7700)), y)),
        replace(roster, coordinator=replace(roster.coordinator, address=("127.0.0.1", 1))),
        replace(roster, coordinator=roster.sites[0], sites=(roster.coordinator, roster.sites[1])),
        replace(roster, sites=roster.sites[::-1]),
        replace(roster, sites=roster.sites[:1]),
        replace(roster, sites=(renewed, roster.sites[1])),
    ]
    digests = {roster.digest, *(other.digest for other in others)}
    assert len(digests) == 1 + len(others) and all(len(digest) == 64 for digest in digests)


# What is refused


def changed(change):
    def text(consortium):
        tree = yaml.safe_load(consortium.file.read_text())
        change(tree)
        return yaml.safe_dump(json.loads(json.dumps(tree)))  # without aliases

    return text


def same_key(tree):
    """A site of another name with an aggregator's key, which only its certificate's maker could make."""
    tree["sites"][0]["certificate"] = tree["aggregators"][0]["certificate"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda _: "", "expected a consortium's roster"),
        (lambda _: "a: [", "not valid YAML: line 1"),
        (changed(lambda t: t.pop("consortium")), "consortium: must be given"),
        (changed(lambda t: t.update(consortium="A B")), "consortium: the name 'A B': expected"),
        (changed(lambda t: t["aggregators"].pop()), "aggregators.1: must be given"),
        (changed(lambda t: t["aggregators"].append(t["sites"].pop())), "aggregators: Tuple should have at most 2"),
        (changed(lambda t: t.update(sites=[])), "sites: there are 0; expected 1 to 10000"),
        (changed(lambda t: t["aggregators"][0].pop("address")), "aggregators: uni-x: address: must be given"),
        (changed(lambda t: t["aggregators"][0].update(address="x")), "uni-x: address: expected host:port"),
        (changed(lambda t: t["aggregators"][1].update(address="127.0.0.1:7700")), "have the same address"),
        (changed(lambda t: t["aggregators"].__setitem__(1, t["aggregators"][0])), "uni-x is both of them, and would"),
        (changed(lambda t: t["sites"].append(t["sites"][0])), "sites: north stands twice"),
        (changed(lambda t: t["sites"].append(t["aggregators"][0] | {"address": None})), "sites.2.address: unknown"),
        (changed(lambda t: t["sites"][0].update(t["coordinator"])), "the name hub is coordinator's and site hub's"),
        (changed(lambda t: t["coordinator"].update(adress="x:1")), "coordinator.adress: unknown setting (did you mean"),
        (changed(same_key), "north: certificate: it is uni-x's, not north's"),
        (changed(lambda t: t["sites"][0].update(certificate="-----BEGIN")), "north: certificate: holds no certificate"),
        (
            changed(lambda t: t["sites"][0].update(certificate="no.crt")),
            "no.crt: is missing, where the identity.crt",
        ),
        (changed(lambda t: t["sites"][0].update(certificate="a\0b")), "cannot be read (no such path)"),
        (changed(lambda t: t["sites"][0].update(certificate=".")), "cannot be read (Is a directory)"),
        (changed(lambda t: t["sites"][0].update(certificate="north/identity.key")), "certificate: holds a private key"),
        (
            lambda c: c.file.read_text() + "# " + (c.folder / "north/identity.key").read_text().replace("\n", "\n# "),
            "consortium.yaml: holds a private key",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(consortium, tmp_path, make, text):
    for name in ROLES:
        shutil.copytree(consortium.folder / name, tmp_path / name)
    file = tmp_path / "consortium.yaml"
    file.write_text(make(consortium))
    with pytest.raises(ConfigError) as caught:
        Roster.read(file)
    message = str(caught.value)
    assert message.startswith(f"{file}: ") and "\n" not in message and text in message, message


def test_a_key_under_two_names_is_refused(consortium, tmp_path):
    """Its owner can make a certificate of another name for it."""
    roster, key = consortium.roster, consortium.keys["uni-x"]
    renamed = Member("west", _certificate(key._key, "west", 9, datetime.now(UTC)))
    with pytest.raises(ConfigError, match="server 0 and site west have the same key"):
        replace(roster, sites=(*roster.sites, renamed))
    with pytest.raises(ConfigError, match="uni-x is both of them"):
        replace(roster, aggregators=(roster.aggregators[0], replace(renamed, address=("127.0.0.1", 1))))


@pytest.mark.parametrize(
    ("text", "address"),
    [("a.example:1", ("a.example", 1)), ("10.0.0.1:65535", ("10.0.0.1", 65535)), ("[::1]:7", ("::1", 7))],
)
def test_addresses(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "a", "a:", ":1", "a:0", "a:65536", "a b:1", "::1:7", "a:1\n", "a:٣", "http://a:1"]
)
def test_what_is_no_address(text):
    with pytest.raises(ValueError, match="expected host:port"):
        parse_address(text)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.sampled_from(["/", "north"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PLACES = [
    (),
    ("consortium",),
    ("aggregators",),
    ("aggregators", 0),
    ("aggregators", 1, "address"),
    ("aggregators", 1, "certificate"),
    ("coordinator",),
    ("coordinator", "name"),
    ("sites",),
    ("sites", 1),
    ("sites", 0, "name"),
    ("sites", 0, "certificate"),
]
modest = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def refused_in_one_line(file: Path) -> None:
    try:
        Roster.read(file)
    except ConfigError as error:
        assert str(error).startswith(str(file)) and len(str(error).splitlines()) == 1, str(error)


@given(st.sampled_from(PLACES), JUNK)
@modest
def test_junk_anywhere_in_a_file_is_one_line(consortium, tmp_path, place, junk):
    tree = {"roster": yaml.safe_load(consortium.file.read_text())}
    inner, path = tree, ("roster", *place)
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = junk
    (tmp_path / "junk.yaml").write_text(yaml.safe_dump(tree["roster"]))
    refused_in_one_line(tmp_path / "junk.yaml")


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode(errors="replace")))
@modest
def test_any_bytes_are_one_line(tmp_path, content):
    (tmp_path / "junk.yaml").write_bytes(content)
    refused_in_one_line(tmp_path / "junk.yaml")


@given(st.integers(0, 5000), st.binary(min_size=1, max_size=4))
@modest
def test_a_damaged_roster_is_one_line(consortium, tmp_path, at, junk):
    content = bytearray(consortium.file.read_bytes())
    at %= len(content)
    content[at : at + len(junk)] = junk
    (tmp_path / "junk.yaml").write_bytes(content)
    refused_in_one_line(tmp_path / "junk.yaml")


# Who meets by it


def meet(accepting, connecting, expected="server 0"):
    """Server 1 accepts, somebody connects to it as server 0; what each says, None: they met."""

    def outcome(act):
        try:
            act()
        except ProtocolError as error:
            assert isinstance(error, DisagreementError) and "\n" not in str(error)
            return error.reason
        return None

    def accept_one():
        connection, _ = listener.accept()
        secured = accepting.secure(connection, server_side=True)
        objecting = partial(_unexpected, {expected})
        _finish(_introduce(secured, accepting, objecting, b"s", "a newcomer", 0), secured, time.monotonic() + 20.0)
        secured.close()

    with listen("127.0.0.1", 0) as listener, ThreadPoolExecutor() as pool:
        accepted = pool.submit(outcome, accept_one)
        address = listener.getsockname()
        return outcome(lambda: connect(address, connecting, b"s", "server 1", Position(), 20.0).close()), (
            accepted.result()
        )


@pytest.mark.parametrize("name", ["uni-x", "hub", "north"])
def test_members_meet_and_know_each_others_roles(consortium, name):
    assert meet(consortium.identity("uni-y"), consortium.identity(name), ROLES[name]) == (None, None)


@pytest.mark.parametrize("name", ["hub", "north"])
def test_another_member_in_a_servers_place_is_refused_by_name(consortium, name):
    told, observed = meet(consortium.identity("uni-y"), consortium.identity(name))
    assert observed == f"shows the certificate of {ROLES[name]} where that of server 0 belongs"
    assert told == f"refuses this side, which {observed}"
    told, observed = meet(consortium.identity(name), consortium.identity("uni-x"))
    assert told == f"shows the certificate of {ROLES[name]} where that of server 1 belongs"
    assert observed == f"refuses this side, which {told}"


def believing_itself(consortium, key, role):
    """The identity of somebody whose own copy of the roster has its key in this role's place."""
    ours = consortium.roster
    roles = {der: named for der, named in ours.roles.items() if named != role}
    der = ssl.PEM_cert_to_DER_cert(key.certificate.decode())
    return PinnedIdentity.of(role, *key.files, {**roles, der: role})


@pytest.mark.parametrize("name", ["uni-x", "stranger"], ids=["a copied name with another key", "a stranger"])
def test_who_is_not_in_the_roster_is_refused_and_both_sides_say_why(consortium, tmp_path, name):
    stranger = believing_itself(consortium, OwnKey.create(tmp_path / "key", name), "server 0")
    told, observed = meet(consortium.identity("uni-y"), stranger)
    assert observed == "shows a certificate that is not in this side's roster; both sides need the same roster"
    assert told == (
        "refuses this side's certificate: it is not in the other side's roster; both sides need the same roster"
    )


def test_a_stranger_in_a_servers_place_is_refused_too(consortium, tmp_path):
    stranger = believing_itself(consortium, OwnKey.create(tmp_path / "key", "uni-y"), "server 1")
    told, observed = meet(stranger, consortium.identity("uni-x"))
    assert told == "shows a certificate that is not in this side's roster; both sides need the same roster"
    assert observed is not None and "it is not in the other side's roster" in observed


def test_a_certificate_signed_by_a_members_key_is_not_the_members(consortium, tmp_path):
    """A member cannot bring in others: its key signs for nobody."""
    member, guest = consortium.keys["north"], OwnKey.create(tmp_path / "guest", "guest")
    own, issuer = (x509.load_pem_x509_certificate(key.certificate) for key in (guest, member))
    builder = x509.CertificateBuilder(issuer.subject, own.subject, own.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(own.not_valid_before_utc).not_valid_after(own.not_valid_after_utc)
    for extension in own.extensions:
        value = extension.value
        if isinstance(value, x509.AuthorityKeyIdentifier):
            value = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())
        builder = builder.add_extension(value, extension.critical)
    guest.files[0].write_bytes(builder.sign(member._key, None).public_bytes(Encoding.PEM))
    forged = PinnedIdentity.of("server 0", *guest.files, consortium.roster.roles)
    told, observed = meet(consortium.identity("uni-y"), forged)
    assert told is not None and observed is not None and "shows a certificate that" in observed


@pytest.mark.parametrize(
    ("start", "observed", "told"),
    [
        (
            datetime(2020, 1, 1, tzinfo=UTC),
            "shows a certificate that has expired; make a new identity",
            "it has expired",
        ),
        (datetime.now(UTC) + timedelta(days=10), "is not valid yet; check the clocks", "it is bad or not valid yet"),
    ],
    ids=["expired", "not yet valid"],
)
def test_a_members_certificate_that_is_out_of_date_is_refused(consortium, tmp_path, start, observed, told):
    old = OwnKey.create(tmp_path / "old", "uni-x", 3, start)
    first, second = consortium.roster.aggregators
    roster = replace(consortium.roster, aggregators=(Member("uni-x", old.certificate, first.address), second))
    assert roster.aggregators[0].fault_of_dates() and not second.fault_of_dates()
    heard, seen = meet(roster.tls(consortium.keys["uni-y"], "server 1"), roster.tls(old, "server 0"))
    assert observed in seen and told in heard


def test_an_own_key_that_the_roster_does_not_have_for_the_role_is_refused_at_once(consortium, tmp_path):
    another = OwnKey.create(tmp_path / "key", "uni-x")
    for key, role in ((consortium.keys["hub"], "server 0"), (another, "server 0"), (another, "site west")):
        with pytest.raises(ConfigError, match=f"is not the certificate of {role} in the roster trial: ") as caught:
            consortium.roster.tls(key, role)
        assert key.fingerprint in str(caught.value) and "\n" not in str(caught.value)
