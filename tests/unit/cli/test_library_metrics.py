"""Numbers of the client library under Java's names."""

from __future__ import annotations

from ottla.cli.perf.library_metrics import named_values, table

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
