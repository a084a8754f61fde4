"""A file is published exactly once, whatever happens to its producer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla.pipelines.sinks import file_publisher
from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.batch_ledger import LastBatch
from ottla.pipelines.sinks.batch_markers import Marker
from ottla.pipelines.sinks.file_publisher import PublisherSettings, PublishResult, PublishTask, TransactionalPublisher
from ottla.pipelines.sinks.record_sender import Target

SETTINGS = PublisherSettings({"bootstrap.servers": "nowhere"}, Target("t", 10_000), 1.0, "q.out", needs_marker=True)
WORK = PublishTask(0, LastBatch(5, "rows"), 3)


def failure(code: int, **more: bool) -> KafkaException:
    return KafkaException(KafkaError(code, "it failed", **more))


class Cluster:
    """The state of a broker, and the error of its next call."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.marker: Marker | None = None
        self.failures: dict[str, list[Exception]] = {}
        self.commits = 0

    def called(self, name: str) -> None:
        self.calls.append(name)
        if self.failures.get(name):
            raise self.failures[name].pop(0)


class Producer:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.pending: bytes | None = None
        self.report: Any = None

    def __len__(self) -> int:
        return 0

    def init_transactions(self, seconds: float) -> None:
        self.cluster.called("init")

    def begin_transaction(self) -> None:
        self.cluster.called("begin")

    def produce_batch(self, topic: str, messages: list[Any], partition: int) -> int:
        self.cluster.called("rows")
        return len(messages)

    def produce(self, topic: str, **message: Any) -> None:
        self.pending, self.report = message["value"], message["on_delivery"]

    def commit_transaction(self, seconds: float) -> None:
        self.cluster.called("commit")
        self.cluster.commits += 1
        self.cluster.marker = Marker(WORK.recorded, 3, 9, 0)

    def flush(self, seconds: float) -> None:
        self.cluster.called("flush")

    def abort_transaction(self, seconds: float) -> None:
        self.cluster.called("abort")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()

    class Reader:
        def __init__(self, settings: object) -> None:
            pass

        def read(self, positions: Any, prefix: str, seconds: float) -> Any:
            made.calls.append("look")
            return ({} if made.marker is None else {"q.out.0": made.marker}), dict.fromkeys(positions, 10)

        def close(self) -> None:
            pass

    monkeypatch.setattr("confluent_kafka.Producer", lambda settings: Producer(made))
    monkeypatch.setattr(file_publisher, "MarkerReader", Reader)
    monkeypatch.setattr(file_publisher, "FENCED_WAIT_SECONDS", (0.01, 0.01, 0.01))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return made


def batches() -> Iterator[Any]:
    yield pa.RecordBatch.from_pydict({"value": pa.array([b"1", b"2"], pa.binary())})


def test_a_file_is_published_in_one_transaction_with_its_marker(cluster: Cluster) -> None:
    outcome = TransactionalPublisher().publish(SETTINGS, WORK, batches)
    assert (outcome.what, outcome.rows) == ("published", 2)
    assert cluster.calls == ["init", "look", "begin", "rows", "commit"]


def test_a_marker_of_the_same_rows_ends_it(cluster: Cluster) -> None:
    cluster.marker = Marker(WORK.recorded, 3, 9, 0)
    assert TransactionalPublisher().publish(SETTINGS, WORK, batches).what == "already"
    assert cluster.calls == ["init", "look"]


def test_a_marker_of_a_later_batch_supersedes_this_one(cluster: Cluster) -> None:
    cluster.marker = Marker(LastBatch(6, "x"), 3, 9, 0)
    assert TransactionalPublisher().publish(SETTINGS, WORK, batches).what == "superseded"
    assert cluster.commits == 0


def test_a_marker_of_other_rows_of_this_batch_is_an_error(cluster: Cluster) -> None:
    cluster.marker = Marker(LastBatch(5, "other"), 3, 9, 0)
    with pytest.raises(SinkError, match="from other staged rows"):
        TransactionalPublisher().publish(SETTINGS, WORK, batches)


def test_a_kept_producer_needs_neither_epoch_nor_marker(cluster: Cluster) -> None:
    publisher = TransactionalPublisher()
    first = publisher.publish(SETTINGS, WORK, batches)
    cluster.calls.clear()
    publisher.publish(SETTINGS, WORK._replace(recorded=LastBatch(6, "more"), holder=first.holder), batches)
    assert cluster.calls == ["begin", "rows", "commit"]


def test_a_pooled_producer_that_was_replaced_is_opened_again(cluster: Cluster) -> None:
    publisher = TransactionalPublisher()
    publisher.publish(SETTINGS, WORK, batches)
    cluster.calls.clear()
    publisher.publish(SETTINGS, WORK._replace(recorded=LastBatch(6, "more"), holder="another"), batches)
    assert cluster.calls[:2] == ["init", "look"]


def test_a_second_attempt_in_the_same_worker_is_recognised_without_asking(cluster: Cluster) -> None:
    publisher = TransactionalPublisher()
    first = publisher.publish(SETTINGS, WORK, batches)
    cluster.calls.clear()
    assert publisher.publish(SETTINGS, WORK, batches) == first._replace(what="already", rows=0)
    assert cluster.calls == []


def test_an_unanswered_commit_is_repeated(cluster: Cluster) -> None:
    cluster.failures["commit"] = [failure(KafkaError._TIMED_OUT, retriable=True)]
    assert TransactionalPublisher().publish(SETTINGS, WORK, batches).what == "published"
    assert cluster.calls.count("commit") == 2
    assert cluster.calls.count("begin") == 1


def test_an_abortable_transaction_is_flushed_aborted_and_repeated(cluster: Cluster) -> None:
    cluster.failures["commit"] = [failure(KafkaError.NOT_LEADER_FOR_PARTITION, txn_requires_abort=True)]
    assert TransactionalPublisher().publish(SETTINGS, WORK, batches).what == "published"
    assert cluster.calls == [
        *("init", "look", "begin", "rows", "commit", "flush", "abort"),
        *("init", "look", "begin", "rows", "commit"),
    ]


def test_a_fenced_late_publisher_returns(cluster: Cluster) -> None:
    def commit_by_other(seconds: float) -> None:
        cluster.marker = Marker(WORK.recorded, 3, 9, 0)
        raise failure(KafkaError._FENCED)

    publisher = TransactionalPublisher()
    cluster.failures["commit"] = [failure(KafkaError._FENCED)]
    cluster.failures["rows"] = []
    original = Producer.commit_transaction
    Producer.commit_transaction = lambda self, seconds: commit_by_other(seconds)  # type: ignore[method-assign]
    try:
        assert publisher.publish(SETTINGS, WORK, batches) == PublishResult(0, "already", 0, 0, -1, "")
    finally:
        Producer.commit_transaction = original  # type: ignore[method-assign]
    assert cluster.commits == 0


def test_a_fenced_publisher_without_a_marker_publishes(cluster: Cluster) -> None:
    cluster.failures["commit"] = [failure(KafkaError._FENCED)]
    assert TransactionalPublisher().publish(SETTINGS, WORK, batches).what == "published"
    assert cluster.calls.count("init") == 2


def test_the_attempts_end(cluster: Cluster) -> None:
    cluster.failures["commit"] = [failure(KafkaError.UNKNOWN, txn_requires_abort=True)] * 10
    with pytest.raises(SinkError, match=r"q\.out\.0: batch 5 could not be published: it failed"):
        TransactionalPublisher().publish(SETTINGS, WORK, batches)
    assert cluster.calls.count("begin") == file_publisher.ATTEMPTS_MAX


def test_an_error_of_the_rows_aborts_and_is_not_tried_again(cluster: Cluster) -> None:
    def broken() -> Iterator[Any]:
        yield from batches()
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        TransactionalPublisher().publish(SETTINGS, WORK, broken)
    assert cluster.calls[-2:] == ["flush", "abort"]


def test_producers_that_are_kept_are_few(cluster: Cluster) -> None:
    publisher = TransactionalPublisher()
    for number in range(file_publisher.PRODUCERS_KEPT_MAX + 5):
        publisher.publish(SETTINGS, WORK._replace(number=number), batches)
    assert repr(publisher).startswith(f"TransactionalPublisher({file_publisher.PRODUCERS_KEPT_MAX} producers")
