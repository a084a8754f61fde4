"""One event of the audit trail, as the line of JSON that is written: docs/audit.md is its schema.

Rules:
1. Every line has all fields; what does not apply is null. A field is never taken away or given another meaning without
   a new `version`.
2. A line has a bound: words of clients are cut, and what was before and after is left out when it is too long, which
   the line says.
3. Nothing secret comes in here: passwords, salts, tokens and their like stay out in whoever describes a change.
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
PERMITTED: Final = "permitted"  # what would be denied, were the authorizer not in permissive mode

Details = Mapping[str, Any] | None


class Who(NamedTuple):
    """Somebody at the other end of a connection, as far as this broker knows."""

    principal: str | None
    host: str | None
    client_id: str | None
    software: str | None  # as the client says
    listener: str | None
    api: str | None  # what he asked for


class Change(NamedTuple):
    """What became of one thing. With an error, `after` is what was asked for."""

    resource_type: str | None
    resource: str | None
    before: Details = None
    after: Details = None
    error: int = Error.NONE
    message: str | None = None


class Line(NamedTuple):
    """An event that is ready to be written."""

    id: str
    time_ms: int
    value: bytes


def who_is(context: Context, api: str | None) -> Who:
    client = context.client
    software = None
    if client.software_name != UNKNOWN_SOFTWARE:
        software = f"{client.software_name} {client.software_version}"
    return Who(cut(client.principal), client.host, cut(context.client_id), cut(software), client.listener_name, api)


NOBODY: Final = Who(None, None, None, None, None, None)


def line_of(
    event: str,
    who: Who,
    change: Change,
    *,
    id_: str,
    time_ms: int,
    broker: int,
    outcome: str | None = None,
    count: int = 1,
) -> Line:
    """`count`: so many alike, of which this is the last. What did not come about was only requested."""
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
        "message": cut(change.message),
        **{name: cut(text) for name, text in who._asdict().items()},
        "broker": broker,
        "resource_type": change.resource_type,
        "resource": cut(change.resource),
        "before": change.before,
        "after": change.after if is_done else None,
        "requested": None if is_done else change.after,
        "count": count,
    }
    value = encoded(fields)
    if len(value) > LINE_BYTES_MAX:
        for name in ("before", "after", "requested"):
            if fields[name] is not None:
                fields[name] = {"omitted_bytes": len(encoded(fields[name]))}
        value = encoded(fields)
    return Line(id_, time_ms, value)


def encoded(fields: Any) -> bytes:
    """Escapes are ASCII's: a lone half of a character, which a client may send, makes no bytes of its own."""
    return json.dumps(fields, separators=(",", ":")).encode()


def cut(text: str | None) -> str | None:
    if text is None or len(text) <= TEXT_LENGTH_MAX:
        return text
    length = f"... ({len(text)} characters)"
    return text[: TEXT_LENGTH_MAX - len(length)] + length


def error_name(code: int) -> str:
    try:
        return Error(code).name
    except ValueError:
        return str(code)
