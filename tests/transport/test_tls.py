"""Who is refused and what each side then says; what is wrong with one's own files; what happens to damaged records."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from orchestrator.config import load_config
from orchestrator.coordinator.factory import create_engine
from orchestrator.errors import ConfigError, DisagreementError, PeerLostError, PeerTimeoutError, ProtocolError
from orchestrator.transport.channel import Position, listen
from orchestrator.transport.door import _finish, _introduce, _unexpected, accept, connect
from orchestrator.transport.tls import ROLES, Identity, _context, create_certificates, files

EXPIRED = datetime(2020, 1, 1, tzinfo=UTC)
FUTURE = datetime.now(UTC) + timedelta(days=10)


@pytest.fixture(scope="session")
def folders(tmp_path_factory, certificates):
    """Folders of certificates by what is wrong with them."""
    parent = tmp_path_factory.mktemp("folders")
    for name, start in (("expired", EXPIRED), ("future", FUTURE), ("other", None)):
        create_certificates(parent / name, 30, start)
    return {"good": certificates, **{path.name: path for path in parent.iterdir()}}


def unchecked(folder, role, *, trusting=False):
    """An identity whose own files nobody has looked at; a trusting one takes any server."""
    authority, certificate, key = (folder / name for name in files(role))
    client, server = (
        _context(side, certificate, key, authority) for side in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER)
    )
    if trusting:
        client.verify_mode = ssl.CERT_NONE
    return Identity(role, client, server)


def welcome(connection, server, session, round=0):
    """What `accept` does with one newcomer who should be server 0, but for keeping the refusal to itself."""
    secured = server.secure(connection, server_side=True)
    introduction = _introduce(secured, server, partial(_unexpected, {"server 0"}), session, "a newcomer", round)
    _finish(introduction, secured, time.monotonic() + 20.0)
    return secured


def meet(server, client, *, peer="server 1", sessions=(b"s", b"s")):
    """Let a client and a server that expects server 0 meet; what each has to say: (connecting, accepting side)."""

    def outcome(act):
        try:
            act().close()
        except ProtocolError as error:
            assert (error.phase, error.round) == ("handshake", 3)
            assert "\n" not in str(error)
            return error
        return None

    def accept_one():
        connection, _ = listener.accept()
        return welcome(connection, server, sessions[0], 3)

    def connect_one():
        return connect(listener.getsockname(), client, sessions[1], peer, Position("start", 3), 20.0)

    with listen("127.0.0.1", 0) as listener, ThreadPoolExecutor() as pool:
        accepting = pool.submit(outcome, accept_one)
        return outcome(connect_one), accepting.result()


# Who is refused


def test_those_who_belong_together_meet(identities):
    assert meet(identities["server 1"], identities["server 0"]) == (None, None)


@pytest.mark.parametrize(
    ("folder", "observed", "told"),
    [
        ("expired", "has expired; make new ones with `safegnn certs`", "it has expired; make new ones"),
        ("future", "is not valid yet; check the clocks", "bad or not valid yet; check both clocks"),
        ("other", "another CA signed; all machines need files of the same run", "another CA signed it; all machines"),
    ],
)
@pytest.mark.parametrize("at_fault", ["accepting", "connecting"])
def test_an_unfit_certificate_is_refused_and_both_sides_say_why(folders, folder, observed, told, at_fault):
    bad, good = folders[folder], folders["good" if folder == "other" else folder]
    if at_fault == "accepting":
        first, second = meet(unchecked(bad, "server 1"), unchecked(good, "server 0"))
        name = "server 1"
    else:
        second, first = meet(unchecked(good, "server 1"), unchecked(bad, "server 0", trusting=True))
        name = "a newcomer"
    assert isinstance(first, DisagreementError) and isinstance(second, DisagreementError)
    assert f"{name}: shows a certificate that " in str(first) and observed in str(first)
    assert "refuses this side's certificate: " in str(second) and told in str(second)


def test_a_certificate_of_another_role_is_refused_by_name(identities):
    wrong_server = meet(identities["dealer"], identities["server 0"])
    wrong_client = meet(identities["server 1"], identities["dealer"])
    itself = meet(identities["server 0"], identities["server 1"], peer="server 0")
    for (first, second), shown, wanted in (
        (wrong_server, "dealer", "server 1"),
        (wrong_client[::-1], "dealer", "server 0"),
        (itself[::-1], "server 1", "server 0"),
    ):
        text = f"shows the certificate of {shown} where that of {wanted} belongs"
        assert isinstance(first, DisagreementError) and first.reason == text
        assert isinstance(second, DisagreementError) and second.reason == f"refuses this side, which {text}"


def irregular(folder, flaw):
    """A CA and two roles' certificates that verify but for what RFC 5280 asks for, which only strict checking does."""
    now, keys = datetime.now(UTC), {name: ec.generate_private_key(ec.SECP256R1()) for name in ("CA", *ROLES[:2])}
    folder.mkdir()
    for name, key in keys.items():
        is_ca = name == "CA"
        extensions = [
            (x509.BasicConstraints(is_ca, 0 if is_ca else None), not (is_ca and flaw == "CA not critical")),
            (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
            (x509.SubjectAlternativeName([x509.DNSName(f"{name.replace(' ', '-')}.safegnn")]), False),
        ]
        if is_ca:
            usage = dict.fromkeys(
                ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
                 "crl_sign", "encipher_only", "decipher_only"),
                False,
            )  # fmt: skip
            extensions.append((x509.KeyUsage(key_cert_sign=True, **usage), True))
        elif flaw != "no authority key identifier":
            extensions.append((x509.AuthorityKeyIdentifier.from_issuer_public_key(keys["CA"].public_key()), False))
        subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (name, "CA"))
        builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        certificate = builder.sign(keys["CA"], hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        if is_ca:
            (folder / "ca.crt").write_bytes(certificate)
            continue
        _, crt, private = files(name)
        (folder / crt).write_bytes(certificate)
        pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (folder / private).write_bytes(key.private_bytes(*pem))
    return folder


@pytest.mark.parametrize("at_fault", ["accepting", "connecting"])
@pytest.mark.parametrize(
    ("flaw", "reason"),
    [
        (None, None),
        ("no authority key identifier", "Missing Authority Key Identifier"),
        ("CA not critical", "Basic Constraints of CA cert not marked critical"),
    ],
)
def test_certificates_are_checked_strictly_on_both_sides(tmp_path, flaw, reason, at_fault):
    folder = irregular(tmp_path / "irregular", flaw)
    client = unchecked(folder, "server 0", trusting=flaw is not None and at_fault == "connecting")
    connecting, accepting = meet(unchecked(folder, "server 1"), client)
    if flaw is None:
        assert (connecting, accepting) == (None, None)
        return
    observing = connecting if at_fault == "accepting" else accepting
    assert isinstance(observing, DisagreementError)
    assert f"shows a certificate that is refused: {reason}" in str(observing)


def test_servers_show_the_certificates_of_the_settings_folder(certificates):
    """A folder that was ignored would be replaced by certificates of the session, with which all works as well."""

    def shown(*overrides):
        with create_engine(load_config(overrides=["engine.preprocessing=dealer", *overrides])) as engine:
            engine.start(np.zeros(3))
            return {role: channel._socket.getpeercert(True) for role, channel in engine._channels.items()}

    expected = {role: ssl.PEM_cert_to_DER_cert((certificates / files(role)[1]).read_text()) for role in ROLES[:2]}
    assert shown(f"engine.certificates='{certificates}'") == expected
    assert not set(shown().values()) & set(expected.values())


def test_another_session_with_the_same_certificates_is_refused_on_both_sides(identities):
    for error in meet(identities["server 1"], identities["server 0"], sessions=(b"s", b"t")):
        assert isinstance(error, DisagreementError) and "belongs to another session" in str(error)


def test_older_tls_and_clients_without_certificate_are_refused(identities):
    no_certificate, old = (ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) for _ in range(2))
    for context in (no_certificate, old):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    for context, told, observed in (
        (no_certificate, "this side showed none", "shows no certificate"),
        (old, "does not speak TLS 1.3", "does not speak TLS 1.3"),
    ):
        connecting, accepting = meet(identities["server 1"], replace(identities["server 0"], client=context))
        assert isinstance(connecting, DisagreementError) and told in str(connecting)
        assert isinstance(accepting, DisagreementError) and observed in str(accepting)


def test_plaintext_is_refused_on_both_sides(identities):
    with listen("127.0.0.1", 0) as listener, ThreadPoolExecutor() as pool:
        address = listener.getsockname()

        def greet():
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"\x03\x00\x00\x00abc")
                connection.recv(1 << 16)

        pool.submit(greet)
        with pytest.raises(DisagreementError, match="phase handshake: server 1: sent something that is no record"):
            connect(address, identities["server 0"], b"s", "server 1", Position(), 20.0)
        with socket.create_connection(address) as plain:
            plain.sendall(b"\x03\x00\x00\x00abc")
            connection, _ = listener.accept()
            with pytest.raises(DisagreementError, match="a newcomer: sent something that is no record of TLS"):
                welcome(connection, identities["server 1"], b"s")


def test_a_timeout_says_who_was_turned_away(identities):
    with listen("127.0.0.1", 0) as listener, ThreadPoolExecutor() as pool:
        accepting = pool.submit(accept, listener, {"server 0"}, identities["server 1"], b"s", Position(), 3.0)
        with pytest.raises(DisagreementError):
            connect(listener.getsockname(), identities["dealer"], b"s", "server 1", Position(), 20.0)
        with pytest.raises(
            PeerTimeoutError,
            match=r"did not connect in 3 s \(engine.startup_timeout_sec\); turned away a newcomer from \S+: shows",
        ):
            accepting.result()


# One's own files


def damage(change):
    """A copy of the good folder with something changed; `change` gets the paths of server 0's three files."""

    def copied(folders, tmp_path):
        folder = tmp_path / "damaged"
        shutil.copytree(folders["good"], folder)
        change(*(folder / name for name in files("server 0")))
        return folder

    return copied


def swap(first, second):
    texts = first.read_bytes(), second.read_bytes()
    first.write_bytes(texts[1])
    second.write_bytes(texts[0])


def to_folder(path):
    path.unlink()
    path.mkdir()


def with_ca_of_another_run(folders, tmp_path):
    folder = damage(lambda *_: None)(folders, tmp_path)
    shutil.copy(folders["other"] / "ca.crt", folder / "ca.crt")
    return folder


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda folders, _: folders["expired"], "server-0.crt: the certificate expired on 2020-01-31; make new ones"),
        (lambda folders, _: folders["future"], "server-0.crt: the certificate is not valid before 2"),
        (with_ca_of_another_run, "server-0.crt: is signed by another CA than ca.crt"),
        (damage(lambda ca, crt, key: ca.unlink()), "ca.crt: is missing; copy it"),
        (damage(lambda ca, crt, key: crt.unlink()), "server-0.crt: is missing; copy it"),
        (damage(lambda ca, crt, key: key.unlink()), "server-0.key: is missing; copy it"),
        (damage(lambda ca, crt, key: to_folder(key)), "server-0.key: cannot be read (Is a directory)"),
        (damage(lambda ca, crt, key: ca.write_text("")), "ca.crt: holds no certificate"),
        (damage(lambda ca, crt, key: crt.write_bytes(b"\xff")), "server-0.crt: holds no certificate; all machines"),
        (damage(lambda ca, crt, key: key.write_bytes(b"\xff")), "server-0.key: holds no private key; all machines"),
        (damage(lambda ca, crt, key: swap(crt, key)), "server-0.crt: holds no certificate but a private key"),
        (damage(lambda ca, crt, key: shutil.copy(crt, key)), "server-0.key: holds no private key but a certificate"),
        (
            damage(lambda ca, crt, key: shutil.copy(key.with_name("dealer.key"), key)),
            "server-0.key: does not belong to server-0.crt",
        ),
        (
            damage(lambda ca, crt, key: swap(crt, crt.with_name("server-1.crt"))),
            "server-0.crt: is the certificate of server 1, not of server 0",
        ),
        (damage(lambda ca, crt, key: shutil.copy(ca, crt)), "server-0.crt: is the certificate of no known role"),
        (lambda _, tmp_path: tmp_path / "nowhere", "ca.crt: is missing"),
    ],
)
def test_a_fault_in_ones_own_files_is_one_line_with_cause_and_cure(folders, tmp_path, make, text):
    with pytest.raises(ConfigError) as caught:
        Identity.load(make(folders, tmp_path), "server 0")
    message = str(caught.value)
    assert message.startswith("engine.certificates: ") and "\n" not in message
    assert text in message


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_the_folder_is_private_and_holds_no_key_of_the_ca(tmp_path):
    folder = tmp_path / "new" / "certificates"
    end = create_certificates(folder, days=3)
    assert timedelta(days=2) < end - datetime.now(UTC) <= timedelta(days=3)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name for path in folder.iterdir()} == {name for role in ROLES for name in files(role)}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert all((b"PRIVATE KEY" in path.read_bytes()) == (path.suffix == ".key") for path in folder.iterdir())
    with pytest.raises(ConfigError, match="exists already"):
        create_certificates(folder)


# Damage on the way


class Relay:
    """Forwards between one client and one server; `change` is applied to what the client sends.

    Where it makes that shorter, the connection breaks off.
    """

    def __init__(self):
        self.change = lambda data: data
        self._sockets = []
        self._threads = []

    def __call__(self, address):
        self._listener = listen("127.0.0.1", 0)
        self._start(self._run, address)
        return self._listener.getsockname()

    def _start(self, target, *arguments):
        self._threads.append(threading.Thread(target=target, args=arguments))
        self._threads[-1].start()

    def _run(self, address):
        with self._listener:
            client, _ = self._listener.accept()
        server = socket.create_connection(address)
        self._sockets = [client, server]
        self._start(self._forward, client, server, lambda data: self.change(data))
        self._start(self._forward, server, client, lambda data: data)

    def _forward(self, source, sink, change):
        with suppress(OSError):
            while data := source.recv(1 << 16):
                changed = change(data)
                sink.sendall(changed)
                if len(changed) < len(data):
                    break
        for side in self._sockets:
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def close(self):
        for thread in self._threads:
            thread.join()
        for side in self._sockets:
            side.close()


@pytest.fixture
def relay():
    return Relay()


@pytest.fixture
def relayed(relay, connected):
    """Channels of server 0 and server 1 in the midst of a round, through the relay."""
    left, right = connected(Position("online", 7), 20.0, relay)
    left.send(b"undamaged")
    assert right.receive() == b"undamaged"
    yield left, right
    left.close()
    right.close()
    relay.close()


@pytest.mark.parametrize("place", [-1, 5, 0])
def test_a_flipped_byte_ends_the_round_on_both_sides(relay, relayed, place):
    """In the tag, in the ciphertext, in the type of the record."""
    left, right = relayed

    def flip(data):
        changed = bytearray(data)
        changed[place] ^= 1
        return bytes(changed)

    relay.change = flip
    left.send(b"x" * 100)
    with pytest.raises(DisagreementError, match="round 7, phase online: server 0: ") as caught:
        right.receive()
    if place:
        assert caught.value.reason == "sent a record that was damaged on the way"
    with pytest.raises(DisagreementError, match="round 7, phase online: server 1: ") as caught:
        left.receive()
    if place:
        assert caught.value.reason == "received a record that was damaged on the way"


def test_repeated_records_are_damage_too(relay, relayed):
    left, right = relayed
    relay.change = lambda data: data + data
    left.send(b"x")
    assert right.receive() == b"x"
    with pytest.raises(DisagreementError, match="server 0: sent a record that was damaged"):
        right.receive()


def test_a_stream_that_breaks_off_is_a_loss_on_both_sides(relay, relayed):
    left, right = relayed
    relay.change = lambda data: data[: len(data) // 2]
    left.send(b"x" * 100)
    for side, peer in ((right, "server 0"), (left, "server 1")):
        with pytest.raises(PeerLostError, match=f"round 7, phase online: {peer}: c"):
            side.receive()


def test_nothing_readable_crosses_the_wire(relay, relayed):
    left, right = relayed
    seen = []
    relay.change = lambda data: seen.append(data) or data
    left.send(b"a secret share" * 10)
    assert right.receive() == b"a secret share" * 10
    assert b"secret" not in b"".join(seen)
    assert len(b"".join(seen)) < 140 + 4 + 30  # one record, and no more
