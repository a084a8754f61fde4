"""Java's property names for librdkafka, and the settings of the tools."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.cli import librdkafka
from ottla.cli.librdkafka import ErrorReporter, make_producer
from ottla.cli.records.console_consumer import EARLIEST, ConsumePlan, consumer_settings
from ottla.cli.records.console_producer import error_text, producer_settings
from ottla.cli.terminal import ToolError
from ottla.client.librdkafka_properties import translate


class FakeError:
    def __init__(self, name: str, text: str = "text", is_fatal: bool = False) -> None:
        self._name, self._text, self._fatal = name, text, is_fatal

    def code(self) -> int:
        return hash(self._name)

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return self._text

    def fatal(self) -> bool:
        return self._fatal


def test_java_names_are_translated() -> None:
    assert translate(
        {
            "max.request.size": "10",
            "buffer.memory": "33554432",
            "key.serializer": "x",
            "acks": " all ",
            "fetch.max.wait.ms": "5",
        }
    ) == {"message.max.bytes": "10", "queue.buffering.max.kbytes": 32768, "acks": "all", "fetch.wait.max.ms": "5"}


def test_producers_are_idempotent_unless_that_cannot_be() -> None:
    assert producer_settings("a:1", {})["enable.idempotence"] is True
    assert "enable.idempotence" not in producer_settings("a:1", {"acks": "1"})
    assert producer_settings("a:1", {"retries": "0"})["enable.idempotence"] is False
    assert producer_settings("a:1", {}, {"enable.idempotence": "false"})["enable.idempotence"] == "false"


def test_later_layers_win_but_not_over_the_bootstrap_server() -> None:
    settings = producer_settings("a:1", {"linger.ms": "1"}, {"linger.ms": "2", "bootstrap.servers": "b:2"})
    assert settings["linger.ms"] == "2"
    assert settings["bootstrap.servers"] == "a:1"


def test_consumers_start_where_the_plan_says() -> None:
    settings = consumer_settings("a:1", ConsumePlan("t", offset=EARLIEST))
    assert settings["auto.offset.reset"] == "earliest"
    assert settings["enable.auto.commit"] == "false"
    assert settings["isolation.level"] == "read_uncommitted"
    assert settings["group.id"].startswith("console-consumer-")
    grouped = consumer_settings("a:1", ConsumePlan("t", group="g"))
    assert (grouped["group.id"], grouped["enable.auto.commit"]) == ("g", "true")


class FakeLibrary:
    """Knows the property acks and one value for it."""

    class KafkaException(Exception):  # noqa: N818 (the library's own name)
        pass

    def Producer(self, settings: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        for name in settings:
            if name not in ("bootstrap.servers", "acks", "log_level", "logger", "error_cb"):
                raise self.KafkaException(FakeError("_INVALID_ARG", f'No such configuration property: "{name}"'))
        if settings.get("acks", "all") != "all":
            raise self.KafkaException(FakeError("_INVALID_ARG", 'Invalid value for configuration property "acks"'))
        return settings


@pytest.fixture
def fake_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "library", FakeLibrary)


@pytest.mark.usefixtures("fake_library")
def test_unknown_properties_are_dropped_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    made = make_producer({"bootstrap.servers": "a:1", "foo.bar": "secret", "acks": "all"})
    assert capsys.readouterr().err == "warning: the property foo.bar is unknown and has no effect\n"
    assert made["acks"] == "all"


@pytest.mark.usefixtures("fake_library")
def test_bad_values_are_refused_in_one_line() -> None:
    with pytest.raises(ToolError, match="the client cannot be configured like this: Invalid value"):
        make_producer({"bootstrap.servers": "a:1", "acks": "many"})


def test_lost_brokers_are_reported_but_neither_at_the_start_nor_all_the_time() -> None:
    warnings: list[str] = []
    now = [0.0]
    reporter = ErrorReporter(warnings.append, lambda: now[0])
    for seconds in (0, 5, 6, 30, 70):
        now[0] = seconds
        reporter(FakeError("_ALL_BROKERS_DOWN", f"1/1 brokers are down at {seconds}"))
        reporter(FakeError("_TRANSPORT", "connection refused"))
    assert warnings == [f"warning: 1/1 brokers are down at {seconds}; trying again" for seconds in (5, 70)]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FakeError("MSG_SIZE_TOO_LARGE"), "max.request.size"),
        (FakeError("_MSG_TIMED_OUT"), "no broker acknowledged it in time"),
        (FakeError("INVALID_RECORD", "Broker: Broker failed to validate record"), "Broker failed to validate record"),
    ],
)
def test_failed_records_get_a_reason(error: Any, words: str) -> None:
    assert words in error_text(error)
