"""One event of the audit trail as a line of JSON; docs/audit.md defines the schema.

Rules:
1. Every line contains all fields; a field that does not apply is null. Removing or redefining a field requires a new
   `version`.
2. A line is bounded: client texts are cut, and too long values of `before` and `after` are replaced by their size.
3. No secrets: passwords, salts and tokens are omitted where a change is described.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.base.errors import Error

if TYPE_CHECKING:
    from ottla.broker.context import Context

SCHEMA_VERSION: Final = 1
LINE_BYTES_MAX: Final = 64 << 10
TEXT_LENGTH_MAX: Final = 1_000
UNKNOWN_SOFTWARE: Final = "unknown"

SUCCESS: Final = "success"
FAILURE: Final = "failure"
DENIED: Final = "denied"
PERMITTED: Final = "permitted"  # would be denied if the authorizer were not in permissive mode

ResourceState = Mapping[str, Any] | None


class ClientIdentity(NamedTuple):
    """The client of an event, as far as this broker knows it."""

    principal: str | None
    host: str | None
    client_id: str | None
    software: str | None  # as reported by the client
    listener: str | None
    api: str | None  # the requested API


class Change(NamedTuple):
    """The change of one resource. With an error, `after` is the requested state."""

    resource_type: str | None
    resource: str | None
    before: ResourceState = None
    after: ResourceState = None
    error: int = Error.NONE
    message: str | None = None


class EncodedEvent(NamedTuple):
    """An event that is ready to be written."""

    id: str
    time_ms: int
    value: bytes


def client_identity(context: Context, api: str | None) -> ClientIdentity:
    client = context.client
    software = None
    if client.software_name != UNKNOWN_SOFTWARE:
        software = f"{client.software_name} {client.software_version}"
    return ClientIdentity(
        truncate_text(client.principal),
        client.host,
        truncate_text(context.client_id),
        truncate_text(software),
        client.listener_name,
        api,
    )


NO_CLIENT: Final = ClientIdentity(None, None, None, None, None, None)


def encode_event(
    event: str,
    client: ClientIdentity,
    change: Change,
    *,
    id_: str,
    time_ms: int,
    broker: int,
    outcome: str | None = None,
    count: int = 1,
) -> EncodedEvent:
    """Return the event as JSON.

    `count` is the number of equal events, of which this is the last; a failed change is `requested`.
    """
    has_error = change.error != Error.NONE
    outcome = outcome or (FAILURE if has_error else SUCCESS)
    is_done = outcome == SUCCESS
    fields: dict[str, Any] = {
        "version": SCHEMA_VERSION,
        "id": id_,
        "time": datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "event": event,
        "outcome": outcome,
        "error": error_name(change.error) if has_error else None,
        "message": truncate_text(change.message),
        **{name: truncate_text(text) for name, text in client._asdict().items()},
        "broker": broker,
        "resource_type": change.resource_type,
        "resource": truncate_text(change.resource),
        "before": change.before,
        "after": change.after if is_done else None,
        "requested": None if is_done else change.after,
        "count": count,
    }
    value = encode_json(fields)
    if len(value) > LINE_BYTES_MAX:
        for name in ("before", "after", "requested"):
            if fields[name] is not None:
                fields[name] = {"omitted_bytes": len(encode_json(fields[name]))}
        value = encode_json(fields)
    return EncodedEvent(id_, time_ms, value)


def encode_json(fields: Any) -> bytes:
    """Return ASCII JSON: a lone surrogate, which a client may send, has no UTF-8 encoding."""
    return json.dumps(fields, separators=(",", ":")).encode()


def truncate_text(text: str | None) -> str | None:
    if text is None or len(text) <= TEXT_LENGTH_MAX:
        return text
    length = f"... ({len(text)} characters)"
    return text[: TEXT_LENGTH_MAX - len(length)] + length


def error_name(code: int) -> str:
    error = Error(code)
    return error.name if error == code else str(code)
