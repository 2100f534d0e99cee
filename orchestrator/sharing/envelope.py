"""Sealed envelopes: whoever carries a client's upload to a server cannot read it.

HPKE (RFC 9180, base mode) with X25519, HKDF-SHA256 and AES-128-GCM: anyone can seal to a server's public key, only
that server opens, and any change is noticed. What an envelope is for stands inside it, in the upload's header.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

__all__ = ["Keypair", "seal"]

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
_INFO = b"safegnn upload 1"


def seal(message: bytes, public_key: bytes) -> bytes:
    """Encrypt to a server's 32-byte public key; 48 bytes longer than the message."""
    return _SUITE.encrypt(message, X25519PublicKey.from_public_bytes(public_key), info=_INFO)


class Keypair:
    """A server's key pair; the private half never leaves the process."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()

    @property
    def public_key(self) -> bytes:
        return self._private.public_key().public_bytes_raw()

    def open(self, envelope: bytes) -> bytes:
        """Decrypt. Raises ValueError if the envelope is damaged or sealed to another key."""
        try:
            return _SUITE.decrypt(envelope, self._private, info=_INFO)
        except (InvalidTag, ValueError, TypeError) as error:
            raise ValueError("the envelope is damaged or sealed to another server") from error
