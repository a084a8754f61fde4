"""Fetch outside of sessions: limits, waiting, isolation, epochs, and what each version calls a topic."""

import threading
import time
import uuid
from collections.abc import Callable

import pytest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import MetadataRequest
from tests.conformance.conftest import NewTopic
from tests.conformance.peer import (
    FETCH_BY_ID,
    FETCH_BY_NAME,
    Peer,
    fetch_partition,
    fetch_request,
    fetch_topic,
    fetch_topics_request,
)
from tests.conformance.raw import ConnectionClosedError
from tests.conformance.raw_batches import batch, read_batches

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER, INVALID_REQUEST = 1, 3, 6, 42
UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_ID = 75, 100
BATCH = batch([b"x" * 1000])
COUNT = 5
INT32_MAX = 2**31 - 1
WAKE_SECONDS_MAX = 1.0


@pytest.fixture(scope="module")
def filled(bootstrap: str, topic_names: Callable[[], str]) -> tuple[str, uuid.UUID]:
    """Partition 0 holds five batches of one record each, partition 1 nothing."""
    name = topic_names()
    with Peer(bootstrap) as peer:
        topic_id = peer.create_topic(name, partitions=2)
        for _ in range(COUNT):
            assert peer.produce(name, BATCH).error_code == 0
    return name, topic_id


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_returns_the_stored_bytes(peer: Peer, filled: tuple[str, uuid.UUID], version: int) -> None:
    name, topic_id = filled
    response = peer.ask(fetch_request(topic_id if version >= 13 else name, 1), version)
    assert response.throttle_time_ms == 0
    (row,) = response.responses
    assert (row.topic_id, row.topic)[version < 13] == (topic_id, name)[version < 13]
    (answer,) = row.partitions
    assert (answer.partition_index, answer.error_code) == (0, 0)
    assert (answer.high_watermark, answer.last_stable_offset) == (COUNT, COUNT)
    assert [header.base_offset for header in read_batches(bytes(answer.records))] == [1, 2, 3, 4]
    if version >= 5:
        assert answer.log_start_offset == 0
    if version >= 7:
        assert (response.error_code, response.session_id) == (0, 0)
    if version >= 11:
        assert answer.preferred_read_replica == -1


def test_the_end_of_the_log_is_empty_but_not_null(peer: Peer, filled: tuple[str, uuid.UUID]) -> None:
    answer = peer.fetch(filled[0], COUNT, max_wait_ms=0)
    assert (answer.error_code, answer.high_watermark, answer.records) == (0, COUNT, b"")


@pytest.mark.parametrize("offset", [-1, -3, COUNT + 1, 2**63 - 1])
def test_an_offset_outside_of_the_log_answers_1_at_once(peer: Peer, filled: tuple[str, uuid.UUID], offset: int) -> None:
    started = time.monotonic()
    answer = peer.fetch(filled[0], offset, max_wait_ms=5000)
    assert (answer.error_code, answer.high_watermark, answer.log_start_offset) == (OFFSET_OUT_OF_RANGE, -1, -1)
    assert time.monotonic() - started < WAKE_SECONDS_MAX


def test_unknown_names_partitions_and_ids_answer_at_once(
    peer: Peer, filled: tuple[str, uuid.UUID], topic_name: str
) -> None:
    name, topic_id = filled
    started = time.monotonic()
    assert peer.fetch(topic_name, 0, max_wait_ms=5000).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert peer.fetch(name, 0, 5, max_wait_ms=5000).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert peer.fetch(name, 0, -1, max_wait_ms=5000).error_code == UNKNOWN_TOPIC_OR_PARTITION
    for asked, partition, expected in (
        (uuid.uuid4(), 0, UNKNOWN_TOPIC_ID),
        (uuid.UUID(int=0), 0, UNKNOWN_TOPIC_ID),
        (topic_id, 5, UNKNOWN_TOPIC_OR_PARTITION),
    ):
        answer = peer.ask(fetch_request(asked, 0, partition, max_wait_ms=5000), FETCH_BY_ID)
        assert answer.responses[0].partitions[0].error_code == expected
    assert time.monotonic() - started < WAKE_SECONDS_MAX
    assert topic_name not in peer.topic_names(), "fetching creates nothing"


def test_one_bad_partition_does_not_spoil_the_others(peer: Peer, filled: tuple[str, uuid.UUID]) -> None:
    rows = [fetch_partition(0, 0), fetch_partition(1, 99), fetch_partition(7, 0)]
    answer = peer.ask(fetch_topics_request([fetch_topic(filled[0], rows)]), FETCH_BY_NAME)
    errors = {row.partition_index: row.error_code for row in answer.responses[0].partitions}
    assert errors == {0: 0, 1: OFFSET_OUT_OF_RANGE, 7: UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize(
    "limits",
    [{"partition_max_bytes": 0}, {"partition_max_bytes": 100}, {"max_bytes": 0}, {"max_bytes": 100}],
    ids=str,
)
def test_a_limit_below_one_batch_still_returns_one(
    peer: Peer, filled: tuple[str, uuid.UUID], limits: dict[str, int]
) -> None:
    records = bytes(peer.fetch(filled[0], 0, **limits).records)
    assert [header.base_offset for header in read_batches(records)] == [0]
    assert len(records) == len(BATCH)


@pytest.mark.parametrize("limit", ["partition_max_bytes", "max_bytes"])
def test_a_limit_of_bytes_is_kept(peer: Peer, filled: tuple[str, uuid.UUID], limit: str) -> None:
    size = 2 * len(BATCH) + 500
    records = bytes(peer.fetch(filled[0], 0, **{limit: size}).records)
    assert len(records) <= size
    assert [header.base_offset for header in read_batches(records)] == [0, 1]


def test_the_limit_of_a_request_covers_all_partitions_together(peer: Peer, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    for partition in range(3):
        for _ in range(3):
            peer.produce(topic, BATCH, partition)
    rows = [fetch_partition(partition, 0) for partition in range(3)]
    request = fetch_topics_request([fetch_topic(topic, rows)], max_bytes=4 * len(BATCH))
    answers = peer.ask(request, FETCH_BY_NAME).responses[0].partitions
    sizes = [len(bytes(answer.records)) for answer in answers]
    assert sizes[0] == 3 * len(BATCH)
    assert sum(sizes) <= 4 * len(BATCH)
    assert [answer.error_code for answer in answers] == [0, 0, 0]


def test_a_batch_that_does_not_fit_behind_another_partition_is_left_out(peer: Peer, new_topic: NewTopic) -> None:
    """It counts for min_bytes all the same, like the rest of a batch cut by a limit: the fetch does not wait."""
    topic = new_topic(partitions=2)
    for partition in range(2):
        for _ in range(3):
            peer.produce(topic, BATCH, partition)
    rows = [fetch_partition(partition, 0) for partition in range(2)]
    limits = {"max_bytes": 3 * len(BATCH) + 500, "min_bytes": 3 * len(BATCH) + 400}
    started = time.monotonic()
    request = fetch_topics_request([fetch_topic(topic, rows)], **limits, max_wait_ms=5000)
    answers = peer.ask(request, FETCH_BY_NAME).responses[0].partitions
    assert [len(bytes(answer.records)) for answer in answers] == [3 * len(BATCH), 0]
    size = 2 * len(BATCH) + 500
    records = bytes(peer.fetch(topic, 0, partition_max_bytes=size, min_bytes=size, max_wait_ms=5000).records)
    assert [header.base_offset for header in read_batches(records)] == [0, 1]
    assert time.monotonic() - started < WAKE_SECONDS_MAX


def test_negative_limits_are_refused_or_read_as_zero(bootstrap: str, filled: tuple[str, uuid.UUID]) -> None:
    for limits in ({"max_bytes": -1}, {"partition_max_bytes": -1}, {"max_bytes": -(2**31)}):
        with Peer(bootstrap) as peer:
            answer = peer.fetch(filled[0], 0, **limits)
            assert answer.error_code in {0, -1, INVALID_REQUEST}
            assert len(bytes(answer.records or b"")) <= len(BATCH)


def test_a_fetch_waits_until_its_deadline(peer: Peer, filled: tuple[str, uuid.UUID]) -> None:
    for wait_ms in (0, 100, 400):
        started = time.monotonic()
        answer = peer.fetch(filled[0], COUNT, max_wait_ms=wait_ms)
        waited_ms = (time.monotonic() - started) * 1000
        assert (answer.error_code, answer.records) == (0, b"")
        assert wait_ms - 5 <= waited_ms <= wait_ms + 300


def test_min_bytes_that_never_come_return_what_there_is_at_the_deadline(
    peer: Peer, filled: tuple[str, uuid.UUID]
) -> None:
    started = time.monotonic()
    answer = peer.fetch(filled[0], 0, min_bytes=INT32_MAX, max_wait_ms=300)
    assert len(read_batches(bytes(answer.records))) == COUNT
    assert 0.29 <= time.monotonic() - started <= 0.8


@pytest.mark.parametrize("min_bytes", [0, -1, -(2**31)])
def test_min_bytes_of_nothing_does_not_wait(peer: Peer, filled: tuple[str, uuid.UUID], min_bytes: int) -> None:
    started = time.monotonic()
    assert peer.fetch(filled[0], COUNT, min_bytes=min_bytes, max_wait_ms=5000).records == b""
    assert time.monotonic() - started < WAKE_SECONDS_MAX


def test_a_fetch_with_data_does_not_wait(peer: Peer, filled: tuple[str, uuid.UUID]) -> None:
    started = time.monotonic()
    assert peer.fetch(filled[0], 0, max_wait_ms=INT32_MAX).records
    assert time.monotonic() - started < WAKE_SECONDS_MAX


def test_a_request_without_partitions_does_not_wait(peer: Peer) -> None:
    started = time.monotonic()
    assert peer.ask(fetch_topics_request([], max_wait_ms=5000), FETCH_BY_NAME).responses == []
    assert time.monotonic() - started < WAKE_SECONDS_MAX


@pytest.mark.parametrize("max_wait_ms", [5000, INT32_MAX])
def test_a_parked_fetch_is_woken_by_a_produce(bootstrap: str, topic: str, max_wait_ms: int) -> None:
    with Peer(bootstrap) as reader, Peer(bootstrap) as writer:
        reader.send(request := fetch_request(topic, 0, max_wait_ms=max_wait_ms), FETCH_BY_NAME)
        time.sleep(0.1)
        produced = time.monotonic()
        assert writer.produce(topic, batch()).error_code == 0
        answer = reader.receive(request).responses[0].partitions[0]
        assert time.monotonic() - produced < WAKE_SECONDS_MAX
        assert len(read_batches(bytes(answer.records))) == 1


def test_a_parked_fetch_waits_for_min_bytes(bootstrap: str, topic: str) -> None:
    with Peer(bootstrap) as reader, Peer(bootstrap) as writer:
        request = fetch_request(topic, 0, max_wait_ms=5000, min_bytes=2 * len(BATCH))
        reader.send(request, FETCH_BY_NAME)
        writer.produce(topic, BATCH)
        with pytest.raises(TimeoutError):
            reader.receive(request, timeout_seconds=0.3)
        writer.produce(topic, BATCH)
        answer = reader.receive(request, WAKE_SECONDS_MAX).responses[0].partitions[0]
        assert len(read_batches(bytes(answer.records))) == 2


def test_a_parked_fetch_of_many_partitions_is_woken_by_any(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=4)
    with Peer(bootstrap) as reader, Peer(bootstrap) as writer:
        rows = [fetch_partition(partition, 0) for partition in range(4)]
        request = fetch_topics_request([fetch_topic(topic, rows)], max_wait_ms=5000)
        reader.send(request, FETCH_BY_NAME)
        writer.produce(topic, batch(), 3)
        answers = reader.receive(request, WAKE_SECONDS_MAX).responses[0].partitions
        assert [len(bytes(answer.records)) > 0 for answer in answers] == [False, False, False, True]


def test_a_hundred_parked_fetches_are_all_woken(bootstrap: str, topic: str) -> None:
    readers = [Peer(bootstrap) for _ in range(100)]
    try:
        requests = [fetch_request(topic, 0, max_wait_ms=8000) for _ in readers]
        for reader, request in zip(readers, requests, strict=True):
            reader.send(request, FETCH_BY_NAME)
        with Peer(bootstrap) as writer:
            started = time.monotonic()
            writer.produce(topic, batch())
        for reader, request in zip(readers, requests, strict=True):
            assert reader.receive(request).responses[0].partitions[0].records
        assert time.monotonic() - started < 2 * WAKE_SECONDS_MAX
    finally:
        for reader in readers:
            reader.connection.close()


def test_a_parked_fetch_does_not_stop_other_connections(bootstrap: str, topic: str) -> None:
    with Peer(bootstrap) as reader, Peer(bootstrap) as other:
        reader.send(request := fetch_request(topic, 0, max_wait_ms=1000), FETCH_BY_NAME)
        started = time.monotonic()
        for _ in range(20):
            other.topic_names()
        assert time.monotonic() - started < WAKE_SECONDS_MAX
        assert reader.receive(request).responses[0].partitions[0].records == b""


def test_replies_behind_a_parked_fetch_wait_for_it(peer: Peer, topic: str) -> None:
    first, second = fetch_request(topic, 0, max_wait_ms=300), MetadataRequest(topics=[])
    started = time.monotonic()
    peer.send(first, FETCH_BY_NAME)
    peer.send(second, 12)
    peer.receive(first)
    assert time.monotonic() - started >= 0.29
    assert peer.receive(second).brokers


def test_requests_right_behind_large_answers_are_answered(bootstrap: str, topic: str) -> None:
    """All in one piece on the wire: the broker must come back to the rest of what it has received already."""
    with Peer(bootstrap) as peer:
        for _ in range(4):
            assert peer.produce(topic, batch([b"x" * 900_000])).error_code == 0
    for _ in range(5):
        with Peer(bootstrap) as peer:
            requests = [fetch_request(topic, 0, partition_max_bytes=4 << 20) for _ in range(6)]
            data = b"".join(peer.frame(request, FETCH_BY_NAME) for request in requests)
            peer.connection.send(data + peer.frame(last := MetadataRequest(topics=[]), 12))
            for request in requests:
                assert len(peer.receive(request).responses[0].partitions[0].records) > 3_600_000
            assert peer.receive(last).brokers


def test_a_deleted_topic_ends_the_waiting(bootstrap: str, topic: str) -> None:
    with Peer(bootstrap) as reader, Peer(bootstrap) as admin:
        reader.send(request := fetch_request(topic, 0, max_wait_ms=3000), FETCH_BY_NAME)
        time.sleep(0.1)
        assert admin.delete_topics([topic]) == {topic: 0}
        answer = reader.receive(request).responses[0].partitions[0]
        assert answer.error_code in {0, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER}
        assert not answer.records


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_isolation_levels_see_the_same_without_transactions(
    peer: Peer, filled: tuple[str, uuid.UUID], isolation_level: int
) -> None:
    answer = peer.fetch(filled[0], 0, isolation_level=isolation_level)
    assert len(read_batches(bytes(answer.records))) == COUNT
    assert answer.aborted_transactions == ([] if isolation_level else None)


def test_an_unknown_isolation_level_is_refused(bootstrap: str, filled: tuple[str, uuid.UUID]) -> None:
    with Peer(bootstrap) as peer:
        try:
            answer = peer.ask(fetch_request(filled[0], 0, isolation_level=5), FETCH_BY_NAME)
        except ConnectionClosedError:
            return
        assert answer.error_code in {-1, INVALID_REQUEST}


@pytest.mark.parametrize(("epoch", "error"), [(-1, 0), (0, 0), (1, UNKNOWN_LEADER_EPOCH), (99, UNKNOWN_LEADER_EPOCH)])
def test_the_leader_epoch_is_checked(peer: Peer, filled: tuple[str, uuid.UUID], epoch: int, error: int) -> None:
    answer = peer.fetch(filled[0], 0, leader_epoch=epoch, max_wait_ms=0)
    assert answer.error_code == error
    assert bool(answer.records) == (error == 0)


@pytest.mark.parametrize("replica_id", [0, 1, 2, 5])
def test_a_client_cannot_pose_as_a_follower(peer: Peer, filled: tuple[str, uuid.UUID], replica_id: int) -> None:
    name, topic_id = filled
    answer = peer.fetch(name, 0, replica_id=replica_id, max_wait_ms=0)
    assert (answer.error_code, answer.records) == (NOT_LEADER, b"")
    request = fetch_request(topic_id, 0, max_wait_ms=0)
    request.replica_state = FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=-1)
    answer = peer.ask(request, FETCH_BY_ID).responses[0].partitions[0]
    assert (answer.error_code, answer.records) == (NOT_LEADER, b"")
    assert peer.fetch(name, 0).high_watermark == COUNT


def test_reading_and_writing_at_the_same_time_loses_nothing(bootstrap: str, topic: str) -> None:
    total = 300

    def write() -> None:
        with Peer(bootstrap) as writer:
            for number in range(total):
                assert writer.produce(topic, batch([b"%d" % number])).base_offset == number

    thread = threading.Thread(target=write)
    thread.start()
    seen: list[int] = []
    with Peer(bootstrap) as reader:
        while len(seen) < total:
            answer = reader.fetch(topic, len(seen), max_wait_ms=2000)
            assert answer.error_code == 0
            seen += [header.base_offset for header in read_batches(bytes(answer.records))]
    thread.join()
    assert seen == list(range(total))
