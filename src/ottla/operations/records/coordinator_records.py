"""Records of `__consumer_offsets` and `__transaction_state` as JSON, in the format of Kafka's tools.

Keys begin with the record type, values with a version (int16 each). Fields that a version lacks, and tagged fields with
their default, are left out; bytes are base64; UUIDs are URL-safe base64.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from ottla.base.names import id_text
from ottla.protocol.codec import ProtocolError, decode
from ottla.protocol.messages import consumer_groups
from ottla.protocol.messages.coordinator_records import RecordKind, TransactionLogKey, TransactionLogValue
from ottla.protocol.schema import fields_in, layout_of

TRANSACTION_RECORDS = {0: RecordKind("TransactionLog", TransactionLogKey, TransactionLogValue)}
CONSUMER_PARTS = {"subscription": consumer_groups.Subscription, "assignment": consumer_groups.Assignment}
KEY_VERSION = 0

_NUMBER = struct.Struct(">h")
Kinds = Mapping[int, RecordKind]


class UnknownRecordError(Exception):
    """An unknown record type."""

    def __init__(self, kind: int) -> None:
        super().__init__(f"Found an unknown record type {kind}")
        self.kind = kind


class CoordinatorRecord(NamedTuple):
    """One decoded record; the value is None for a tombstone."""

    kind: int
    key: Any
    version: int
    value: Any | None

    def key_json(self) -> dict[str, Any]:
        return as_json(self.key, KEY_VERSION)

    def value_json(self) -> dict[str, Any]:
        return as_json(self.value, self.version)


def read_record(kinds: Kinds, key: bytes, value: bytes | None) -> CoordinatorRecord:
    """Decode a record. Raises UnknownRecordError or ProtocolError."""
    number = _leading_number(key)
    kind = kinds.get(number)
    if kind is None:
        raise UnknownRecordError(number)
    decoded_key: Any = decode(kind.key, KEY_VERSION, memoryview(key), _NUMBER.size)[0]
    if value is None:
        return CoordinatorRecord(number, decoded_key, 0, None)
    version = _leading_number(value)
    if not 0 <= version <= layout_of(kind.value).max_version:
        raise ProtocolError(f"{kind.name} with version {version}")
    decoded_value: Any = decode(kind.value, version, memoryview(value), _NUMBER.size)[0]
    return CoordinatorRecord(number, decoded_key, version, decoded_value)


def as_json(message: Any, version: int) -> dict[str, Any]:
    """A message or struct, as Kafka's JSON converters write it."""
    found = {}
    for field in fields_in(type(message), version):
        value = getattr(message, field.name)
        is_null_struct = field.nullable and field.type.kind == "struct"  # its default in Kafka is not null
        if field.tag is None or is_null_struct or value != field.wire.default_value():
            found[camel_case(field.name)] = _value(value, version)
    return found


def with_readable_members(group: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a classic consumer group, with subscriptions and assignments of its members decoded."""
    if group.get("protocolType") == consumer_groups.CONSUMER:
        for member in group.get("members", ()):
            for field, cls in CONSUMER_PARTS.items():
                member[field] = _readable(cls, member[field])
    return group


def _readable(cls: type, text: str) -> Any:
    """Bytes that are not such a message stay base64."""
    data = base64.b64decode(text)
    try:
        message: Any = consumer_groups.read_versioned(cls, data)
    except ProtocolError:
        return text
    return as_json(message, min(_leading_number(data), layout_of(cls).max_version))


def compact(value: Any) -> str:
    """JSON without whitespace, as in Kafka."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _value(value: Any, version: int) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, UUID):
        return id_text(value)
    if isinstance(value, (list, tuple)):
        return [_value(item, version) for item in value]
    return as_json(value, version) if hasattr(value, "__wire__") else value


def _leading_number(data: bytes) -> int:
    if len(data) < _NUMBER.size:
        raise ProtocolError("the bytes end inside a version")
    number: int = _NUMBER.unpack_from(data)[0]
    return number
