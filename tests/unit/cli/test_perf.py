"""The engines of the perf tests: payloads, statistics and client metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.perf.library_metrics import named_values, table
from ottla.cli.perf.load_generator import (
    SAMPLES_MAX,
    Statistics,
    chosen_payload,
    counted_payload,
    random_payload,
    read_payloads,
)
from ottla.cli.terminal import ToolError


def test_random_payloads_are_letters_and_differ() -> None:
    payload = random_payload(50)
    made = [payload(number) for number in range(100)]
    assert {len(item) for item in made} == {50}
    assert len(set(made)) == 100
    assert all(item.isalpha() and item.isupper() for item in made)
    assert random_payload(50)(7) == made[7]


def test_counted_payloads_are_numbers() -> None:
    assert [counted_payload(number) for number in (0, 12)] == [b"0", b"12"]


def test_payloads_of_a_file_are_split_as_kafka_does(tmp_path: Path) -> None:
    file = tmp_path / "payloads"
    file.write_bytes(b"a\nb\n\nc\n")
    assert read_payloads(str(file), b"\n") == [b"a", b"b", b"", b"c"]
    assert read_payloads(str(file), b"b") == [b"a\n", b"\n\nc\n"]
    assert chosen_payload([b"only"])(3) == b"only"


def test_an_empty_or_missing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name in ("empty", "missing"):
        with pytest.raises(ToolError, match=r"File does not exist or empty file provided\."):
            read_payloads(str(tmp_path / name), b"\n")


def test_the_total_is_kafkas_line() -> None:
    statistics = Statistics(4, start_ms=1000, interval_ms=5000)
    assert statistics.add([1.0, 2.5, 3.0, 100.9], 4 * 1024 * 1024, 2000) == []
    assert statistics.total_line(3000) == (
        "4 records sent, 2.000000 records/sec (2.00 MB/sec), 26.85 ms avg latency, 100.00 ms max latency, "
        "3 ms 50th, 100 ms 95th, 100 ms 99th, 100 ms 99.9th."
    )


def test_a_line_is_due_after_every_interval() -> None:
    statistics = Statistics(10, start_ms=0, interval_ms=1000)
    assert statistics.add([2.0], 100, 500) == []
    assert statistics.add([4.0], 100, 1000) == [
        "2 records sent, 2.0 records/sec (0.00 MB/sec), 3.0 ms avg latency, 4.0 ms max latency."
    ]
    assert statistics.add([], 0, 9000) == []
    assert statistics.add([1.0], 0, 3000) == [
        "1 records sent, 0.5 records/sec (0.00 MB/sec), 1.0 ms avg latency, 1.0 ms max latency."
    ]


def test_the_steady_state_announces_itself_once() -> None:
    steady = Statistics(10, start_ms=0, interval_ms=1000, is_steady_state=True)
    assert steady.add([1.0], 1, 1000)[0] == "In steady state."
    assert len(steady.add([1.0], 1, 2000)) == 1
    assert steady.total_line(2000).startswith("2 steady state records sent, ")


def test_of_many_records_only_a_sample_is_kept() -> None:
    statistics = Statistics(10 * SAMPLES_MAX, start_ms=0, interval_ms=10**9)
    for _ in range(10):
        statistics.add([5.0] * 999, 0, 1)
    assert len(statistics.samples) == 999


def test_a_run_without_records_has_figures_too() -> None:
    assert Statistics(1, 0, 1).total_line(0).startswith("0 records sent, 0.000000 records/sec")


NUMBERS = {
    "rx": 4,
    "tx": 5,
    "rx_bytes": 100,
    "tx_bytes": 200,
    "txmsgs": 7,
    "rxmsgs": 9,
    "rxmsg_bytes": 90,
    "brokers": {
        "a": {"source": "learned", "state": "UP", "rtt": {"cnt": 2, "sum": 3000, "max": 2000}, "txretries": 1},
        "b": {"source": "internal", "state": "UP", "rtt": {"cnt": 9, "sum": 9, "max": 9}},
    },
    "topics": {"t": {"batchsize": {"cnt": 4, "sum": 400, "max": 150}}},
}


def test_a_producer_has_its_batches() -> None:
    values = named_values(NUMBERS, "producer", "me")
    assert values["producer-metrics:record-send-total:{client-id=me}"] == 7
    assert values["producer-metrics:batch-size-avg:{client-id=me}"] == 100
    assert values["producer-metrics:request-latency-avg:{client-id=me}"] == 1.5
    assert values["producer-metrics:connection-count:{client-id=me}"] == 1


def test_a_consumer_has_its_records() -> None:
    values = named_values(NUMBERS, "consumer", "me")
    assert values["consumer-fetch-manager-metrics:records-consumed-total:{client-id=me}"] == 9


def test_the_table_has_kafkas_form() -> None:
    assert table({"bb:c": 2.0, "a": 1.0}) == ["", "Metric Name   Value", "a    : 1.000", "bb:c : 2.000"]


def test_no_numbers_are_zeros() -> None:
    assert set(named_values({}, "producer", "me").values()) == {0.0}
