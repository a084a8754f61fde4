"""Events of the audit trail as lines: a table on a terminal, fields with tabs between them in a pipe, or the JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ottla.cli.audit.choosing import Choice, Event, read_event
from ottla.cli.records.consuming import Sink
from ottla.cli.records.formatters import Message
from ottla.cli.tables import print_table
from ottla.cli.terminal import escape, is_terminal, say, warn

COLUMNS: Final = ("Time", "Event", "Outcome", "Principal", "Host", "Client", "Broker", "Resource", "Change")
WIDTHS: Final = (24, 18, 8, 20, 15, 16, 6, 24, 0)  # of lines that come one by one
IDS_MAX: Final = 10_000


class ChosenEvents:
    """Passes on what somebody wants to see, each event once: what was written twice has the same id."""

    def __init__(self, choice: Choice, sink: Sink) -> None:
        self._choice = choice
        self._sink = sink
        self._ids: dict[str, None] = {}
        self.count = 0
        self.unreadable = 0

    def print(self, batch: list[Message]) -> None:
        wanted = [message for message in batch if self._takes(message)]
        self.count += len(wanted)
        self._sink.print(wanted)

    def _takes(self, message: Message) -> bool:
        event = read_event(message.value)
        if event is None:
            self.unreadable += 1
            if self.unreadable == 1:
                warn(
                    f"warning: {message.topic}-{message.partition} offset {message.offset} is no event that I can read"
                )
            return False
        if event["id"] in self._ids:
            return False
        self._ids[event["id"]] = None
        if len(self._ids) > IDS_MAX:
            del self._ids[next(iter(self._ids))]
        return self._choice.takes(event)

    def finish(self) -> None:
        self._sink.finish()

    def __repr__(self) -> str:
        return f"<ChosenEvents {self.count}, {self.unreadable} unreadable>"


class EventLines:
    """Shows events as they come; `is_followed`: one by one, without knowing what comes."""

    def __init__(self, *, as_json: bool, is_followed: bool) -> None:
        self._as_json = as_json
        self._is_followed = is_followed and is_terminal(sys.stdout)
        self.count = 0

    def print(self, batch: list[Message]) -> None:
        if self._as_json:
            for message in batch:
                say((message.value or b"").decode())
        elif self._is_followed:
            if self.count == 0 and batch:
                say(padded(COLUMNS))
            for message in batch:
                say(padded(row_of(json.loads(message.value or b""))))
        elif batch:
            print_table(COLUMNS, [row_of(json.loads(message.value or b"")) for message in batch], ("Broker",))
        self.count += len(batch)
        if batch:
            sys.stdout.flush()

    def finish(self) -> None:
        if self.count == 0 and is_terminal(sys.stderr):
            warn("No events.")

    def __repr__(self) -> str:
        return f"<EventLines {self.count}>"


def padded(cells: tuple[str, ...]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def row_of(event: Event) -> tuple[str, ...]:
    resource = event["resource"]
    about = f"{event['resource_type']} {resource}" if resource is not None else event["resource_type"]
    cells = (
        event["time"],
        event["event"],
        event["error"] or event["outcome"],
        event["principal"],
        event["host"],
        event["client_id"],
        event["broker"],
        about,
        change_text(event),
    )
    return tuple("-" if cell is None else escape(str(cell)).replace("\t", "\\t").replace("\n", "\\n") for cell in cells)


def change_text(event: Event) -> str:
    """What changed: `retention.ms: 604800000 -> 1000`; what is new or gone has one side only."""
    before, after = dict(flat(event["before"])), dict(flat(event["after"]))
    parts = []
    for name in before | after:
        if event["after"] is None or name not in after:
            parts.append(f"{name}: {text_of(before[name])} -> -" if event["requested"] is None else "")
        elif name not in before:
            parts.append(f"{name}: {text_of(after[name])}")
        elif before[name] != after[name]:
            parts.append(f"{name}: {text_of(before[name])} -> {text_of(after[name])}")
    parts += [f"{name}: {text_of(value)}" for name, value in flat(event["requested"])]
    if event["count"] > 1:
        parts.append(f"{event['count']} times")
    text = ", ".join(filter(None, parts))
    return f"{text} ({event['message']})".lstrip() if event["message"] else text


def flat(details: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """The values of an object with their names, those of objects in it under `outer.inner`."""
    if isinstance(details, Mapping):
        for name, value in details.items():
            if isinstance(value, Mapping):
                yield from flat(value, f"{above}{name}.")
            else:
                yield f"{above}{name}", value


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
