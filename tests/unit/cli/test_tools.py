"""`ottla produce` and `ottla consume` without a cluster: rejected and interpreted options."""

from __future__ import annotations

import pytest

from ottla.cli.commands import consume, produce
from ottla.cli.records.line_reader import Line
from ottla.cli.terminal import ToolError


def lines(*arguments: str) -> list[Line]:
    return list(produce._lines(produce._parser().parse_args(["topic", *arguments])))


def test_messages_on_the_command_line_are_records() -> None:
    assert lines("one", "two") == [Line(None, b"one", []), Line(None, b"two", [])]


def test_key_and_headers_can_be_the_same_for_all() -> None:
    assert lines("one", "--key", "k", "--header", "a=b") == [Line(b"k", b"one", [("a", b"b")])]


def test_a_separator_may_be_written_as_an_escape() -> None:
    assert lines("k\tv", "--key-separator", "\\t", "--null-marker", "v") == [Line(b"k", None, [])]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--key", "a", "--key-separator", ":"], "exclude each other"),
        (["message", "--file", "x"], "messages and --file exclude each other"),
    ],
)
def test_contradictions_are_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(ToolError, match=words):
        lines(*arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--offset", "1"], "--offset needs --partition"),
        (["--partition", "0", "--offset", "x"], "neither a number nor earliest nor latest"),
        (["--partition", "0", "--offset", "1", "--from-beginning"], "exclude each other"),
        (["--partition", "0", "--group", "g"], "excludes --partition"),
        (["--show", "nothing"], "use timestamp"),
        (["--command-property", "x"], "not of the form key=value"),
    ],
)
def test_invalid_consume_options_are_rejected(arguments: list[str], words: str) -> None:
    with pytest.raises(ToolError, match=words):
        consume.run(["topic", *arguments])


def test_a_negative_count_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as caught:
        consume.run(["topic", "-n", "-5"])
    assert caught.value.code == 2
