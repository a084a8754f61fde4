"""Decoders of the cluster's own topics, in which the key says what the value is: commits and groups, transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.operations.records.coordinator_records import (
    TRANSACTION_RECORDS,
    Kinds,
    UnknownRecordError,
    read_record,
    with_readable_members,
)
from ottla.protocol.codec import ProtocolError
from ottla.protocol.messages.group_records import GROUP_RECORDS

# Key and value as documents; None for records that are not known here.
Internal = Callable[[bytes | None, bytes | None], tuple[Any, Any] | None]


def internal_decoder(topic: str) -> Internal | None:
    """None for topics that are not the cluster's own, or hold text."""
    kinds = {"__consumer_offsets": GROUP_RECORDS, "__transaction_state": TRANSACTION_RECORDS}.get(topic)
    return None if kinds is None else lambda key, value: _decode(kinds, key, value)


def _decode(kinds: Kinds, key: bytes | None, value: bytes | None) -> tuple[Any, Any] | None:
    if key is None:
        return None
    try:
        found = read_record(kinds, key, value)
    except (UnknownRecordError, ProtocolError):
        return None
    kind = kinds[found.kind].name
    shown = None if found.value is None else with_readable_members(found.value_json())
    return {"type": kind, **found.key_json()}, shown
