"""Figures of a load, in the words of Kafka's perf test."""

from __future__ import annotations

from ottla.cli.perf.statistics import SAMPLES_MAX, Statistics


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
