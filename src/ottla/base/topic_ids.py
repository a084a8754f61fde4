"""Ids of topics as Kafka writes them."""

from __future__ import annotations

import base64
import string
from uuid import UUID

_BASE64 = frozenset(string.ascii_letters + string.digits + "-_")


def id_text(topic_id: UUID) -> str:
    """A topic id as Kafka writes it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def parse_id(text: str) -> UUID:
    """The reverse; raises ValueError with Kafka's sentence."""
    if len(text) > 24:
        raise ValueError(f"Input string with prefix `{text[:24]}` is too long to be decoded as a base64 UUID")
    for letter in text.rstrip("="):
        if letter not in _BASE64:
            raise ValueError(f"Illegal base64 character {ord(letter):x}")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise ValueError(f"Input string `{text}` is not a base64-encoded UUID") from None
    if len(data) != 16:
        raise ValueError(
            f"Input string `{text}` decoded as {len(data)} bytes, which is not equal to the expected 16 bytes "
            "of a base64-encoded UUID"
        )
    return UUID(bytes=data)
