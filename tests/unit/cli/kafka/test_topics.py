"""kafka-topics.sh without a cluster: options rejected before a request."""

from __future__ import annotations

import pytest

from ottla.cli.java.options import KafkaOptions, OptionError, topic_pattern
from ottla.cli.kafka.topics import (
    OPTIONS,
    check_options,
    parse_assignment,
    parse_configs,
    run,
)

SERVER = ("--bootstrap-server", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "--list --create",
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete",
        ),
        ("--create", 'Missing required argument "[topic]"'),
        ("--delete", 'Missing required argument "[topic]"'),
        ("--alter --topic a", 'Missing required argument "[partitions]"'),
        ("--describe --if-exists", "--topic or --topic-id is required to describe a topic"),
        ("--describe --partitions 3", 'Option "[partitions]" can\'t be used with option "[describe]"'),
        ("--list --if-not-exists", 'Option "[if-not-exists]" can\'t be used with option "[list]"'),
        ("--create --topic a --if-exists", 'Option "[if-exists]" can\'t be used with option "[create]"'),
        (
            "--create --topic a --replica-assignment 1 --partitions 2",
            'Option "[replica-assignment]" can\'t be used with option "[partitions]"',
        ),
        (
            "--alter --topic a --replication-factor 2 --partitions 9",
            'Option "[replication-factor]" can\'t be used with option "[alter]"',
        ),
        (
            "--describe --topics-with-overrides --unavailable-partitions",
            'Option "[unavailable-partitions]" can\'t be used with option "[topics-with-overrides]"',
        ),
        ("--delete --topic x --config a=b", 'Option "[config]" can\'t be used with option "[delete]"'),
        (
            "--list --under-replicated-partitions",
            'Option "[under-replicated-partitions]" can\'t be used with option "[list]"',
        ),
    ],
)
def test_bad_combinations_are_refused_in_kafkas_words(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        run([*SERVER, *line.split()])
    assert caught.value.code == 1
    assert capsys.readouterr().err.splitlines()[0] == words


def test_a_bootstrap_server_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["--list"])
    assert capsys.readouterr().err.splitlines()[0] == "--bootstrap-server must be specified"


def test_delete_config_is_only_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*SERVER, "--create", "--topic", "a", "--delete-config", "x"]
    assert check_options(KafkaOptions("tool", "", OPTIONS, arguments), True) == "127.0.0.1:1"
    assert capsys.readouterr().err.startswith("delete-config option is no longer supported")


def test_assignments_name_the_brokers_of_each_partition() -> None:
    assert parse_assignment("1:2,2:3") == {0: [1, 2], 1: [2, 3]}
    assert parse_assignment(None) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1:1", "Partition replica lists may not contain duplicate entries: 1"),
        ("1,1:2", r"Partition 1 has different replication factor: \[1, 2\]"),
        ("a", 'For input string: "a"'),
    ],
)
def test_bad_assignments_are_refused_in_kafkas_words(text: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_assignment(text)


def test_an_empty_assignment_leaves_the_numbers_to_the_cluster() -> None:
    assert parse_assignment(",") == {}


def test_configs_are_pairs() -> None:
    assert parse_configs(["a=b", "c = d=e"]) == {"a": "b", "c": "d=e"}
    with pytest.raises(OptionError, match='must be in the format "key=val"'):
        parse_configs(["a"])


def test_topic_patterns_are_read_as_kafka_reads_them() -> None:
    assert topic_pattern("a.*, b").fullmatch("abc")
    assert topic_pattern("a.*,b").fullmatch("b")
    assert not topic_pattern("a").fullmatch("ab")
    assert topic_pattern('"a"').fullmatch("a")
    with pytest.raises(OptionError, match=r"\[ is an invalid regex\."):
        topic_pattern("[")
