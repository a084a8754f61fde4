"""Command lines of Kafka's tools."""

from __future__ import annotations

import pytest

from ottla.cli.java.options import (
    BOOTSTRAP,
    BROKER_LIST,
    ZOOKEEPER,
    KafkaOptions,
    Option,
    OptionError,
    bootstrap_of,
    is_legacy_zookeeper,
)

TABLE = (
    BOOTSTRAP,
    BROKER_LIST,
    ZOOKEEPER,
    Option("topic", "a topic", "name"),
    Option("list", "a flag"),
    Option("partitions", "a number", "number"),
    Option("config", "several", "name=value", is_repeatable=True),
    Option("codec", "optional value", "codec", bare_value="gzip"),
)


def options(*arguments: str) -> KafkaOptions:
    return KafkaOptions("tool.sh", "Does things.", TABLE, arguments)


@pytest.mark.parametrize("arguments", [("--topic", "a"), ("--topic=a",), ("-topic", "a"), ("word", "--topic", "a")])
def test_all_ways_to_write_an_option_mean_the_same(arguments: tuple[str, ...]) -> None:
    assert options(*arguments).text("topic") == "a"


def test_a_value_may_look_like_an_option() -> None:
    assert options("--partitions", "-1").number("partitions") == -1
    assert options("--topic", "--list").text("topic") == "--list"


def test_an_optional_value_can_be_left_out() -> None:
    assert options("--codec", "--list").text("codec") == "gzip"
    assert options("--codec", "zstd").text("codec") == "zstd"
    assert options("--codec").text("codec") == "gzip"


def test_options_are_collected() -> None:
    found = options("--config", "a=b", "--config", "c=d", "--list")
    assert found.texts("config") == ["a=b", "c=d"]
    assert found.has("list")
    assert found.text("topic") is None
    assert found.number("partitions") is None


def test_words_after_two_dashes_are_words() -> None:
    assert options("--", "--list").words == ["--list"]


@pytest.mark.parametrize("text", ["abc", "", "1.5", "2147483648", "٣", "0x10"])
def test_a_number_must_be_one(text: str) -> None:
    with pytest.raises(OptionError, match=f"Cannot parse argument '{text}' of option partitions"):
        options("--partitions", text).number("partitions")


def test_a_repeated_single_option_is_rejected() -> None:
    with pytest.raises(OptionError, match="Found multiple arguments for option topic, but you asked for only one"):
        options("--topic", "a", "--topic", "b").text("topic")


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        bootstrap_of(options(*arguments))
    assert caught.value.code == 1
    return capsys.readouterr().err


def test_unknown_options_get_kafkas_message_and_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert "lis is not a recognized option (did you mean --list?)" in refusal(capsys, "--lis")


def test_a_missing_value_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(capsys, "--topic").startswith("Option topic requires an argument\nUsage: tool.sh [options]")


def test_zookeeper_users_reach_the_brokers_that_it_knows_or_the_one_on_the_same_host(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVER", raising=False)
    monkeypatch.setattr("ottla.cli.zookeeper.znodes.registered_brokers", lambda _connect: [])
    old = options("--zookeeper", "one:2181, two:2181/kafka/chroot")
    assert (bootstrap_of(old), is_legacy_zookeeper(old)) == ("one:9092,two:9092", True)
    assert "using the broker at one:9092,two:9092" in capsys.readouterr().err
    assert bootstrap_of(options("--zookeeper", "[::1]:2181")) == "[::1]:9092"
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", "here:1234")
    assert bootstrap_of(old) == "here:1234"
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVER")
    monkeypatch.setattr("ottla.cli.zookeeper.znodes.registered_brokers", lambda _connect: ["a:9093", "b:9094"])
    assert bootstrap_of(old) == "a:9093,b:9094"
    both = options("--zookeeper", "one:2181", "--bootstrap-server", "two:9092")
    assert (bootstrap_of(both), is_legacy_zookeeper(both)) == ("two:9092", False)


def test_combinations_are_refused_in_kafkas_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--list", "--topic", "a").check_invalid_args("topic", "list")
    assert capsys.readouterr().err.startswith('Option "[topic]" can\'t be used with option "[list]"\n')
    with pytest.raises(SystemExit):
        options("--list").check_required_args("topic")
    assert capsys.readouterr().err.startswith('Missing required argument "[topic]"\n')


def test_the_old_name_of_the_bootstrap_server_works() -> None:
    assert bootstrap_of(options("--broker-list", "a:1")) == "a:1"
    assert bootstrap_of(options("--list")) is None


@pytest.mark.parametrize("word", ["--help", "-help", "--version"])
def test_help_and_version_are_no_failures(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        options(word)
    assert caught.value.code == 0
    assert ("--partitions <number>" in capsys.readouterr().out) == ("help" in word)
