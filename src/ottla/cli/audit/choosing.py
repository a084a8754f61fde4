"""Which events of the audit trail somebody wants to see. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from ottla.base.audit_events import EVENTS, chosen, unknown_event
from ottla.base.security import SEPARATOR
from ottla.cli.arguments import closest
from ottla.cli.records.partition_choice import parse_moment
from ottla.cli.terminal import UsageError

UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Event = dict[str, Any]


class Choice(NamedTuple):
    """What an event must be like; None: anything."""

    principal: str | None = None
    events: frozenset[str] | None = None
    topic: str | None = None
    since_ms: int | None = None

    def takes(self, event: Event) -> bool:
        if self.events is not None and event["event"] not in self.events:
            return False
        if self.principal is not None and not fnmatchcase(event["principal"] or "", self.principal):
            return False
        if self.topic is not None and not (
            event["resource_type"] == "topic" and fnmatchcase(event["resource"] or "", self.topic)
        ):
            return False
        return self.since_ms is None or time_ms(event) >= self.since_ms


def read_event(value: bytes | None) -> Event | None:
    """None: this is no event of a version that we know."""
    try:
        event = json.loads(value or b"")
        if isinstance(event, dict) and event["version"] == 1 and isinstance(event["id"], str):
            time_ms(event)
            return event if event.keys() >= FIELDS else None
    except (ValueError, KeyError, TypeError):
        pass
    return None


FIELDS: Final = frozenset(
    {
        *(
            "version",
            "id",
            "time",
            "event",
            "outcome",
            "error",
            "message",
            "principal",
            "host",
            "client_id",
            "software",
        ),
        *("listener", "api", "broker", "resource_type", "resource", "before", "after", "requested", "count"),
    }
)


def time_ms(event: Event) -> int:
    return round(datetime.fromisoformat(event["time"]).timestamp() * 1000)


def parse_principal(text: str | None) -> str | None:
    """`alice` is User:alice."""
    return text if text is None or SEPARATOR in text or "*" in text else f"User{SEPARATOR}{text}"


def parse_events(patterns: Iterable[str]) -> frozenset[str] | None:
    wanted = [item.strip() for pattern in patterns for item in pattern.split(",") if item.strip()]
    if not wanted:
        return None
    unknown = unknown_event(wanted)
    if unknown is not None:
        guess = closest(unknown, EVENTS)
        hint = f" Did you mean {guess}?" if guess else ""
        raise UsageError(
            f"there is no event {unknown}.{hint} Known are {', '.join(EVENTS)}, and patterns such as topic.*"
        )
    return chosen(wanted)


def parse_since(text: str | None, now_ms: int) -> int | None:
    """`30m`, `12h`, `7d`, a date, or milliseconds since 1970."""
    if text is None:
        return None
    ago = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if ago is not None:
        return now_ms - int(ago[1]) * UNIT_MS[ago[2]]
    since_ms = parse_moment(text)
    return None if since_ms < 0 else since_ms  # `earliest` and its like: from the beginning
