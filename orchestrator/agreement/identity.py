"""A participant's key: by it others know whom they talk to, and what it signed.

One Ed25519 key serves TLS and signatures. It never leaves the folder in which its owner made it; what others get is the
certificate, signed by the key itself, which says no more than a name, a key and dates. Nobody believes it because of
that signature: they believe the roster, in which it stands.

A signature is of a purpose and a message, so that one that was made for a purpose serves no other one. What is signed
begins with `_DOMAIN`: a handshake of TLS signs what begins with spaces (RFC 8446, section 4.4.3) and a certificate what
begins with a byte of ASN.1, hence neither can be had from the other.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orchestrator.errors import ConfigError
from orchestrator.files import write_new_folder

__all__ = [
    "CERTIFICATE",
    "KEY",
    "NAME",
    "OwnKey",
    "fault_of_dates",
    "in_groups",
    "key_of",
    "name_fault",
    "name_of",
    "parse",
    "readable",
    "verify",
]

KEY, CERTIFICATE = "identity.key", "identity.crt"

NAME = "1 to 63 of a-z, 0-9 and -, the first no -"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

_DOMAIN = b"SafeGNN signature\0"
_CLOCK_SKEW = timedelta(hours=1)
_LONGEST = 1 << 16  # of a file with a certificate or a key, which have less than a thousand bytes
_NEW = "make a new identity with `safegnn identity new`, and have its certificate put into the roster"


class OwnKey:
    """A participant's own private key and certificate.

    Attributes:
        name: of the participant.
        certificate: in PEM.
        fingerprint: SHA-256 of the certificate, see `readable`.
        files: paths of certificate and key, for TLS, which reads them itself.
    """

    def __init__(self, key: Ed25519PrivateKey, certificate: bytes, files: tuple[Path, Path]) -> None:
        self._key, self.certificate, self.files = key, certificate, files
        parsed = parse(certificate)
        self.name, self.fingerprint = name_of(parsed), readable(parsed)

    @classmethod
    def create(cls, folder: Path, name: str, days: int = 730, start: datetime | None = None) -> OwnKey:
        """Make a key and its certificate in a folder of mode 0700, as files of mode 0600.

        Args:
            folder: must not exist.
            name: of the participant; see `NAME`.
            days: lifetime of the certificate.
            start: of the lifetime, default now; an hour is granted to clocks that are behind.

        Raises:
            ConfigError: the name is none, or the folder exists or cannot be written.
        """
        if fault := name_fault(name):
            raise ConfigError(fault)
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        certificate = _certificate(key, name, days, start or datetime.now(UTC))
        write_new_folder(folder, {CERTIFICATE: certificate, KEY: private})
        return cls(key, certificate, (folder / CERTIFICATE, folder / KEY))

    @classmethod
    def load(cls, folder: Path) -> OwnKey:
        """Read and check a folder that `create` made. Raises ConfigError with file, cause and cure."""
        certificate, key = folder / CERTIFICATE, folder / KEY
        pem, private = _read(certificate), _read(key)
        try:
            parsed = parse(pem)
        except ValueError as error:
            raise ConfigError(f"{certificate}: {error}") from None
        if key.stat().st_mode & 0o077:
            raise ConfigError(f"{key}: others than its owner can read it; `chmod 600` it, or {_NEW} if they have")
        try:
            loaded = serialization.load_pem_private_key(private, None)
        except (ValueError, TypeError):
            raise ConfigError(f"{key}: holds no private key without a passphrase; {_NEW}") from None
        if not isinstance(loaded, Ed25519PrivateKey) or loaded.public_key() != parsed.public_key():
            raise ConfigError(f"{key}: does not belong to {certificate.name}; {_NEW}")
        if fault := fault_of_dates(parsed):
            raise ConfigError(f"{certificate}: {fault}")
        return cls(loaded, pem, (certificate, key))

    def sign(self, purpose: bytes, message: bytes) -> bytes:
        """64 bytes that `verify` accepts for this purpose and message, and for no other."""
        return self._key.sign(_signed(purpose, message))


def verify(certificate: bytes, purpose: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the key of a certificate from a roster signed the message for the purpose.

    Dates are not looked at: who is out of date cannot load its own key, and is refused by TLS. Who is no longer to be
    believed is taken out of the roster.
    """
    try:
        key_of(parse(certificate)).verify(signature, _signed(purpose, message))
    except InvalidSignature:
        return False
    return True


@lru_cache(maxsize=1 << 14)  # every signature asks for a certificate of the roster again
def parse(pem: bytes) -> x509.Certificate:
    """The certificate of a participant. Raises ValueError, which says what it is instead; dates are not looked at."""
    if b"PRIVATE KEY" in pem:
        raise ValueError(f"holds a private key, which no one but its owner may have; {_NEW}")
    try:
        several = x509.load_pem_x509_certificates(pem)
    except Exception:  # a damaged one makes the readers of ASN.1 raise whatever they like
        raise ValueError("holds no certificate; take the identity.crt that `safegnn identity new` wrote") from None
    if len(several) != 1:
        raise ValueError(f"holds {len(several)} certificates; expected a participant's own")
    try:
        _check(several[0])
    except Exception:
        raise ValueError("holds a certificate that `safegnn identity new` did not make") from None
    return several[0]


def _check(certificate: x509.Certificate) -> None:
    """Raises something where it is none that `_certificate` makes."""
    key_of(certificate)
    certificate.verify_directly_issued_by(certificate)
    limits = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    if limits.ca or name_fault(name_of(certificate)):
        raise ValueError("expected a name's certificate, which signs no other one")
    fault_of_dates(certificate)


def key_of(certificate: x509.Certificate) -> Ed25519PublicKey:
    """Raises ValueError for a key of another kind."""
    key = certificate.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("expected an Ed25519 key")
    return key


def name_of(certificate: x509.Certificate) -> str:
    """The participant's name. Raises ValueError where there are none or several."""
    [name] = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value)


def name_fault(name: str) -> str:
    """What is wrong with a participant's name; empty: nothing. A name stands in file names and is read out aloud."""
    return "" if _NAME.fullmatch(name) else f"the name {name[:80]!r}: expected {NAME}"


def readable(certificate: x509.Certificate) -> str:
    """SHA-256 of the certificate, in groups that one person reads to another: what `openssl x509 -fingerprint` says."""
    return in_groups(certificate.fingerprint(hashes.SHA256()).hex())


def in_groups(digits: str) -> str:
    """Of four, as one person reads them to another."""
    return " ".join(digits[at : at + 4] for at in range(0, len(digits), 4))


def fault_of_dates(certificate: x509.Certificate, now: datetime | None = None) -> str:
    """Why a certificate serves nobody today, with the cure; empty: it does."""
    now = now or datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        return f"the certificate expired on {certificate.not_valid_after_utc:%Y-%m-%d}; {_NEW}"
    if now < certificate.not_valid_before_utc:
        return (
            f"the certificate is not valid before {certificate.not_valid_before_utc:%Y-%m-%d}; check this machine's "
            "clock"
        )
    return ""


def _signed(purpose: bytes, message: bytes) -> bytes:
    if not 1 <= len(purpose) <= 255:
        raise ValueError(f"a purpose of {len(purpose)} bytes; expected 1 to 255")
    return _DOMAIN + bytes([len(purpose)]) + purpose + message


def _certificate(key: Ed25519PrivateKey, name: str, days: int, start: datetime) -> bytes:
    """Signed by the key itself; it signs no other one."""
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign", "crl_sign",
         "encipher_only", "decipher_only"),
        False,
    )  # fmt: skip
    builder = x509.CertificateBuilder(own, own, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(start - _CLOCK_SKEW).not_valid_after(start + timedelta(days=days))
    for extension, critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.KeyUsage(digital_signature=True, **usage), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), False),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical)
    return builder.sign(key, None).public_bytes(serialization.Encoding.PEM)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST)
    except FileNotFoundError:
        raise ConfigError(f"{path}: is missing; make it with `safegnn identity new`") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
