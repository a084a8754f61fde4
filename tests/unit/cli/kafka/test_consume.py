"""kafka-console-consumer.sh without a cluster: rejected options and plans."""

from __future__ import annotations

import pytest

from ottla.cli.java.options import KafkaOptions
from ottla.cli.kafka.consume import OPTIONS, choose_formatter, client_properties, make_plan, run
from ottla.cli.records.console_consumer import EARLIEST, LATEST, ConsumePlan
from ottla.cli.terminal import ToolError

SERVER = "--bootstrap-server 127.0.0.1:1 "
BAD_OFFSET = (
    "The provided offset value '{}' is incorrect. Valid values are 'earliest', 'latest', or a non-negative long."
)
TWO_GROUPS = (
    "The group ids provided in different places (directly using '--group', via '--consumer-property', "
    "or via '--consumer.config') do not match. Detected group ids: 'a', 'b'"
)


def plan(line: str) -> ConsumePlan:
    options = KafkaOptions("tool", "", OPTIONS, line.split())
    return make_plan(options, client_properties(options))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (SERVER + "--timeout-ms 10", "Exactly one of the following arguments is required: [topic], [include]"),
        (SERVER + "--topic a --include b", "Exactly one of the following arguments is required: [topic], [include]"),
        ("--topic a", 'Missing required argument "[bootstrap-server]"'),
        (SERVER + "--include a --partition 1", "The topic is required when partition is specified."),
        (SERVER + "--topic a --offset 1", "The partition is required when offset is specified."),
        (
            SERVER + "--topic a --partition 0 --offset 1 --from-beginning",
            "Options from-beginning and offset cannot be specified together.",
        ),
        (SERVER + "--topic a --partition 0 --group g", "Options group and partition cannot be specified together."),
        (
            SERVER + "--topic a --partition 0 --offset bad",
            BAD_OFFSET.format("bad"),
        ),
        (
            SERVER + "--topic a --partition 0 --offset -5",
            BAD_OFFSET.format("-5"),
        ),
        (
            SERVER + "--topic a --property a=b --formatter-property c=d",
            "Options --property and --formatter-property cannot be specified together.",
        ),
        (
            SERVER + "--topic a --group a --command-property group.id=b",
            TWO_GROUPS,
        ),
        (
            SERVER + "--topic a --from-beginning --command-property auto.offset.reset=latest",
            "Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest', please remove one option",
        ),
    ],
)
def test_bad_command_lines_are_refused_in_kafkas_words(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(line.split())
    assert caught.value.code == 1
    assert capsys.readouterr().err.splitlines()[0] == words


def test_the_plan_contains_the_start() -> None:
    assert plan("--topic a").offset == LATEST
    assert plan("--topic a --from-beginning").offset == EARLIEST
    assert plan("--topic a --partition 1 --offset 42").offset == 42
    assert plan("--topic a --partition 1 --offset earliest").offset == EARLIEST
    assert plan("--topic a --command-property auto.offset.reset=earliest").offset == EARLIEST


def test_the_plan_contains_the_stop_conditions() -> None:
    assert plan("--topic a --max-messages -1").max_messages is None
    assert plan("--topic a --max-messages -5").max_messages == -5
    assert plan("--topic a --timeout-ms 100").timeout_ms == 100
    assert plan("--topic a --timeout-ms -1").timeout_ms is None


def test_topics_can_be_given_as_a_pattern() -> None:
    include = plan("--include a.*,b").include
    assert include is not None
    assert include.fullmatch("b")


def test_groups_come_from_an_option_or_a_property() -> None:
    assert plan("--topic a --group g").group == "g"
    assert plan("--topic a --consumer-property group.id=g").group == "g"
    assert plan("--topic a").group is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--topic a --isolation-level foo", "String must be one of: read_committed, read_uncommitted"),
        ("--topic a --max-messages abc", "Cannot parse argument 'abc' of option max-messages"),
        ("--topic a --formatter Foo", "unknown formatter Foo"),
        ("--topic a --command-config /nowhere", "cannot read /nowhere"),
    ],
)
def test_bad_values_are_one_line(line: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        run((SERVER + line).split())


def test_an_unknown_deserializer_prints_bytes_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    choose_formatter(KafkaOptions("tool", "", OPTIONS, ["--value-deserializer", "com.example.Mine"]))
    assert "unknown deserializer com.example.Mine" in capsys.readouterr().err
