"""ListOffsets version by version, and OffsetForLeaderEpoch."""

import time

import pytest
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest
from tests.conformance.peer import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    Peer,
    list_offsets_request,
)
from tests.conformance.raw_batches import GZIP, batch, record

UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_VERSION, INVALID_REQUEST, UNKNOWN_LEADER_EPOCH = 3, 35, 42, 75
EARLIEST_PENDING_UPLOAD = -6
NOW_MS = int(time.time() * 1000)
VERSIONS = range(1, 12)
# The version that brought each special timestamp.
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


@pytest.fixture(scope="module")
def dated_topic(bootstrap: str, topic_names: object) -> str:
    """Offsets 0 to 7 in four batches of two, five milliseconds apart inside, a second apart outside; one gzipped."""
    assert callable(topic_names)
    name = str(topic_names())
    with Peer(bootstrap) as peer:
        peer.create_topic(name)
        for number in range(4):
            rows = [record(b"a", 0), record(b"b", 1, timestamp_delta=5)]
            moment = NOW_MS - 1000 * (4 - number)
            codec = GZIP if number == 2 else 0
            data = batch(records=rows, timestamp=moment, max_timestamp=moment + 5, codec=codec)
            assert peer.produce(name, data).error_code == 0
    return name


def ask(peer: Peer, topic: str, timestamp: int, version: int) -> tuple[int, int, int]:
    answer = peer.list_offset(topic, timestamp, version=version)
    return answer.error_code, answer.timestamp, answer.offset


@pytest.mark.parametrize("version", VERSIONS)
def test_earliest_and_latest(peer: Peer, dated_topic: str, version: int) -> None:
    assert ask(peer, dated_topic, EARLIEST, version) == (0, -1, 0)
    assert ask(peer, dated_topic, LATEST, version) == (0, -1, 8)
    assert peer.list_offset(dated_topic, LATEST, version=version).leader_epoch == (0 if version >= 4 else -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_by_time_finds_the_first_record_not_before_it(peer: Peer, dated_topic: str, version: int) -> None:
    assert ask(peer, dated_topic, 0, version) == (0, NOW_MS - 4000, 0)
    assert ask(peer, dated_topic, NOW_MS - 4000, version) == (0, NOW_MS - 4000, 0)
    assert ask(peer, dated_topic, NOW_MS - 3999, version) == (0, NOW_MS - 3995, 1)
    assert ask(peer, dated_topic, NOW_MS - 3994, version) == (0, NOW_MS - 3000, 2)
    assert ask(peer, dated_topic, NOW_MS - 1999, version) == (0, NOW_MS - 1995, 5), "inside a compressed batch"
    assert ask(peer, dated_topic, NOW_MS - 995, version) == (0, NOW_MS - 995, 7)
    assert ask(peer, dated_topic, NOW_MS - 994, version) == (0, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("timestamp", [*SINCE, -7])
def test_special_timestamps_come_with_their_version(peer: Peer, dated_topic: str, version: int, timestamp: int) -> None:
    expected = {
        MAX_TIMESTAMP: (0, NOW_MS - 995, 7),
        EARLIEST_LOCAL: (0, -1, 0),
        LATEST_TIERED: (0, -1, -1),
        EARLIEST_PENDING_UPLOAD: (0, -1, -1),
    }
    is_known = version >= SINCE.get(timestamp, 99)
    answer = ask(peer, dated_topic, timestamp, version)
    assert answer == (expected[timestamp] if is_known else (UNSUPPORTED_VERSION, -1, -1))


def test_an_empty_log(peer: Peer, topic: str) -> None:
    assert ask(peer, topic, EARLIEST, 11) == (0, -1, 0)
    assert ask(peer, topic, LATEST, 11) == (0, -1, 0)
    assert ask(peer, topic, MAX_TIMESTAMP, 11) == (0, -1, -1)
    assert ask(peer, topic, EARLIEST_LOCAL, 11) == (0, -1, 0)
    assert ask(peer, topic, NOW_MS, 11) == (0, -1, -1)


def test_max_timestamp_is_not_always_the_last_record(peer: Peer, topic: str) -> None:
    for moment in (1000, 9000, 5000):
        peer.produce(topic, batch(timestamp=NOW_MS - 20_000 + moment))
    assert ask(peer, topic, MAX_TIMESTAMP, 11) == (0, NOW_MS - 11_000, 1)


def test_max_timestamp_of_log_append_time_is_the_last_batch(peer: Peer, topic_name: str) -> None:
    peer.create_topic(topic_name, message_timestamp_type="LogAppendTime")
    peer.produce(topic_name, batch([b"a", b"b"]))
    time.sleep(0.005)
    last = peer.produce(topic_name, batch([b"c", b"d"]))
    error, timestamp, offset = ask(peer, topic_name, MAX_TIMESTAMP, 11)
    assert (error, timestamp) == (0, last.log_append_time_ms)
    assert offset in (2, 3)  # every record of the batch has this time
    assert ask(peer, topic_name, last.log_append_time_ms, 11)[2] == 2


def test_unknown_topics_and_partitions_answer_3(peer: Peer, topic: str, topic_name: str) -> None:
    assert ask(peer, topic_name, LATEST, 8) == (UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert peer.list_offset(topic, LATEST, partition=4).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert topic_name not in peer.topic_names(), "asking creates nothing"


@pytest.mark.parametrize(("epoch", "error"), [(-1, 0), (0, 0), (1, UNKNOWN_LEADER_EPOCH)])
def test_list_offsets_checks_the_leader_epoch(peer: Peer, topic: str, epoch: int, error: int) -> None:
    answer = peer.ask(list_offsets_request(topic, LATEST, leader_epoch=epoch), 8)
    assert answer.topics[0].partitions[0].error_code == error


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_both_isolation_levels_have_the_same_end_without_transactions(
    peer: Peer, dated_topic: str, isolation_level: int
) -> None:
    answer = peer.ask(list_offsets_request(dated_topic, LATEST, isolation_level=isolation_level), 8)
    assert answer.topics[0].partitions[0].offset == 8


def test_a_partition_asked_for_twice_answers_42(peer: Peer, topic: str) -> None:
    shape = ListOffsetsRequest.ListOffsetsTopic
    rows = [
        shape.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
        for timestamp in (LATEST, EARLIEST)
    ]
    topics = [shape(name=topic, partitions=rows)]
    answer = peer.ask(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics, timeout_ms=1000), 8)
    assert {row.error_code for row in answer.topics[0].partitions} == {INVALID_REQUEST}


def end_of_epoch(
    peer: Peer, version: int, topic: str, partition: int, current: int, asked: int
) -> tuple[int, int, int]:
    shape = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    row = shape.OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=asked)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[shape(topic=topic, partitions=[row])])
    answer = peer.ask(request, version).topics[0].partitions[0]
    assert answer.partition == partition
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_a_leader_epoch(peer: Peer, dated_topic: str, topic_name: str, version: int) -> None:
    assert end_of_epoch(peer, version, dated_topic, 0, -1, 0) == (0, 0, 8)
    assert end_of_epoch(peer, version, dated_topic, 0, 0, 0) == (0, 0, 8)
    assert end_of_epoch(peer, version, dated_topic, 0, -1, 1) == (0, -1, -1), "an epoch that is still to come"
    assert end_of_epoch(peer, version, dated_topic, 0, -1, -1) == (0, -1, -1)
    assert end_of_epoch(peer, version, dated_topic, 0, 1, 0) == (UNKNOWN_LEADER_EPOCH, -1, -1)
    assert end_of_epoch(peer, version, dated_topic, 7, -1, 0) == (UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert end_of_epoch(peer, version, topic_name, 0, -1, 0) == (UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def test_the_end_of_the_epoch_of_an_empty_log(peer: Peer, topic: str) -> None:
    assert end_of_epoch(peer, 4, topic, 0, -1, 0) == (0, 0, 0)
