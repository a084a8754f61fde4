"""Keys and values in the format of `kafka-dump-log.sh`: by Kafka's decoder classes, and records of internal topics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ottla.operations.errors import OperationError
from ottla.operations.records.coordinator_records import (
    TRANSACTION_RECORDS,
    Kinds,
    UnknownRecordError,
    compact,
    read_record,
    with_readable_members,
)
from ottla.operations.records.deserializers import DeserializationError, deserializer
from ottla.protocol.codec import ProtocolError
from ottla.protocol.messages.coordinator_records import GROUP_RECORDS
from ottla.protocol.records import Record

GROUP_METADATA = 2  # a record type
DELETED = "<DELETE>"
DECODERS = {
    "StringDecoder": "string",
    "DefaultDecoder": "bytes",  # Kafka prints the address of the array instead
    "IntegerDecoder": "int",
    "LongDecoder": "long",
}

Field = Callable[[bytes], str]


class DecodedText(NamedTuple):
    """Key and value as text; None is left out."""

    key: str | None
    value: str | None


Decoder = Callable[[Record], DecodedText]


def class_decoder(key_class: str, value_class: str) -> Decoder:
    """Decode keys and values by one decoder class each."""
    key, value = _field(key_class), _field(value_class)

    def decode(record: Record) -> DecodedText:
        return DecodedText(
            None if record.key is None else key(record.key), None if record.value is None else value(record.value)
        )

    return decode


def decode_internal(kinds: Kinds, record: Record) -> DecodedText:
    """A record of a coordinator's topic as JSON."""
    if record.key is None:
        raise OperationError(
            f"Failed to decode message at offset {record.offset} using the specified decoder "
            "(message had a missing key)"
        )
    try:
        found = read_record(kinds, record.key, record.value)
    except UnknownRecordError as unknown:
        return DecodedText(f"Unknown record type {unknown.kind} at offset {record.offset}, skipping.", None)
    except ProtocolError as problem:
        return DecodedText(f"Error at offset {record.offset}, skipping. {problem}", None)
    key = compact({"type": str(found.kind), "data": found.key_json()})
    if found.value is None:
        return DecodedText(key, DELETED)
    data = found.value_json()
    if kinds is GROUP_RECORDS and found.kind == GROUP_METADATA:
        data = with_readable_members(data)
    return DecodedText(key, compact({"version": str(found.version), "data": data}))


decode_offsets: Decoder = partial(decode_internal, GROUP_RECORDS)
decode_transactions: Decoder = partial(decode_internal, TRANSACTION_RECORDS)


def _field(name: str) -> Field:
    simple = name.rpartition(".")[2]
    found = deserializer(DECODERS.get(simple, simple.removesuffix("Decoder")))
    if found is None:
        raise OperationError(f"the decoder {name} is not known: there are {', '.join(DECODERS)}")

    def field(data: bytes) -> str:
        try:
            return found(data).decode("utf-8", "replace")
        except DeserializationError as problem:
            raise OperationError(str(problem)) from None

    return field
