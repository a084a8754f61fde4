"""`ottla audit`: filters and output of events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.base.audit_events import EVENTS
from ottla.base.errors import Error
from ottla.broker.audit.event import Change, ClientIdentity, encode_event
from ottla.cli.commands.audit import (
    FIELDS,
    EventFilter,
    EventFilterSink,
    EventPrinter,
    change_text,
    event_row,
    parse_events,
    parse_principal,
    parse_since,
    read_event,
    time_ms,
)
from ottla.cli.main import main
from ottla.cli.records.formatters import Message
from ottla.cli.terminal import UsageError

NOW_MS = 1_700_000_000_000
WHO = ClientIdentity("User:alice", "10.0.0.1", "c", "librdkafka 2.5", "PLAINTEXT", "CreateTopics")


def value(name: str = "topic.create", change: Change | None = None, id_: str = "1-2-3", **details: Any) -> bytes:
    change = change or Change("topic", "orders", None, {"partitions": 1})
    return encode_event(name, details.pop("who", WHO), change, id_=id_, time_ms=NOW_MS, broker=1, **details).value


def event(*arguments: Any, **details: Any) -> dict[str, Any]:
    found = read_event(value(*arguments, **details))
    assert found is not None
    return found


def message(data: bytes | None) -> Message:
    return Message("__ottla_audit", 0, 0, "CreateTime", NOW_MS, b"", data, [])


def test_what_the_broker_writes_can_be_read() -> None:
    assert event().keys() == FIELDS
    assert time_ms(event()) == NOW_MS


@pytest.mark.parametrize(
    "data", [None, b"", b"x", b"[]", b"{}", b'{"version":2,"id":"x"}', b'{"version":1,"id":3}', b"\xff"]
)
def test_records_that_are_not_events_are_skipped_and_counted(
    data: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = EventPrinter(as_json=True, is_followed=False)
    events = EventFilterSink(EventFilter(), lines)
    events.print([message(data), message(value()), message(data)])
    assert (events.unreadable, events.count, lines.count) == (2, 1, 1)
    output = capsys.readouterr()
    assert output.out == value().decode() + "\n"
    assert output.err.count("warning") == 1


def test_an_event_that_was_written_twice_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    events = EventFilterSink(EventFilter(), EventPrinter(as_json=False, is_followed=False))
    events.print([message(value()), message(value()), message(value(id_="1-2-4"))])
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("choice", "is_taken"),
    [
        (EventFilter(), True),
        (EventFilter(principal="User:alice"), True),
        (EventFilter(principal="User:a*"), True),
        (EventFilter(principal="User:bob"), False),
        (EventFilter(events=parse_events(["topic.*", "login"])), True),
        (EventFilter(events=parse_events(["login,denied"])), False),
        (EventFilter(topic="orders"), True),
        (EventFilter(topic="o?ders"), True),
        (EventFilter(topic="payments"), False),
        (EventFilter(since_ms=NOW_MS), True),
        (EventFilter(since_ms=NOW_MS + 1), False),
    ],
)
def test_filters_select_events(choice: EventFilter, is_taken: bool) -> None:
    assert choice.matches(event()) is is_taken


def test_a_group_of_the_same_name_is_no_topic() -> None:
    assert not EventFilter(topic="orders").matches(event("group.delete", Change("group", "orders")))


def test_filter_options_are_parsed() -> None:
    assert [parse_principal(text) for text in (None, "alice", "User:a", "*")] == [None, "User:alice", "User:a", "*"]
    assert parse_since("90s", NOW_MS) == NOW_MS - 90_000
    assert parse_since("2d", NOW_MS) == NOW_MS - 172_800_000
    assert parse_since("1970-01-01T00:00:01+00:00", NOW_MS) == 1000
    assert parse_since("earliest", NOW_MS) is None
    assert parse_events([]) is None
    for text in ("yesterday", "5x", "-3h", "h"):
        with pytest.raises(UsageError):
            parse_since(text, NOW_MS)
    with pytest.raises(UsageError, match=r"Did you mean topic\.create\?"):
        parse_events(["topic.crate"])


@pytest.mark.parametrize(
    ("change", "details", "text"),
    [
        (Change("topic", "o", {"a": "1", "b": "2"}, {"a": "3", "b": "2"}), {}, "a: 1 -> 3"),
        (Change("topic", "o", {"configs": {"a": None}}, {"configs": {"a": "x"}}), {}, "configs.a: null -> x"),
        (Change("topic", "o", {"partitions": 2}, None), {}, "partitions: 2 -> -"),
        (Change("topic", "o", {"p": 2}, {"p": 1}, Error.INVALID_PARTITIONS, "less"), {}, "p: 1 (less)"),
        (
            Change("topic", "o", None, {"operation": "Write"}),
            {"outcome": "denied", "count": 5},
            "operation: Write, 5 times",
        ),
    ],
)
def test_a_change_in_words(change: Change, details: dict[str, Any], text: str) -> None:
    assert change_text(event("topic.create", change, **details)) == text


def test_a_row_holds_no_control_characters_and_one_line() -> None:
    odd = event("topic.create", Change("topic", "a\tb\nc\x1b[2J"), who=WHO._replace(client_id=None))
    row = event_row(odd)
    assert row[:6] == ("2023-11-14T22:13:20.000Z", "topic.create", "success", "User:alice", "10.0.0.1", "-")
    assert row[7] == "topic a\\tb\\nc\\x1b[2J"


@pytest.mark.parametrize("words", [["--event", "topics.create"], ["--since", "yesterday"], ["--events", "login"]])
def test_invalid_options_end_with_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main(["audit", *words])
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert "ottla audit: " in capsys.readouterr().err.splitlines()[-1]


def test_the_page_lists_every_event_and_every_field() -> None:
    page = (Path(__file__).parents[3] / "docs" / "audit.md").read_text()
    assert [name for name, note in EVENTS.items() if f"| `{name}` | {note} |" not in page] == []
    assert [name for name in FIELDS if f"`{name}`" not in page] == []


def test_the_json_is_the_brokers_own(capsys: pytest.CaptureFixture[str]) -> None:
    EventPrinter(as_json=True, is_followed=True).print([message(value())])
    assert json.loads(capsys.readouterr().out) == event()
