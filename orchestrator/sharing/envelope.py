"""Sealed envelopes: whoever carries a client's upload to a server cannot read it.

libsodium's sealed box (X25519, XSalsa20-Poly1305, an ephemeral sender key): anyone can seal to a server's public key,
only that server opens, and any change is noticed. What an envelope is for stands inside it, in the upload's header.
"""

from __future__ import annotations

from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox

__all__ = ["Keypair", "seal"]


def seal(message: bytes, public_key: bytes) -> bytes:
    """Encrypt to a server's 32-byte public key; 48 bytes longer than the message."""
    return SealedBox(PublicKey(public_key)).encrypt(message)


class Keypair:
    """A server's key pair; the private half never leaves the process."""

    def __init__(self) -> None:
        self._private = PrivateKey.generate()

    @property
    def public_key(self) -> bytes:
        return bytes(self._private.public_key)

    def open(self, envelope: bytes) -> bytes:
        """Decrypt. Raises ValueError if the envelope is damaged or sealed to another key."""
        try:
            return SealedBox(self._private).decrypt(envelope)
        except (CryptoError, ValueError, TypeError) as error:
            raise ValueError("the envelope is damaged or sealed to another server") from error
