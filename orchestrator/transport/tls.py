"""Who is who on a connection: mutual TLS 1.3, under a private CA that signs for nobody else, or by pinned certificates.

Both sides show a certificate, and each checks the other's and then the role that belongs at the other end. That makes a
connection private, authentic and in order against anybody on the network. It does not make a peer honest, and it hides
neither sizes nor times of messages.

Where one program starts all processes, certificates come from a CA and name one of four roles. Where organisations run
their own, a participant trusts the very certificates of its roster (`orchestrator.agreement.roster`), which says whose
they are.

The folder of a CA: `ca.crt`, and `<role>.crt` and `<role>.key` of each role. A machine needs `ca.crt` and its own
role's two files. The CA's key is never written: with it, whoever reads the folder could make a further server 1. The
price is that roles are not renewed or added one by one; a whole new folder takes one command, `safegnn certs`.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from orchestrator.errors import ConfigError

__all__ = ["ROLES", "Identity", "PinnedIdentity", "create_certificates", "explain", "files"]

ROLES = ("server 0", "server 1", "dealer", "coordinator")

_NEW = "make new ones with `safegnn certs`"
_ONE_RUN = "all machines need files of the same run of `safegnn certs`"
_CLOCK_SKEW = timedelta(hours=1)

_NEW_IDENTITY = "make a new identity with `safegnn identity new`, and have its certificate put into the roster"
_ONE_ROSTER = "both sides need the same roster"

_VERIFICATION = {  # X509_V_ERR_* of OpenSSL
    9: "shows a certificate that is not valid yet; check the clocks of both machines",
    10: "shows a certificate that has expired; {new}",
    **dict.fromkeys((7, 18, 19, 20, 21, 24), "shows a certificate that {unknown}"),
}
_ALERTS = {
    "CERTIFICATE_EXPIRED": "refuses this side's certificate: it has expired; {new}",
    "UNKNOWN_CA": "refuses this side's certificate: {refused}",
    "BAD_CERTIFICATE": "refuses this side's certificate: it is bad or not valid yet; check both clocks, or {new}",
    "CERTIFICATE_REQUIRED": "wants a certificate, and this side showed none",
    "BAD_RECORD_MAC": "received a record that was damaged on the way",
}
_REASONS = {
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": "sent a record that was damaged on the way",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "shows no certificate",
    **dict.fromkeys(("WRONG_VERSION_NUMBER", "HTTP_REQUEST"), "sent something that is no record of TLS"),
    **dict.fromkeys(("UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION"), "does not speak TLS 1.3"),
}


_OF_A_CA = {
    "new": _NEW,
    "unknown": f"another CA signed; {_ONE_RUN}",
    "refused": f"another CA signed it; {_ONE_RUN}",
}
_OF_A_ROSTER = {
    "new": _NEW_IDENTITY,
    "unknown": f"is not in this side's roster; {_ONE_ROSTER}",
    "refused": f"it is not in the other side's roster; {_ONE_ROSTER}",
}
"""What explanations say of a certificate that nobody knows, and which cure they have."""


@dataclass(frozen=True)
class Identity:
    """One role's certificate, and whom it trusts: what the same CA signed, and nothing else."""

    role: str
    client: ssl.SSLContext
    server: ssl.SSLContext

    @staticmethod
    def load(folder: Path, role: str) -> Identity:
        """Read and check a role's files. Raises ConfigError with file, cause and cure; no connection is tried."""
        _check(folder, role)
        authority, certificate, key = (folder / name for name in files(role))
        client, server = (
            _context(protocol, certificate, key, authority)
            for protocol in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER)
        )
        server.num_tickets = 0  # nobody resumes a session, so nothing arrives that was not sent
        return Identity(role, client, server)

    def secure(self, connection: socket.socket, *, server_side: bool) -> ssl.SSLSocket:
        """TLS on a fresh connection, which no longer blocks; the handshake is still to be made. Raises OSError.

        A client has not been accepted yet when its handshake ends: a refusal of its certificate comes with its first
        read.
        """
        connection.setblocking(False)
        context = self.server if server_side else self.client
        return context.wrap_socket(connection, server_side=server_side, do_handshake_on_connect=False)

    def peer_role(self, connection: ssl.SSLSocket) -> str:
        """The role that the peer's certificate, already verified, names."""
        # of the field types of a certificate this one has pairs of kind and name
        pairs = cast(tuple[tuple[str, str], ...], (connection.getpeercert() or {}).get("subjectAltName", ()))
        return _role([name for kind, name in pairs if kind == "DNS"])

    def explain(self, error: ssl.SSLError) -> str:
        """What a failed handshake says about the peer, with the cure where there is one."""
        return explain(error)


@dataclass(frozen=True)
class PinnedIdentity(Identity):
    """One participant's certificate, and whom it trusts: exactly the certificates that it was given.

    Attributes:
        roles: of the trusted certificates, by their DER.
    """

    roles: Mapping[bytes, str] = field(default_factory=dict)

    @staticmethod
    def of(role: str, certificate: Path, key: Path, roles: Mapping[bytes, str]) -> PinnedIdentity:
        """Args: certificate, key: one's own files; roles: of the others' certificates, which sign themselves.

        Raises:
            ConfigError: the files cannot be read, or do not belong together.
        """
        trusted = "".join(map(ssl.DER_cert_to_PEM_cert, roles))
        try:
            client, server = (
                _context(protocol, certificate, key, cadata=trusted)
                for protocol in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER)
            )
        except OSError as error:
            raise ConfigError(f"{key}: cannot be used with {certificate.name} ({error.strerror})") from None
        server.num_tickets = 0
        return PinnedIdentity(role, client, server, roles)

    def peer_role(self, connection: ssl.SSLSocket) -> str:
        """The role of the very certificate that the peer shows, whatever it says in it."""
        return self.roles.get(connection.getpeercert(binary_form=True) or b"", "nobody in the roster")

    def explain(self, error: ssl.SSLError) -> str:
        return explain(error, _OF_A_ROSTER)


def explain(error: ssl.SSLError, words: Mapping[str, str] = _OF_A_CA) -> str:
    """What a failed handshake or record says about the peer, with the cure where there is one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        known = _VERIFICATION.get(error.verify_code)
        return known.format(**words) if known else f"shows a certificate that is refused: {error.verify_message}"
    reason = error.reason or str(error)
    named = _REASONS.get(reason) or _ALERTS.get(reason.partition("_ALERT_")[2])
    return named.format(**words) if named else f"broke TLS ({reason.lower().replace('_', ' ')})"


def files(role: str) -> tuple[str, str, str]:
    """The files that a role's machine needs: the CA's certificate, its own certificate, its own key."""
    name = role.replace(" ", "-")
    return "ca.crt", f"{name}.crt", f"{name}.key"


def create_certificates(folder: Path, days: int = 365, start: datetime | None = None) -> datetime:
    """Make a CA, sign one certificate for each role, write the folder and forget the CA's key.

    Keys are on P-256. Files have mode 0600 and the folder 0700.

    Args:
        folder: must not exist.
        days: lifetime. A connection that stands is not ended by it.
        start: the lifetime's begin, default now; an hour is granted to clocks that are behind.

    Returns:
        when the certificates expire.

    Raises:
        ConfigError: the folder exists or cannot be written.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    start = start or datetime.now(UTC)
    end = start + timedelta(days=days)
    authority = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "SafeGNN CA")])

    def sign(
        name: x509.Name, public: ec.EllipticCurvePublicKey, extensions: dict[x509.ExtensionType, bool], *, is_ca: bool
    ) -> bytes:
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign",
             "encipher_only", "decipher_only"),
            False,
        )  # fmt: skip
        usage |= {"key_cert_sign": is_ca, "digital_signature": not is_ca}
        builder = x509.CertificateBuilder().issuer_name(issuer).subject_name(name).public_key(public)
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(start - _CLOCK_SKEW).not_valid_after(end)
        for extension, critical in {
            x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None): True,
            x509.KeyUsage(**usage): True,
            x509.SubjectKeyIdentifier.from_public_key(public): False,
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()): False,
            **extensions,
        }.items():
            builder = builder.add_extension(extension, critical)
        return builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    contents = {"ca.crt": sign(issuer, authority.public_key(), {}, is_ca=True)}
    for role in ROLES:
        _, certificate, private = files(role)
        key = ec.generate_private_key(ec.SECP256R1())
        extensions = {
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]): False,
            x509.SubjectAlternativeName([x509.DNSName(_host(role))]): False,
        }
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, role)])
        contents[certificate] = sign(name, key.public_key(), extensions, is_ca=False)
        contents[private] = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    from orchestrator.files import write_new_folder  # a server that runs writes nothing

    write_new_folder(folder, contents)
    return end


def _host(role: str) -> str:
    return role.replace(" ", "-") + ".safegnn"


def _role(names: list[str]) -> str:
    return next((role for role in ROLES if names == [_host(role)]), "no known role")


def _context(
    protocol: int, certificate: Path, key: Path, authority: Path | None = None, cadata: str | None = None
) -> ssl.SSLContext:
    """Args: authority, cadata: whom it trusts, a file or a text."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the role is checked instead, on both sides, by what `peer_role` says
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(authority, cadata=cadata)
    context.load_cert_chain(certificate, key)
    return context


def _check(folder: Path, role: str) -> None:
    """Raise ConfigError for anything about a role's own files that would fail a handshake later."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    paths = [folder / name for name in files(role)]
    contents = [_read(path) for path in paths]
    try:
        authority = x509.load_pem_x509_certificate(contents[0])
    except ValueError:
        raise _fault(paths[0], f"holds no certificate; {_ONE_RUN}") from None
    try:
        certificate = x509.load_pem_x509_certificate(contents[1])
    except ValueError:
        swapped = " but a private key: .crt and .key are swapped" if b"PRIVATE KEY" in contents[1] else f"; {_ONE_RUN}"
        raise _fault(paths[1], f"holds no certificate{swapped}") from None
    try:
        key = load_pem_private_key(contents[2], None)
    except (ValueError, TypeError):
        swapped = " but a certificate: .crt and .key are swapped" if b"CERTIFICATE" in contents[2] else f"; {_ONE_RUN}"
        raise _fault(paths[2], f"holds no private key{swapped}") from None
    try:
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        named = _role(alternative.get_values_for_type(x509.DNSName))
    except (ValueError, x509.ExtensionNotFound):
        named = _role([])
    if named != role:
        raise _fault(paths[1], f"is the certificate of {named}, not of {role}; each role needs its own files")
    if certificate.public_key() != key.public_key():
        raise _fault(paths[2], f"does not belong to {paths[1].name}; {_ONE_RUN}")
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise _fault(paths[1], f"is signed by another CA than {paths[0].name}; {_ONE_RUN}") from None
    now = datetime.now(UTC)
    for path, dated in ((paths[1], certificate), (paths[0], authority)):
        if now > dated.not_valid_after_utc:
            raise _fault(path, f"the certificate expired on {dated.not_valid_after_utc:%Y-%m-%d}; {_NEW}")
        if now < dated.not_valid_before_utc:
            first = dated.not_valid_before_utc
            raise _fault(path, f"the certificate is not valid before {first:%Y-%m-%d}; check this machine's clock")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise _fault(path, "is missing; copy it from the folder that `safegnn certs` wrote") from None
    except OSError as error:
        raise _fault(path, f"cannot be read ({error.strerror})") from None


def _fault(path: Path, text: str) -> ConfigError:
    return ConfigError(f"engine.certificates: {path}: {text}")
