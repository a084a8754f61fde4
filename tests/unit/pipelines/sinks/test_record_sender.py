"""Columns become producer calls, in order, and unsendable rows are refused."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.record_sender import RecordSender, Target, size_settings, slice_batch


class Noting:
    """Accepts everything and delivers it at the next poll."""

    def __init__(self, full_after: int = 10**9) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.waiting = 0
        self.most_waiting = 0
        self.full_after = full_after

    def __len__(self) -> int:
        return self.waiting

    def poll(self, seconds: float) -> None:
        self.waiting = 0

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int) -> int:
        self.calls += [(topic, {**message, "partition": partition}) for message in messages]
        self._queue(len(messages))
        return len(messages)

    def produce(self, topic: str, **message: Any) -> None:
        if self.waiting >= self.full_after:
            raise BufferError
        self.calls.append((topic, message))
        self._queue(1)

    def list_topics(self, topic: str, seconds: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={0: None, 1: None})})

    def _queue(self, count: int) -> None:
        self.waiting += count
        self.most_waiting = max(self.most_waiting, self.waiting)


def rows(**columns: list[Any]) -> pa.RecordBatch:
    kinds = {"value": pa.binary(), "key": pa.binary(), "topic": pa.string(), "partition": pa.int64()}
    return pa.RecordBatch.from_pydict({name: pa.array(column, kinds.get(name)) for name, column in columns.items()})


def send(batch: pa.RecordBatch, target: Target = Target("t", 1000), producer: Noting | None = None) -> Noting:  # noqa: B008
    producer = producer or Noting()
    sending = RecordSender(producer, target)
    sending.send(batch)
    return producer


def test_values_and_keys_go_in_order_and_null_stays_null() -> None:
    noted = send(rows(value=[b"1", None, b""], key=[b"a", b"b", None]))
    assert noted.calls == [
        ("t", {"key": b"a", "value": b"1", "partition": -1}),
        ("t", {"key": b"b", "value": None, "partition": -1}),
        ("t", {"key": None, "value": b"", "partition": -1}),
    ]


def test_rows_with_a_topic_and_a_partition_go_there() -> None:
    noted = send(rows(value=[b"1", b"2", b"3"], topic=["x", None, "x"], partition=[1, 0, None]))
    assert [(topic, call["partition"], call["value"]) for topic, call in noted.calls] == [
        ("x", 1, b"1"),
        ("t", 0, b"2"),
        ("x", -1, b"3"),
    ]


def test_rows_with_headers_and_times_go_one_by_one() -> None:
    headers = pa.array([[{"key": "h", "value": b"v"}], None])
    batch = pa.RecordBatch.from_pydict({"value": [b"1", b"2"], "headers": headers, "timestamp_ms": [5, None]})
    assert send(batch).calls == [
        ("t", {"value": b"1", "timestamp": 5, "headers": [("h", b"v")]}),
        ("t", {"value": b"2"}),
    ]


def test_a_full_queue_is_waited_for() -> None:
    headers = pa.array([[{"key": "h", "value": b"v"}]] * 10)
    batch = pa.RecordBatch.from_pydict({"value": [b"1"] * 10, "headers": headers})
    noted = send(batch, producer=Noting(full_after=3))
    assert len(noted.calls) == 10


def test_a_record_that_is_too_large_is_an_error_that_names_size_and_cure() -> None:
    with pytest.raises(SinkError, match=r"record of 2000 bytes .* topic t accepts \(1000\): raise max.message.bytes"):
        send(rows(value=[b"x" * 2000]))


def test_headers_count_for_the_size_of_a_record() -> None:
    headers = pa.array([[{"key": "h", "value": b"v" * 600}]])
    batch = pa.RecordBatch.from_pydict({"value": [b"x" * 500], "headers": headers})
    with pytest.raises(SinkError, match=r"record of 1111 bytes is larger than topic t accepts \(1000\)"):
        send(batch)


def test_a_record_that_is_too_large_goes_to_the_dead_letters_and_the_others_on() -> None:
    producer = Noting()
    sending = RecordSender(producer, Target("t", 1000, "dead"))
    sending.send(rows(value=[b"1", b"x" * 5000, b"2"], key=[b"a", b"b", b"c"]))
    assert (sending.rows, sending.dead_lettered) == (2, 1)
    (letter,) = [call for topic, call in producer.calls if topic == "dead"]
    assert letter["key"] == b"b"
    assert len(letter["value"]) == 4096
    assert dict(letter["headers"])["ottla.topic"] == b"t"
    assert [call["value"] for topic, call in producer.calls if topic == "t"] == [b"1", b"2"]


@pytest.mark.parametrize("partition", [-1, 2, 3_000_000_000])
def test_an_unknown_partition_is_refused_with_the_partition_count(partition: int) -> None:
    batch = rows(value=[b"1", b"2", b"3"], partition=[1, partition, None])
    with pytest.raises(SinkError, match=f"partition {partition} does not exist in topic t, which has 2: correct it"):
        send(batch)
    producer = send(batch, Target("t", 1000, "dead"))
    assert [call["value"] for topic, call in producer.calls if topic == "t"] == [b"1", b"3"]
    assert [call["value"] for topic, call in producer.calls if topic == "dead"] == [b"2"]


@pytest.mark.parametrize(
    ("column", "good", "bad", "words"),
    [
        ("timestamp_ms", -1, 0, "the time 1970-01-01T00:00:00.000Z cannot be sent: leave it out"),
        ("headers", [{"key": "h", "value": None}], [{"key": None, "value": b"x"}], "a header has no name: give it one"),
    ],
)
def test_values_that_a_producer_would_change_are_refused(column: str, good: Any, bad: Any, words: str) -> None:
    """The time 0 became the current time, and a header without name became "None"."""
    batch = rows(value=[b"1", b"2"], **{column: [bad, good]})
    with pytest.raises(SinkError, match=words):
        send(batch)
    noted = send(batch, Target("t", 1000, "dead"))
    assert [(topic, message["value"]) for topic, message in noted.calls] == [("dead", b"1"), ("t", b"2")]


def test_pending_records_are_bounded_in_bytes() -> None:
    producer = Noting()
    sending = RecordSender(producer, Target("t", 10_000_000))
    for _ in range(40):
        sending.send(rows(value=[b"x" * 4_000_000] * 2))
    assert producer.most_waiting * 4_000_000 <= 80 << 20


def test_slices_are_bounded_and_whole() -> None:
    batch = rows(value=[b"x"] * 25_000)
    assert [piece.num_rows for piece in slice_batch(batch)] == [10_000, 10_000, 5_000]
    assert list(slice_batch(batch.slice(0, 0))) == []
    assert [piece.num_rows for piece in slice_batch(rows(value=[b"x" * (9 << 20)] * 2))] == [1, 1]


def test_librdkafka_gets_the_limits_of_the_topic() -> None:
    assert size_settings(5_000_000) == {"message.max.bytes": 5_000_000, "batch.size": 1_000_000}
    letters_pass = {"message.max.bytes": 16_384, "batch.size": 100}  # of rows that are too large for such a topic
    assert size_settings(100) == letters_pass
