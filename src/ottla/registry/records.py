"""Records of the topic `_schemas` in the format of Confluent's registry. Pure.

Rules:
1. Equal keys are equal bytes, because compaction compares bytes. The fields have Confluent's order; empty ones are left
   out.
2. Values are compared as JSON. Unknown fields are kept for newer registries.
3. Every unreadable record raises UnreadableRecordError with one sentence; the reader skips and counts it.
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
    """An unreadable record; str() is the reason."""


class Key(NamedTuple):
    """The key of a record; `subject` is None for global records, and the context's name for a CONTEXT."""

    keytype: str
    subject: str | None = None
    version: int = 0


class Record(NamedTuple):
    """A record to write; the value None is a tombstone. `raw` is a key that another registry wrote in
    its own format.
    """

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
        raise UnreadableRecordError("the key's subject is not text")
    if keytype in (SCHEMA, DELETE_SUBJECT, CONTEXT) and not subject:
        raise UnreadableRecordError("the key names no subject")
    if keytype != SCHEMA:
        return Key(keytype, subject or None)
    version = fields.get("version")
    if not isinstance(version, int) or not 1 <= version <= VERSION_MAX:
        raise UnreadableRecordError("the key's version is not valid")
    return Key(keytype, subject, version)


def decode_value(data: bytes | None) -> dict[str, Any] | None:
    return None if data is None else _object(data, "value")


def to_json(value: object) -> bytes:
    """JSON in Jackson's format: compact, without escaped letters."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _object(data: bytes | None, what: str) -> dict[str, Any]:
    if data is None:
        raise UnreadableRecordError(f"it has no {what}")
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise UnreadableRecordError(f"its {what} is not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise UnreadableRecordError(f"its {what} is not an object")
    return found
