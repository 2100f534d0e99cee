"""Sealed envelopes: whoever carries a client's upload to a server, or a server's answer to a client, cannot read it.

HPKE (RFC 9180, base mode) with X25519, HKDF-SHA256 and AES-128-GCM: anyone can seal to a public key, only the holder of
the private one opens, and any change is noticed. An envelope sealed for one purpose does not open for another; which
round and place it is for stands inside it, in the message's header.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

__all__ = ["ANSWER", "SEAL_BYTES", "UPLOAD", "Keypair", "seal"]

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)

UPLOAD, ANSWER = b"safegnn upload 1", b"safegnn answer 1"
"""The purposes: from a client to a server, and back."""

SEAL_BYTES = 48
"""How much longer an envelope is than its message: an X25519 key and the tag of AES-GCM."""


def seal(message: bytes, public_key: bytes, purpose: bytes = UPLOAD) -> bytes:
    """Encrypt to a 32-byte public key; `SEAL_BYTES` longer than the message. Raises ValueError for one that is none."""
    return _SUITE.encrypt(message, X25519PublicKey.from_public_bytes(public_key), info=purpose)


class Keypair:
    """A server's key pair, or a client's for its answers; the private half never leaves the process."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()

    @property
    def public_key(self) -> bytes:
        return self._private.public_key().public_bytes_raw()

    def open(self, envelope: bytes, purpose: bytes = UPLOAD) -> bytes:
        """Decrypt. Raises ValueError if the envelope is damaged, or sealed to another key or for another purpose."""
        try:
            return _SUITE.decrypt(envelope, self._private, info=purpose)
        except (InvalidTag, ValueError, TypeError) as error:
            raise ValueError("the envelope is damaged or sealed to another key") from error
