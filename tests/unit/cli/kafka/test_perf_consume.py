"""Lines of the consumer perf test in Kafka's format."""

from __future__ import annotations

import pytest

from ottla.cli.java.options import KafkaOptions, OptionError
from ottla.cli.kafka.perf_consume import OPTIONS, consumer_settings, header, make_reading, total_line, window_line
from ottla.cli.perf.load_reader import ReadFigures

MEBIBYTE = 1024 * 1024


def options(text: str) -> KafkaOptions:
    return KafkaOptions("tool", "summary", OPTIONS, text.split())


def test_the_total_has_kafkas_columns() -> None:
    figures = ReadFigures(start_ms=1000, end_ms=3000, records=100, bytes=4 * MEBIBYTE, join_ms=1000)
    assert total_line(figures, str) == "1000, 3000, 4.0000, 2.0000, 100, 50.0000, 1000, 1000, 4.0000, 100.0000"
    assert len(header(False).split(", ")) == 10


def test_a_window_has_totals_and_its_own_rates() -> None:
    window = ReadFigures(start_ms=1000, end_ms=2000, records=10, bytes=MEBIBYTE, join_ms=0)
    assert (
        window_line(window, 30, 3 * MEBIBYTE, str) == "2000, 0, 3.0000, 1.0000, 30, 10.0000, 0, 1000, 1.0000, 10.0000"
    )
    joining = window._replace(join_ms=1500)
    assert window_line(joining, 30, 0, str).endswith("1500, -500, 0.0000, 0.0000")


def test_a_run_without_time_divides_by_no_zero() -> None:
    assert total_line(ReadFigures(0, 0, 0, 0, 0), str).startswith("0, 0, 0.0000, 0.0000, 0, 0.0000")


def test_options_become_a_reading() -> None:
    reading = make_reading(options("--topic t --messages 7 --timeout --from-latest"))
    assert (reading.records, reading.timeout_ms, reading.from_latest, reading.has_group) == (7, 10_000, True, True)
    pattern = make_reading(options("--include a.* --num-records 5")).include
    assert pattern is not None
    assert pattern.fullmatch("abc")
    with pytest.raises(OptionError, match="Reporting interval must be greater than 0"):
        make_reading(options("--topic t --num-records 5 --reporting-interval 0"))


def test_options_win_over_properties() -> None:
    given = options("--topic t --group g --fetch-size 7 --socket-buffer-size 8")
    settings = consumer_settings(
        "b:1", given, {"group.id": "other", "max.partition.fetch.bytes": "1", "client.id": "me"}
    )
    assert (settings["group.id"], settings["max.partition.fetch.bytes"], settings["client.id"]) == ("g", 7, "me")
    assert settings["socket.receive.buffer.bytes"] == 8
    assert str(consumer_settings("b:1", options("--topic t"), {})["group.id"]).startswith("perf-consumer-")
