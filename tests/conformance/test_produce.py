"""Produce request by request: every version, every refusal, the order of replies, acks, timestamps."""

import time
import uuid

import pytest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceRequest
from tests.conformance.conftest import NewTopic
from tests.conformance.peer import PRODUCE_BY_ID, PRODUCE_BY_NAME, Peer, produce_request
from tests.conformance.raw_batches import GZIP, LOG_APPEND_TIME, LZ4, NONE, SNAPPY, ZSTD, batch, record

UNKNOWN_TOPIC_OR_PARTITION, MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, UNKNOWN_TOPIC_ID = 3, 10, 32, 100
ONE_HOUR_MS = 3_600_000
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
BATCH_OVERHEAD = 61


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_by_name_appends_one_batch(peer: Peer, topic: str, version: int) -> None:
    for expected in range(2):
        response = peer.ask(produce_request(topic, batch()), version)
        assert response.throttle_time_ms == 0
        assert [row.name for row in response.responses] == [topic]
        (answer,) = response.responses[0].partition_responses
        assert (answer.index, answer.error_code, answer.base_offset) == (0, 0, expected)
        assert answer.log_append_time_ms == -1
        if version >= 5:
            assert answer.log_start_offset == 0
        if version >= 8:
            assert (answer.record_errors, answer.error_message) == ([], None)
    assert peer.end_offset(topic) == 2


def test_version_13_names_the_topic_by_its_id(peer: Peer, topic_name: str) -> None:
    topic_id = peer.create_topic(topic_name)
    (answer,) = peer.ask(produce_request(topic_id, batch()), PRODUCE_BY_ID).responses
    assert answer.topic_id == topic_id
    assert answer.partition_responses[0].error_code == 0
    assert peer.end_offset(topic_name) == 1


def test_an_unknown_topic_id_answers_100(peer: Peer) -> None:
    topic_id = uuid.uuid4()
    (answer,) = peer.ask(produce_request(topic_id, batch()), PRODUCE_BY_ID).responses
    assert answer.topic_id == topic_id
    assert answer.partition_responses[0].error_code == UNKNOWN_TOPIC_ID
    assert answer.partition_responses[0].base_offset == -1


def test_an_unknown_topic_answers_3_and_is_not_created(peer: Peer, topic_name: str) -> None:
    answer = peer.produce(topic_name, batch())
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert topic_name not in peer.topic_names()


@pytest.mark.parametrize("partition", [1, -1, 2**31 - 1])
def test_a_partition_out_of_range_answers_3(peer: Peer, topic: str, partition: int) -> None:
    answer = peer.produce(topic, batch(), partition)
    assert (answer.index, answer.error_code, answer.base_offset) == (partition, UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_each_partition_of_a_request_has_its_own_answer(peer: Peer, new_topic: NewTopic, topic_name: str) -> None:
    topic, data = new_topic(partitions=2), ProduceRequest.TopicProduceData
    rows = [data.PartitionProduceData(index=index, records=batch()) for index in (0, 1, 5)]
    nowhere = [data.PartitionProduceData(index=0, records=batch())]
    topics = [data(name=topic, partition_data=rows), data(name=topic_name, partition_data=nowhere)]
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=5000, topic_data=topics)
    answers = {
        (row.name, part.index): part.error_code
        for row in peer.ask(request, PRODUCE_BY_NAME).responses
        for part in row.partition_responses
    }
    assert answers == {(topic, 0): 0, (topic, 1): 0, (topic, 5): 3, (topic_name, 0): 3}
    assert (peer.end_offset(topic, 0), peer.end_offset(topic, 1)) == (1, 1)


def test_a_request_without_topics_is_answered_empty(peer: Peer) -> None:
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=5000, topic_data=[])
    assert peer.ask(request, PRODUCE_BY_NAME).responses == []


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("count", [1, 500])
def test_batches_are_stored_as_they_came(peer: Peer, topic: str, codec: int, count: int) -> None:
    sent = batch([b"value %d" % number for number in range(count)], codec=codec)
    assert peer.produce(topic, sent).base_offset == 0
    assert peer.produce(topic, sent).base_offset == count
    fetched = bytes(peer.fetch(topic, 0).records)
    assert fetched[: len(sent)][16:] == sent[16:], "only offset and leader epoch are the broker's"
    first, second = peer.stored_batches(topic)
    assert (first.base_offset, first.leader_epoch, first.record_count) == (0, 0, count)
    assert (second.base_offset, second.next_offset) == (count, 2 * count)


@pytest.mark.parametrize("acks", [1, -1])
def test_acknowledged_records_can_be_read_at_once(peer: Peer, topic: str, acks: int) -> None:
    assert peer.produce(topic, batch(), acks=acks).base_offset == 0
    answer = peer.fetch(topic, 0)
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (1, 1, 0)


def test_acks_0_gets_no_reply_but_is_stored(peer: Peer, topic: str) -> None:
    peer.send(produce_request(topic, batch(), acks=0), PRODUCE_BY_NAME)
    next_request = MetadataRequest(topics=[])
    peer.ask(next_request, 12)  # the very next frame is the answer to this
    assert peer.end_offset(topic) == 1


@pytest.mark.parametrize(
    ("partition", "records"),
    [(0, batch(crc=1)), (9, batch()), (0, batch([b"x" * 1_100_000]))],
    ids=["wrong CRC", "unknown partition", "too large"],
)
def test_acks_0_closes_the_connection_on_an_error(bootstrap: str, topic: str, partition: int, records: bytes) -> None:
    with Peer(bootstrap) as peer:
        peer.send(produce_request(topic, records, partition, acks=0), PRODUCE_BY_NAME)
        assert peer.connection.is_closed_by_peer()
    with Peer(bootstrap) as peer:
        assert peer.end_offset(topic) == 0


def test_pipelined_requests_are_answered_in_their_order(peer: Peer, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    requests = [produce_request(topic, batch([b"%d" % number]), number % 3) for number in range(90)]
    for request in requests:
        peer.send(request, PRODUCE_BY_NAME)
    answers = [peer.receive(request).responses[0].partition_responses[0] for request in requests]
    assert [(answer.index, answer.base_offset) for answer in answers] == [(n % 3, n // 3) for n in range(90)]


def test_other_requests_between_produces_keep_their_place(peer: Peer, topic: str) -> None:
    first, question, second = (
        produce_request(topic, batch()),
        MetadataRequest(topics=[]),
        produce_request(topic, batch()),
    )
    peer.send(first, PRODUCE_BY_NAME)
    peer.send(question, 12)
    peer.send(second, 9)
    assert peer.receive(first).responses[0].partition_responses[0].base_offset == 0
    assert peer.receive(question).brokers
    assert peer.receive(second).responses[0].partition_responses[0].base_offset == 1


def test_two_connections_share_one_sequence_of_offsets(bootstrap: str, topic: str) -> None:
    with Peer(bootstrap) as left, Peer(bootstrap) as right:
        requests = [(peer, produce_request(topic, batch([b"a", b"b"]))) for _ in range(20) for peer in (left, right)]
        for peer, request in requests:
            peer.send(request, PRODUCE_BY_NAME)
        answers = [peer.receive(request).responses[0].partition_responses[0] for peer, request in requests]
        assert sorted(answer.base_offset for answer in answers) == list(range(0, 80, 2))
        assert left.end_offset(topic) == 80


def test_log_append_time_is_the_brokers_clock(peer: Peer, new_topic: NewTopic) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = now_ms()
    answer = peer.produce(topic, batch(timestamp=1000))
    assert before <= answer.log_append_time_ms <= now_ms()
    (stored,) = peer.stored_batches(topic)  # this also checks the new CRC
    assert stored.attributes == LOG_APPEND_TIME
    assert (stored.base_timestamp, stored.max_timestamp) == (1000, answer.log_append_time_ms)


def test_create_time_too_far_in_the_future_answers_32_with_the_record(peer: Peer, topic: str) -> None:
    moment = now_ms() + 2 * ONE_HOUR_MS
    answer = peer.produce(topic, batch(timestamp=moment))
    assert answer.error_code == INVALID_TIMESTAMP
    assert answer.error_message == "One or more records have been rejected due to invalid timestamp"
    (problem,) = answer.record_errors
    assert problem.batch_index == 0
    assert problem.batch_index_error_message.startswith(
        f"Timestamp {moment} of message with offset 0 is out of range. The timestamp should be within ["
    )
    assert peer.produce(topic, batch(timestamp=now_ms() + ONE_HOUR_MS // 2)).error_code == 0


def test_create_time_before_the_topics_limit_answers_32(peer: Peer, new_topic: NewTopic) -> None:
    topic = new_topic(message_timestamp_before_max_ms=60_000)
    assert peer.produce(topic, batch(timestamp=now_ms() - 120_000)).error_code == INVALID_TIMESTAMP
    assert peer.produce(topic, batch(timestamp=now_ms() - 30_000)).error_code == 0


def test_no_timestamp_is_accepted(peer: Peer, topic: str) -> None:
    assert peer.produce(topic, batch(timestamp=-1)).error_code == 0
    (stored,) = peer.stored_batches(topic)
    assert (stored.base_timestamp, stored.max_timestamp) == (-1, -1)


def test_the_topics_own_limit_of_message_size_is_exact(peer: Peer, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes=1000)
    overhead = len(batch([b""])) + 2  # lengths above 63 need a second byte, twice
    assert len(fits := batch([b"x" * (1000 - overhead)])) == 1000
    assert peer.produce(topic, fits).error_code == 0
    assert peer.produce(topic, batch([b"x" * (1001 - overhead)])).error_code == MESSAGE_TOO_LARGE
    assert peer.end_offset(topic) == 1


def test_records_with_everything_come_back(peer: Peer, topic: str) -> None:
    rows = [
        record(b"value", 0, key=b"key", headers=[(b"a", b"1"), (b"a", None), (b"", b"")]),
        record(None, 1, key=None),
        record(b"", 2, key=b"", timestamp_delta=5),
    ]
    sent = batch(records=rows)
    assert peer.produce(topic, sent).error_code == 0
    assert bytes(peer.fetch(topic, 0).records)[BATCH_OVERHEAD:] == sent[BATCH_OVERHEAD:]
