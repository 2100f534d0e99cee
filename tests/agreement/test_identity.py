"""A participant's key: what is written, what is refused, and that a signature serves one purpose."""

from __future__ import annotations

import os
import shutil
import ssl
import stat
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agreement import identity
from orchestrator.agreement.identity import OwnKey, parse, verify
from orchestrator.errors import ConfigError


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return OwnKey.create(tmp_path_factory.mktemp("keys") / "north", "north")


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_a_key_is_its_owners_alone_and_loads_again(tmp_path):
    folder = tmp_path / "new" / "north"
    made = OwnKey.create(folder, "north", days=3)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {
        "identity.key": 0o600,
        "identity.crt": 0o600,
    }
    assert b"PRIVATE" not in made.certificate
    loaded = OwnKey.load(folder)
    assert (loaded.name, loaded.certificate, loaded.fingerprint) == ("north", made.certificate, made.fingerprint)
    assert verify(made.certificate, b"p", b"m", loaded.sign(b"p", b"m"))
    lifetime = parse(made.certificate).not_valid_after_utc - datetime.now(UTC)
    assert timedelta(days=2) < lifetime <= timedelta(days=3)


def test_nothing_is_overwritten(tmp_path, key):
    before = [path.read_bytes() for path in key.files]
    with pytest.raises(ConfigError, match="exists already"):
        OwnKey.create(key.files[0].parent, "north")
    assert [path.read_bytes() for path in key.files] == before


def test_the_fingerprint_is_what_other_tools_print(key):
    certificate = x509.load_pem_x509_certificate(key.certificate)
    assert key.fingerprint.replace(" ", "") == certificate.fingerprint(hashes.SHA256()).hex()
    assert {len(group) for group in key.fingerprint.split()} == {4}


def test_the_text_of_a_key_shows_nothing(key):
    assert type(key).__repr__ is object.__repr__


@pytest.mark.parametrize("name", ["", "North", "a b", "-a", "a/b", "../a", "a" * 64, "nörd", "a\n", "server 0"])
def test_a_name_that_cannot_be_read_out_or_written_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match=r"the name .*: expected 1 to 63 of a-z") as caught:
        OwnKey.create(tmp_path / "key", name)
    assert "\n" not in str(caught.value) and not (tmp_path / "key").exists()


# Signatures


def test_a_signature_is_of_one_purpose_message_and_key(tmp_path, key):
    other = OwnKey.create(tmp_path / "north", "north")
    signature = key.sign(b"safegnn offer 1", b"message")
    assert len(signature) == 64
    assert verify(key.certificate, b"safegnn offer 1", b"message", signature)
    assert not verify(key.certificate, b"safegnn upload 1", b"message", signature)
    assert not verify(key.certificate, b"safegnn offer 1", b"messagf", signature)
    assert not verify(other.certificate, b"safegnn offer 1", b"message", signature)
    for damaged in (b"", signature[:-1], signature + b"\0", bytes(64)):
        assert not verify(key.certificate, b"safegnn offer 1", b"message", damaged)


@given(st.binary(min_size=2, max_size=300), st.data())
def test_bytes_do_not_move_from_a_purpose_into_the_message(joined, data):
    at, other = (data.draw(st.integers(1, min(255, len(joined) - 1))) for _ in range(2))
    signed = [identity._signed(joined[:cut], joined[cut:]) for cut in (at, other)]
    assert (signed[0] == signed[1]) == (at == other)


def test_nothing_is_signed_that_tls_or_a_certificate_signs():
    """A handshake's begins with a space, a certificate's with a sequence of ASN.1."""
    for length in range(1, 256):
        assert identity._signed(b"\x20" * length, b"")[0] not in (0x20, 0x30)


@pytest.mark.parametrize("purpose", [b"", bytes(256)])
def test_a_purpose_has_a_length(key, purpose):
    with pytest.raises(ValueError, match="a purpose of"):
        key.sign(purpose, b"")


# One's own files


def damaged(change):
    def copied(key, tmp_path):
        folder = tmp_path / "damaged"
        shutil.copytree(key.files[0].parent, folder)
        change(folder / "identity.crt", folder / "identity.key")
        return folder

    return copied


def another(crt, key):
    folder = crt.parent / "other"
    OwnKey.create(folder, "north")
    shutil.copy(folder / "identity.key", key)


def of_another_kind(crt, key):
    made = ec.generate_private_key(ec.SECP256R1())
    key.write_bytes(
        made.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda key, tmp_path: tmp_path / "nowhere", "identity.crt: is missing; make it with"),
        (damaged(lambda crt, key: crt.unlink()), "identity.crt: is missing"),
        (damaged(lambda crt, key: key.unlink()), "identity.key: is missing"),
        (damaged(lambda crt, key: (key.unlink(), key.mkdir())), "identity.key: cannot be read (Is a directory)"),
        (damaged(lambda crt, key: crt.write_bytes(b"\xff")), "identity.crt: holds no certificate; take the"),
        (damaged(lambda crt, key: key.write_bytes(b"\xff")), "identity.key: holds no private key"),
        (damaged(lambda crt, key: shutil.copy(key, crt)), "identity.crt: holds a private key"),
        (damaged(lambda crt, key: shutil.copy(crt, key)), "identity.key: holds no private key"),
        (damaged(lambda crt, key: crt.write_bytes(crt.read_bytes() * 2)), "identity.crt: holds 2 certificates"),
        (damaged(lambda crt, key: key.chmod(0o640)), "identity.key: others than its owner can read it; `chmod 600` it"),
        (damaged(another), "identity.key: does not belong to identity.crt"),
        (damaged(of_another_kind), "identity.key: does not belong to identity.crt"),
    ],
)
def test_a_fault_in_ones_own_files_is_one_line_with_cause_and_cure(key, tmp_path, make, text):
    folder = make(key, tmp_path)
    with pytest.raises(ConfigError) as caught:
        OwnKey.load(folder)
    assert text in str(caught.value) and str(folder) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (datetime(2020, 1, 1, tzinfo=UTC), "the certificate expired on 2020-01-04; make a new identity"),
        (datetime.now(UTC) + timedelta(days=10), "the certificate is not valid before 2"),
    ],
)
def test_a_key_that_is_out_of_date_is_not_used(tmp_path, start, text):
    OwnKey.create(tmp_path / "key", "north", 3, start)
    with pytest.raises(ConfigError, match=text):
        OwnKey.load(tmp_path / "key")


# Others' certificates


def signed_by_itself(key, *, ca=False, names=("north",), signer=None):
    names = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(names, names, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca, None), True)
    algorithm = hashes.SHA256() if isinstance(key, ec.EllipticCurvePrivateKey) else None
    return builder.sign(signer or key, algorithm).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(
    "make",
    [
        lambda key: signed_by_itself(key, ca=True),
        lambda key: signed_by_itself(key, names=()),
        lambda key: signed_by_itself(key, names=("north", "south")),
        lambda key: signed_by_itself(key, names=("North",)),
        lambda key: signed_by_itself(key, signer=Ed25519PrivateKey.generate()),
        lambda key: signed_by_itself(ec.generate_private_key(ec.SECP256R1())),
    ],
    ids=["an authority", "no name", "two names", "no proper name", "signed by another", "another kind of key"],
)
def test_a_certificate_of_another_kind_is_none(make):
    with pytest.raises(ValueError, match="holds a certificate that `safegnn identity new` did not make"):
        parse(make(Ed25519PrivateKey.generate()))


def test_the_kind_of_certificate_that_those_tests_make_is_one():
    parse(signed_by_itself(Ed25519PrivateKey.generate()))


@given(st.data())
def test_whatever_is_damaged_in_a_certificate_is_one_line(key, data):
    der = bytearray(ssl.PEM_cert_to_DER_cert(key.certificate.decode()))
    for _ in range(data.draw(st.integers(1, 3))):
        der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    pem = ssl.DER_cert_to_PEM_cert(bytes(der)).encode()
    try:
        parse(pem)
    except ValueError as error:
        assert "\n" not in str(error) and str(error).startswith("holds ")
    else:
        assert ssl.PEM_cert_to_DER_cert(pem.decode()) == ssl.PEM_cert_to_DER_cert(key.certificate.decode())
