"""`ottla audit`: which events are shown, and how they look."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.base.audit_events import EVENTS
from ottla.base.errors import Error
from ottla.broker.audit.event import Change, Who, line_of
from ottla.cli.audit.choosing import FIELDS, Choice, parse_events, parse_principal, parse_since, read_event, time_ms
from ottla.cli.audit.showing import ChosenEvents, EventLines, change_text, row_of
from ottla.cli.main import main
from ottla.cli.records.formatters import Message
from ottla.cli.terminal import UsageError

NOW_MS = 1_700_000_000_000
WHO = Who("User:alice", "10.0.0.1", "c", "librdkafka 2.5", "PLAINTEXT", "CreateTopics")


def value(name: str = "topic.create", change: Change | None = None, id_: str = "1-2-3", **details: Any) -> bytes:
    change = change or Change("topic", "orders", None, {"partitions": 1})
    return line_of(name, details.pop("who", WHO), change, id_=id_, time_ms=NOW_MS, broker=1, **details).value


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
def test_what_is_no_event_is_passed_over_and_counted(data: bytes | None, capsys: pytest.CaptureFixture[str]) -> None:
    lines = EventLines(as_json=True, is_followed=False)
    events = ChosenEvents(Choice(), lines)
    events.print([message(data), message(value()), message(data)])
    assert (events.unreadable, events.count, lines.count) == (2, 1, 1)
    told = capsys.readouterr()
    assert told.out == value().decode() + "\n"
    assert told.err.count("warning") == 1


def test_an_event_that_was_written_twice_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    events = ChosenEvents(Choice(), EventLines(as_json=False, is_followed=False))
    events.print([message(value()), message(value()), message(value(id_="1-2-4"))])
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("choice", "is_taken"),
    [
        (Choice(), True),
        (Choice(principal="User:alice"), True),
        (Choice(principal="User:a*"), True),
        (Choice(principal="User:bob"), False),
        (Choice(events=parse_events(["topic.*", "login"])), True),
        (Choice(events=parse_events(["login,denied"])), False),
        (Choice(topic="orders"), True),
        (Choice(topic="o?ders"), True),
        (Choice(topic="payments"), False),
        (Choice(since_ms=NOW_MS), True),
        (Choice(since_ms=NOW_MS + 1), False),
    ],
)
def test_what_is_taken(choice: Choice, is_taken: bool) -> None:
    assert choice.takes(event()) is is_taken


def test_a_group_of_the_same_name_is_no_topic() -> None:
    assert not Choice(topic="orders").takes(event("group.delete", Change("group", "orders")))


def test_how_people_say_it() -> None:
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
    row = row_of(odd)
    assert row[:6] == ("2023-11-14T22:13:20.000Z", "topic.create", "success", "User:alice", "10.0.0.1", "-")
    assert row[7] == "topic a\\tb\\nc\\x1b[2J"


@pytest.mark.parametrize("words", [["--event", "topics.create"], ["--since", "yesterday"], ["--events", "login"]])
def test_what_makes_no_sense_ends_with_two(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
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
    EventLines(as_json=True, is_followed=True).print([message(value())])
    assert json.loads(capsys.readouterr().out) == event()
