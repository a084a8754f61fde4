"""The records of the topic `_schemas`, as Confluent's registry writes them. Pure.

Rules:
1. Keys are equal byte by byte: compaction knows no other equality. The order of their fields is Confluent's, an empty
   field is left out.
2. Values are equal as JSON. What we do not know in one is kept, so that a newer registry finds it again.
3. Whatever cannot be read raises UnreadableRecordError with one sentence; its reader skips and counts it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

SCHEMA: Final = "SCHEMA"
CONFIG: Final = "CONFIG"
MODE: Final = "MODE"
NOOP: Final = "NOOP"
DELETE_SUBJECT: Final = "DELETE_SUBJECT"
CLEAR_SUBJECT: Final = "CLEAR_SUBJECT"
CONTEXT: Final = "CONTEXT"
TENANT: Final = "default"
MAGIC: Final = {SCHEMA: 1, CONFIG: 0, MODE: 0, NOOP: 0, DELETE_SUBJECT: 0, CLEAR_SUBJECT: 0, CONTEXT: 0}
VERSION_MAX: Final = 2**31 - 1


class UnreadableRecordError(ValueError):
    """A record of which we cannot make sense; str() says why."""


class Key(NamedTuple):
    """`subject` is None for what is global, and the name of the context for a CONTEXT."""

    keytype: str
    subject: str | None = None
    version: int = 0


class Record(NamedTuple):
    """What is written: the value None is a tombstone. `raw` is a key that somebody else has written in his own way."""

    key: Key
    value: Mapping[str, Any] | None
    raw: bytes | None = None

    @property
    def key_bytes(self) -> bytes:
        return encode_key(self.key) if self.raw is None else self.raw

    @property
    def value_bytes(self) -> bytes | None:
        return None if self.value is None else to_json(self.value)


NOOP_KEY: Final = Key(NOOP)


def encode_key(key: Key) -> bytes:
    fields: dict[str, Any] = {"keytype": key.keytype}
    if key.keytype == CONTEXT:
        fields["tenant"] = TENANT
        fields["context"] = key.subject
    elif key.subject:
        fields["subject"] = key.subject
    if key.keytype == SCHEMA:
        fields["version"] = key.version
    fields["magic"] = MAGIC[key.keytype]
    return to_json(fields)


def decode_key(data: bytes | None) -> Key:
    fields = _object(data, "key")
    keytype = fields.get("keytype")
    if keytype not in MAGIC:
        raise UnreadableRecordError(f"the key type {str(keytype)[:40]} is not known")
    subject = fields.get("context" if keytype == CONTEXT else "subject")
    if subject is not None and not isinstance(subject, str):
        raise UnreadableRecordError("the key's subject is no text")
    if keytype in (SCHEMA, DELETE_SUBJECT, CONTEXT) and not subject:
        raise UnreadableRecordError("the key names no subject")
    if keytype != SCHEMA:
        return Key(keytype, subject or None)
    version = fields.get("version")
    if not isinstance(version, int) or not 1 <= version <= VERSION_MAX:
        raise UnreadableRecordError("the key's version is no version")
    return Key(keytype, subject, version)


def decode_value(data: bytes | None) -> dict[str, Any] | None:
    return None if data is None else _object(data, "value")


def to_json(value: object) -> bytes:
    """As Jackson writes it: no blanks, letters as they are."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _object(data: bytes | None, what: str) -> dict[str, Any]:
    if data is None:
        raise UnreadableRecordError(f"it has no {what}")
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise UnreadableRecordError(f"its {what} is no JSON: {problem}") from None
    if not isinstance(found, dict):
        raise UnreadableRecordError(f"its {what} is no object")
    return found
