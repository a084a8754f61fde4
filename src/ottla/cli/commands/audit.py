"""`ottla audit`: reads the audit trail of logins, denials and changes.

Events are printed as a table on a terminal, as tab-separated fields in a pipe, or as JSON.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from ottla.base.audit_events import EVENTS, select_events, unknown_event
from ottla.base.errors import Error
from ottla.base.names import AUDIT_TOPIC
from ottla.base.security import SEPARATOR
from ottla.base.text import escape_cell
from ottla.cli.arguments import CONNECTION, Argument, Parser, bootstrap_of, closest_match, flag
from ottla.cli.client_settings import command_properties, make_client
from ottla.cli.records.console_consumer import EARLIEST, LATEST, ConsumePlan, Sink, consumer_settings, read_and_print
from ottla.cli.records.formatters import Message
from ottla.cli.records.partition_filter import parse_timestamp
from ottla.cli.records.sorted_output import SortingSink
from ottla.cli.tables import print_table
from ottla.cli.terminal import EXIT_FAILED, ToolError, UsageError, is_terminal, print_line, warn
from ottla.client.admin import Admin
from ottla.client.errors import ClientError

MEMORY_BYTES = 64 << 20  # memory for sorting events by time; more events use a temporary file
NO_AUDIT_TOPIC = (
    f"there is no audit trail: the topic {AUDIT_TOPIC} does not exist, or you may not see it. It is created by the "
    "first event after ottla.audit.enable=true"
)
EXAMPLES = """
ottla audit --since 24h                            all events of a day
ottla audit --principal alice --event 'topic.*'    topic changes by alice
ottla audit --event denied,login.failed --follow   new events, until Ctrl-C
ottla audit --topic orders --json                  for programs
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    choice = EventFilter(
        parse_principal(options.principal),
        parse_events(options.event),
        options.topic,
        parse_since(options.since, time.time_ns() // 1_000_000),
    )
    properties = command_properties(getattr(options, "command_config", None))
    bootstrap = bootstrap_of(options)
    _check_audit_topic(bootstrap, properties)
    is_old_wanted = choice.since_ms is not None or not options.follow
    plan = ConsumePlan(
        AUDIT_TOPIC,
        offset=EARLIEST if is_old_wanted else LATEST,
        since_ms=choice.since_ms,
        until_end=not options.follow,
        must_exist=True,
    )
    settings = consumer_settings(bootstrap, plan, {"client.id": "ottla-audit"}, properties)
    lines = EventPrinter(as_json=options.json, is_followed=options.follow)
    if options.follow:
        if is_terminal(sys.stderr):
            warn("Waiting for events. Ctrl-C stops.")
        events = EventFilterSink(choice, lines)
        read_and_print(settings, properties, plan, events)
    else:  # events of different partitions are ordered by time only
        with SortingSink(lines, MEMORY_BYTES) as sorting:
            events = EventFilterSink(choice, sorting)
            read_and_print(settings, properties, plan, events)
            events.finish()
    if events.unreadable:
        raise ToolError(
            f"{events.unreadable} records of {AUDIT_TOPIC} are not events of a supported version", EXIT_FAILED
        )
    return 0


def _parser() -> Parser:
    return Parser(
        prog="ottla audit",
        description="Read the audit trail.",
        examples=EXAMPLES,
        arguments=(
            *CONNECTION,
            Argument("--principal", metavar="NAME", help="only events of this principal (alice is User:alice)"),
            Argument(
                "--event",
                action="append",
                default=[],
                metavar="NAME",
                help="only these events; accepts patterns such as 'topic.*'",
            ),
            Argument("--topic", metavar="NAME", help="only events about this topic; accepts patterns"),
            Argument("--since", metavar="TIME", help="30m, 12h, 7d, or a date such as 2026-11-15T08:00:00"),
            flag("--follow", "-f", help="also print new events, until Ctrl-C"),
            flag("--json", help="print the original events, one JSON object per line"),
        ),
    )


def _check_audit_topic(bootstrap: str, properties: dict[str, str]) -> None:
    with make_client(bootstrap, properties) as client:
        try:
            Admin(client).topic(AUDIT_TOPIC)
        except ClientError as problem:
            if problem.error in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.TOPIC_AUTHORIZATION_FAILED):
                raise ToolError(NO_AUDIT_TOPIC) from None
            raise


# ---- events
UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Event = dict[str, Any]


class EventFilter(NamedTuple):
    """Conditions of an event; None accepts everything."""

    principal: str | None = None
    events: frozenset[str] | None = None
    topic: str | None = None
    since_ms: int | None = None

    def matches(self, event: Event) -> bool:
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
    """Parse an event; None if it is not an event of a supported version."""
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
    """Parse a principal; `alice` means User:alice."""
    return text if text is None or SEPARATOR in text or "*" in text else f"User{SEPARATOR}{text}"


def parse_events(patterns: Iterable[str]) -> frozenset[str] | None:
    wanted = [item.strip() for pattern in patterns for item in pattern.split(",") if item.strip()]
    if not wanted:
        return None
    unknown = unknown_event(wanted)
    if unknown is not None:
        guess = closest_match(unknown, EVENTS)
        hint = f" Did you mean {guess}?" if guess else ""
        raise UsageError(
            f"unknown event {unknown}.{hint} Known events: {', '.join(EVENTS)}, and patterns such as topic.*"
        )
    return select_events(wanted)


def parse_since(text: str | None, now_ms: int) -> int | None:
    """Parse `30m`, `12h`, `7d`, a date, or milliseconds since 1970."""
    if text is None:
        return None
    ago = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if ago is not None:
        return now_ms - int(ago[1]) * UNIT_MS[ago[2]]
    since_ms = parse_timestamp(text)
    return None if since_ms < 0 else since_ms  # `earliest` and other special times: from the beginning


COLUMNS: Final = ("Time", "Event", "Outcome", "Principal", "Host", "Client", "Broker", "Resource", "Change")
WIDTHS: Final = (24, 18, 8, 20, 15, 16, 6, 24, 0)  # of lines printed one at a time
SEEN_IDS_MAX: Final = 10_000


class EventFilterSink:
    """Passes on the events that match, each one once: duplicates have the same id."""

    def __init__(self, choice: EventFilter, sink: Sink) -> None:
        self._choice = choice
        self._sink = sink
        self._ids: dict[str, None] = {}
        self.count = 0
        self.unreadable = 0

    def print(self, batch: list[Message]) -> None:
        wanted = [message for message in batch if self._accepts(message)]
        self.count += len(wanted)
        self._sink.print(wanted)

    def _accepts(self, message: Message) -> bool:
        event = read_event(message.value)
        if event is None:
            self.unreadable += 1
            if self.unreadable == 1:
                warn(f"warning: {message.topic}-{message.partition} offset {message.offset} is not a known event")
            return False
        if event["id"] in self._ids:
            return False
        self._ids[event["id"]] = None
        if len(self._ids) > SEEN_IDS_MAX:
            del self._ids[next(iter(self._ids))]
        return self._choice.matches(event)

    def finish(self) -> None:
        self._sink.finish()

    def __repr__(self) -> str:
        return f"<EventFilterSink {self.count}, {self.unreadable} unreadable>"


class EventPrinter:
    """Prints events; with `is_followed` one at a time with fixed column widths."""

    def __init__(self, *, as_json: bool, is_followed: bool) -> None:
        self._as_json = as_json
        self._is_followed = is_followed and is_terminal(sys.stdout)
        self.count = 0

    def print(self, batch: list[Message]) -> None:
        if self._as_json:
            for message in batch:
                print_line((message.value or b"").decode())
        elif self._is_followed:
            if self.count == 0 and batch:
                print_line(pad_row(COLUMNS))
            for message in batch:
                print_line(pad_row(event_row(json.loads(message.value or b""))))
        elif batch:
            print_table(COLUMNS, [event_row(json.loads(message.value or b"")) for message in batch], ("Broker",))
        self.count += len(batch)
        if batch:
            sys.stdout.flush()

    def finish(self) -> None:
        if self.count == 0 and is_terminal(sys.stderr):
            warn("No events.")

    def __repr__(self) -> str:
        return f"<EventPrinter {self.count}>"


def pad_row(cells: tuple[str, ...]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def event_row(event: Event) -> tuple[str, ...]:
    resource = event["resource"]
    resource_text = f"{event['resource_type']} {resource}" if resource is not None else event["resource_type"]
    cells = (
        event["time"],
        event["event"],
        event["error"] or event["outcome"],
        event["principal"],
        event["host"],
        event["client_id"],
        event["broker"],
        resource_text,
        change_text(event),
    )
    return tuple("-" if cell is None else escape_cell(str(cell)) for cell in cells)


def change_text(event: Event) -> str:
    """The changes, such as `retention.ms: 604800000 -> 1000`; additions and removals have one side only."""
    before, after = dict(flatten(event["before"])), dict(flatten(event["after"]))
    parts = []
    for name in before | after:
        if event["after"] is None or name not in after:
            parts.append(f"{name}: {value_text(before[name])} -> -" if event["requested"] is None else "")
        elif name not in before:
            parts.append(f"{name}: {value_text(after[name])}")
        elif before[name] != after[name]:
            parts.append(f"{name}: {value_text(before[name])} -> {value_text(after[name])}")
    parts += [f"{name}: {value_text(value)}" for name, value in flatten(event["requested"])]
    if event["count"] > 1:
        parts.append(f"{event['count']} times")
    text = ", ".join(filter(None, parts))
    return f"{text} ({event['message']})".lstrip() if event["message"] else text


def flatten(details: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested objects with dotted names such as `outer.inner`."""
    if isinstance(details, Mapping):
        for name, value in details.items():
            if isinstance(value, Mapping):
                yield from flatten(value, f"{above}{name}.")
            else:
                yield f"{above}{name}", value


def value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
