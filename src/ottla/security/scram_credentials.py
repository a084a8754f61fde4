"""Stored SCRAM credentials (RFC 5802). They allow neither a login nor the recovery of the password.

The text form is Kafka's: `salt=...,stored_key=...,server_key=...,iterations=4096`, with base64 values.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final, NamedTuple

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}  # on the wire (KIP-554)
MECHANISMS: Final = {number: name for name, number in NUMBERS.items()}
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384  # maximum that a broker accepts
SALT_BYTES: Final = 24


class ScramCredential(NamedTuple):
    """The data for the check of one password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"<ScramCredential {self.iterations} iterations>"

    def to_text(self) -> str:
        salt, stored, server = (base64.b64encode(each).decode() for each in self[:3])
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"


def make_credential(
    mechanism: str, password: bytes, salt: bytes | None = None, iterations: int = ITERATIONS_MIN
) -> ScramCredential:
    """Return the credential of a password. Takes milliseconds, by design."""
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    return credential_from_salted(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def salted_password(mechanism: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iterations)


def credential_from_salted(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential of a salted password."""
    name = HASHES[mechanism]
    stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", name), iterations)


def parse_credential(mechanism: str, text: str) -> ScramCredential:
    """Return the inverse of to_text(). Raises ValueError."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    size = hashlib.new(HASHES[mechanism]).digest_size
    try:
        salt, stored, server = (
            base64.b64decode(fields[key], validate=True) for key in ("salt", "stored_key", "server_key")
        )
        iterations = int(fields["iterations"])
    except (KeyError, binascii.Error, ValueError):
        raise ValueError(f"not a credential of {mechanism}") from None
    if not salt or len(stored) != size or len(server) != size or iterations < 1:
        raise ValueError(f"not a credential of {mechanism}")
    return ScramCredential(salt, stored, server, iterations)
