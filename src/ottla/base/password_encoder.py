"""Secrets among the settings that are changed while a broker runs, as they stand in the metadata store.

Encrypted with a key derived from `password.encoder.secret`, in the form of Apache Kafka 3.9, which reads ours as
we read those of its brokers:

    cipherAlgorithm:AES/CBC/PKCS5Padding,encryptedPassword:...,initializationVector:...,iterations:4096,keyLength:128,...

Rules:
1. What was encrypted is read with its own algorithms; the settings say what is used for new ones.
2. A text that is not of that form is the secret itself: without password.encoder.secret it is stored as it is.
3. The stored text may come from any client with write access to the store: numbers are bounded before a key is derived.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from functools import lru_cache
from typing import Final, NamedTuple

CBC: Final = "AES/CBC/PKCS5Padding"
GCM: Final = "AES/GCM/NoPadding"
CIPHERS: Final = (CBC, GCM)
HASHES: Final = {
    "PBKDF2WithHmacSHA1": "sha1",
    "PBKDF2WithHmacSHA224": "sha224",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA384": "sha384",
    "PBKDF2WithHmacSHA512": "sha512",
}
KEY_FACTORY_DEFAULT: Final = "PBKDF2WithHmacSHA512"
KEY_BITS: Final = (128, 192, 256)
ITERATIONS_MIN, ITERATIONS_MAX = 1_024, 1_000_000
SALT_BYTES: Final = 256
SALT_BYTES_MAX: Final = 4_096
CBC_IV_BYTES: Final = 16
GCM_IV_BYTES: Final = 12
GCM_TAG_BITS: Final = 128
REQUIRED_FIELDS: Final = frozenset(
    {
        "cipherAlgorithm",
        "encryptedPassword",
        "initializationVector",
        "iterations",
        "keyLength",
        "passwordLength",
        "salt",
    }
)
DECODED_MAX: Final = 256  # kept, because to derive a key takes milliseconds


class Encoding(NamedTuple):
    """How new secrets are encrypted."""

    key_factory: str = KEY_FACTORY_DEFAULT
    cipher: str = CBC
    key_bits: int = 128
    iterations: int = 4_096


def is_encoded(text: str) -> bool:
    return "encryptedPassword:" in text and _fields(text).keys() >= REQUIRED_FIELDS


def encode_password(password: str, secret: str, encoding: Encoding) -> str:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415 (slow to load)
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415
    from cryptography.hazmat.primitives.padding import PKCS7  # noqa: PLC0415

    salt = secrets.token_bytes(SALT_BYTES)
    key = _key(secret, salt, encoding)
    fields = {
        "keyFactoryAlgorithm": encoding.key_factory,
        "cipherAlgorithm": encoding.cipher,
        "keyLength": str(encoding.key_bits),
        "salt": _base64(salt),
        "iterations": str(encoding.iterations),
        "passwordLength": str(_length_in_java(password)),
    }
    if encoding.cipher == GCM:
        iv = secrets.token_bytes(GCM_IV_BYTES)
        encrypted = AESGCM(key).encrypt(iv, password.encode(), None)
        fields["authenticationTagLength"] = str(GCM_TAG_BITS)
    else:
        iv = secrets.token_bytes(CBC_IV_BYTES)
        padder, encryptor = PKCS7(128).padder(), Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor()
        padded = padder.update(password.encode()) + padder.finalize()
        encrypted = encryptor.update(padded) + encryptor.finalize()
    fields |= {"initializationVector": _base64(iv), "encryptedPassword": _base64(encrypted)}
    return ",".join(f"{name}:{value}" for name, value in fields.items())


@lru_cache(maxsize=DECODED_MAX)
def decode_password(text: str, secret: str) -> str | None:
    """The secret that was encrypted; None if it was not, or not with this key."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415

    try:
        return _decode(_fields(text), secret)
    except (KeyError, ValueError, InvalidTag):
        return None


def _decode(fields: dict[str, str], secret: str) -> str:
    """Raises KeyError, ValueError or InvalidTag."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415
    from cryptography.hazmat.primitives.padding import PKCS7  # noqa: PLC0415

    encoding = Encoding(
        fields.get("keyFactoryAlgorithm", KEY_FACTORY_DEFAULT),
        fields["cipherAlgorithm"],
        int(fields["keyLength"]),
        int(fields["iterations"]),
    )
    salt, iv, encrypted = (_bytes(fields[name]) for name in ("salt", "initializationVector", "encryptedPassword"))
    if encoding.cipher not in CIPHERS or encoding.key_bits not in KEY_BITS or len(salt) > SALT_BYTES_MAX:
        raise ValueError("this form is not known")
    if not 1 <= encoding.iterations <= ITERATIONS_MAX:
        raise ValueError("too many iterations")
    key = _key(secret, salt, encoding)
    if encoding.cipher == GCM:
        if int(fields["authenticationTagLength"]) != GCM_TAG_BITS:
            raise ValueError("a short tag proves little")
        password = AESGCM(key).decrypt(iv, encrypted, None).decode()
    else:
        decryptor, unpadder = Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor(), PKCS7(128).unpadder()
        padded = decryptor.update(encrypted) + decryptor.finalize()
        password = (unpadder.update(padded) + unpadder.finalize()).decode()
    if _length_in_java(password) != int(fields["passwordLength"]):
        raise ValueError("another key makes another length")
    return password


def _key(secret: str, salt: bytes, encoding: Encoding) -> bytes:
    return hashlib.pbkdf2_hmac(
        HASHES[encoding.key_factory], secret.encode(), salt, encoding.iterations, encoding.key_bits // 8
    )


def _fields(text: str) -> dict[str, str]:
    pairs = (part.partition(":") for part in text.split(","))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("this is not base64") from None


def _length_in_java(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
